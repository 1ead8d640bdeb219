//! Sets the texts of files, if each file has the text that a person has seen.

use sluice_core::setters::EditedFile;

use super::error::EditError;
use crate::error::{DeliveryError, DeliveryResult};
use crate::file_change::{FileChange, RequestedChange};
use crate::git::{LockedRepository, ReadFile};
use crate::manifest_file::check_manifest_path;

/// Reads a plain file of a commit of a branch; `None` if there is no file. Nothing on its path is a link.
pub(crate) async fn read(
    repository: &LockedRepository<'_>,
    (branch, commit): (&str, &str),
    path: &str,
) -> DeliveryResult<Option<(ReadFile, String)>> {
    let wrong = |problem: String| {
        let (repository, branch) = (repository.access.address.text.clone(), branch.to_string());
        DeliveryError::Edit(EditError::File { repository, branch, path: path.into(), problem })
    };
    check_manifest_path(path).map_err(|error| wrong(error.to_string()))?;
    let Some(file) = repository.read_plain_file(commit, path).await?.map_err(wrong)? else {
        return Ok(None);
    };
    match String::from_utf8(file.bytes.clone()) {
        Ok(text) => Ok(Some((file, text))),
        Err(_) => Err(wrong("it is not text in UTF-8".into())),
    }
}

/// Sets the texts of all files.
pub(super) async fn edit(
    change: &RequestedChange,
    repository: &LockedRepository<'_>,
    at: (&str, &str),
) -> DeliveryResult<Vec<(ReadFile, EditedFile)>> {
    let mut edited = Vec::new();
    for file in &change.files {
        edited.push(edit_one(file, repository, at).await?);
    }
    Ok(edited)
}

async fn edit_one(
    change: &FileChange,
    repository: &LockedRepository<'_>,
    at: (&str, &str),
) -> DeliveryResult<(ReadFile, EditedFile)> {
    let (file, now) = match read(repository, at, &change.path).await? {
        Some((file, now)) => (file, Some(now)),
        None => (ReadFile::new(&change.path), None),
    };
    if now != change.before && now.as_ref() != Some(&change.after) {
        return Err(EditError::FileChanged {
            repository: repository.access.address.text.clone(),
            branch: at.0.into(),
            path: change.path.clone(),
        }
        .into());
    }
    Ok((file, EditedFile { text: change.after.clone(), values: Vec::new() }))
}
