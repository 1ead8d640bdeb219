//! The pages for people, and the `sluice` commands in them.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Returns the pages, the generated ones included.
pub fn pages() -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    found.extend(pages_in(&root.join("docs"))?);
    found.extend(pages_in(&root.join("examples"))?);
    Ok(found)
}

/// Returns the pages in a folder and in the folders in it.
fn pages_in(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages_in(&path)?);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// A `sluice` command in a page, without what the shell does with its output.
#[derive(Debug, PartialEq, Eq)]
pub struct DocumentedCommand {
    pub text: String,
    /// Whether it is on a line of its own, to be typed as it is.
    pub is_whole_line: bool,
}

/// Returns the `sluice` commands of a page.
pub fn commands(page: &str) -> Vec<DocumentedCommand> {
    let joined = page.replace("\\\n", " ");
    let mut found = Vec::new();
    let mut in_block = false;
    for line in joined.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.extend(command(trimmed.strip_prefix("$ ").unwrap_or(trimmed), true));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).filter_map(|text| command(text, false)));
        }
    }
    found
}

/// What the usage of a command has in the reference, and a command to type has not.
const USAGE: [&str; 3] = [" [OPTIONS]", " <COMMAND>", " <SHELL>"];

/// Returns a text as a command to type if it is one.
fn command(text: &str, is_whole_line: bool) -> Option<DocumentedCommand> {
    let ends = [" |", " #", " >", " &&", " &", ";"].map(|end| text.find(end).unwrap_or(text.len()));
    let text = text.get(..ends.into_iter().min()?)?.trim();
    let is_command = text.starts_with("sluice ") && !USAGE.iter().any(|part| text.contains(part));
    is_command.then(|| DocumentedCommand { text: text.replace(['<', '>'], ""), is_whole_line })
}
