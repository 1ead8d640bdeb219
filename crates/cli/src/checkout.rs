//! The YAML files of a checkout.

use std::io;
use std::path::{Path, PathBuf};

use sluice_core::manifest_path::is_yaml;
use sluice_core::setters::MAX_FILE_BYTES;

use crate::exit::{Exit, Failure, Outcome};

/// A YAML file of a checkout.
#[derive(Debug)]
pub(crate) struct CheckoutFile {
    /// The path from the root of the checkout, with `/` between its parts.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// Returns the YAML files below a folder, sorted by path. `.git` is left out, and links are not followed.
pub(crate) fn yaml_files(root: &Path) -> Outcome<Vec<CheckoutFile>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        let entries =
            std::fs::read_dir(&place).map_err(|e| read_failure(&place.display().to_string(), &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| read_failure(&place.display().to_string(), &e))?;
            let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
            let name = path.to_string_lossy().into_owned();
            if kind.is_dir() && entry.file_name() != ".git" {
                folders.push(path);
            } else if kind.is_file() && is_yaml(name.as_bytes()) && entry.metadata()?.len() <= MAX_FILE_BYTES
            {
                let file = root.join(&path);
                let bytes =
                    std::fs::read(&file).map_err(|e| read_failure(&file.display().to_string(), &e))?;
                files.push(CheckoutFile { path: name, bytes });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the failure for a file that cannot be read.
pub(crate) fn read_failure(source: &str, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Error };
    Failure::new(exit, format!("cannot read {source}: {error}"))
}
