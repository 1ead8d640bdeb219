//! `docs/reference/commands.md` is what the definitions of the commands say. `UPDATE=1` writes it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

#[test]
fn the_reference_of_the_commands_is_that_of_this_binary() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("command-reference")
        .env_clear()
        .output()
        .context("cannot run sluice")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout)?;
    ensure!(
        printed.contains("\n## sluice controller\n") && printed.contains("\n## sluice get pipelines\n"),
        "{printed}"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, printed)?;
        return Ok(());
    }
    let page = std::fs::read_to_string(&path).context("docs/reference/commands.md")?;
    let differs = page.lines().zip(printed.lines()).position(|(page, printed)| page != printed);
    let line = differs.unwrap_or(page.lines().count().min(printed.lines().count())) + 1;
    ensure!(
        page == printed,
        "docs/reference/commands.md is not what the commands say, at line {line}: run make reference and commit it"
    );
    Ok(())
}
