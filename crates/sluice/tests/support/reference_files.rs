//! The generated files of `docs/reference/`.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Checks that files have this content. With the variable `UPDATE`, writes them first.
pub fn are_up_to_date(files: &[(&str, String)]) -> Result<()> {
    for (name, content) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, content)?;
        }
        let written = std::fs::read_to_string(&path).with_context(|| format!("docs/reference/{name}"))?;
        let differs = written.lines().zip(content.lines()).position(|(written, line)| written != line);
        let line = differs.unwrap_or(written.lines().count().min(content.lines().count())) + 1;
        ensure!(
            written == *content,
            "docs/reference/{name} is not what the code says, at line {line}: run make reference and commit it"
        );
    }
    Ok(())
}
