//! Which file of a repository may hold an object that a person writes, and the text that the file gets: a new file, or one
//! that has this object already. No other file is written, and no other document of the file changes.

use serde_json::Value;
use sluice_core::manifest_path;
use sluice_core::value_check::is_unsafe;

use crate::foreign_text::clean;

/// The largest file that is edited, in bytes.
const MAX_EDITED_BYTES: usize = 1 << 20;
/// Why a manifest is not written to a new file.
const NO_APPLICATION: &str =
    "the manifest is not one document with the application of the pipeline, in the namespace of a target";

/// The object that a file must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestObject<'a> {
    /// The API group. Its versions do not matter.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Why a file is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFileError {
    /// The path cannot be used.
    #[error("the path {path} cannot be used: {problem}")]
    Path {
        /// The path as it was entered, without invisible characters.
        path: String,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
    /// The file exists, and does not hold the object.
    #[error(
        "the file {path} has other content than {object}, and Sluice does not overwrite it: choose another path"
    )]
    OtherContent {
        /// The path.
        path: String,
        /// The object that it does not hold.
        object: String,
    },
    /// The file of a new object exists.
    #[error(
        "the file {path} is in the repository already, and Sluice does not overwrite it: choose another path for {object}, or mark its target as in git already"
    )]
    Taken {
        /// The path.
        path: String,
        /// The object.
        object: String,
    },
    /// The file cannot be edited.
    #[error("the file {path} cannot be edited: {problem}")]
    NotEditable {
        /// The path.
        path: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The object in the file is not the one that the person has edited.
    #[error(
        "{object} in the file {path} is not what you have edited: it was changed in git and is not applied yet, or Flux changes it when it applies it. Nothing was written; look at the file, then edit again"
    )]
    Changed {
        /// The path.
        path: String,
        /// The object.
        object: String,
    },
    /// A new object is in the file already.
    #[error(
        "the file {path} has {object} already, with other content: edit that pipeline, or choose another path"
    )]
    Exists {
        /// The path.
        path: String,
        /// The object.
        object: String,
    },
}

impl ManifestObject<'_> {
    fn words(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// Whether a document is this object. The namespace must be written: what adds it later is not known here.
    fn is(&self, document: &Value) -> bool {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        let group = text("/apiVersion").and_then(|version| version.split_once('/')).map(|(group, _)| group);
        group == Some(self.group)
            && text("/kind") == Some(self.kind)
            && text("/metadata/namespace") == Some(self.namespace)
            && text("/metadata/name") == Some(self.name)
    }
}

/// Checks a path that a person enters for a manifest.
///
/// # Errors
/// When the path could leave the repository, or name a file that another program reads.
pub fn check_manifest_path(path: &str) -> Result<(), ManifestFileError> {
    let wrong = manifest_path::problem(path);
    let shown = || clean(path, manifest_path::MAX_BYTES);
    wrong.map_or(Ok(()), |problem| Err(ManifestFileError::Path { path: shown(), problem }))
}

/// Checks the paths of the files of one change.
///
/// # Errors
/// When two of them cannot be in one repository. Some file systems do not tell upper and lower case apart.
pub fn check_manifest_paths(paths: &[&str]) -> Result<(), ManifestFileError> {
    for (at, path) in paths.iter().enumerate() {
        check_manifest_path(path)?;
        let lower = path.to_ascii_lowercase();
        let is_below =
            |above: &str, below: &str| below.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        let clashes = paths[..at]
            .iter()
            .map(|other| other.to_ascii_lowercase())
            .any(|other| other == lower || is_below(&other, &lower) || is_below(&lower, &other));
        if clashes {
            let problem = "another file of this change has the same path, or is in the way";
            return Err(ManifestFileError::Path { path: (*path).into(), problem });
        }
    }
    Ok(())
}

/// Returns true if a text has characters that no page shows.
fn has_hidden(text: &str) -> bool {
    text.chars().any(|c| is_unsafe(c) && !matches!(c, '\n' | '\t'))
}

/// Checks that a person who looks at a new document sees all of it.
fn check_visible(path: &str, document: &str) -> Result<(), ManifestFileError> {
    let problem = "its new text has invisible characters: remove them, or write them as escapes";
    match has_hidden(document) {
        true => Err(ManifestFileError::NotEditable { path: path.into(), problem }),
        false => Ok(()),
    }
}

/// Returns the text of a file that must be new, or have this very text already. `document` is the manifest of one of some
/// objects.
///
/// # Errors
/// When the file may not be written.
pub fn new_manifest_file(
    path: &str,
    before: Option<&str>,
    objects: &[ManifestObject<'_>],
    document: &str,
) -> Result<String, ManifestFileError> {
    check_manifest_path(path)?;
    check_visible(path, document)?;
    let parsed = parsed(document).filter(|_| document.ends_with('\n'));
    let object = parsed.and_then(|new| objects.iter().find(|object| object.is(&new)));
    let Some(object) = object else {
        return Err(ManifestFileError::NotEditable { path: path.into(), problem: NO_APPLICATION });
    };
    match before {
        Some(before) if before != document => {
            Err(ManifestFileError::Taken { path: path.into(), object: object.words() })
        }
        _ => Ok(document.into()),
    }
}

/// Returns the whole new text of a file. `before` is its text now, `None` if there is no file. `edited` says whether a
/// document is the object that the person began with; `None` for a new object. The text is the one before if the file has
/// the object as it should be already. `document` is the new manifest, one YAML document.
///
/// # Errors
/// When the file may not be written.
pub fn manifest_file(
    path: &str,
    before: Option<&str>,
    object: ManifestObject<'_>,
    document: &str,
    edited: Option<&dyn Fn(&Value) -> bool>,
) -> Result<String, ManifestFileError> {
    check_manifest_path(path)?;
    check_visible(path, document)?;
    let not_editable = |problem| ManifestFileError::NotEditable { path: path.into(), problem };
    // Without a line break at its end, the mark of the next document would be a part of it.
    let new = parsed(document).filter(|new| object.is(new) && document.ends_with('\n'));
    let new = new.ok_or_else(|| not_editable("the manifest is not one document with this object"))?;
    let Some(before) = before else { return Ok(document.into()) };
    if before.len() > MAX_EDITED_BYTES {
        return Err(not_editable("it has more than 1 MiB"));
    }
    if has_hidden(before) {
        return Err(not_editable("it has invisible characters, such as carriage returns"));
    }
    let parts = documents(before).ok_or_else(|| {
        not_editable("it has YAML directives or the end of a document (...): write documents with --- only")
    })?;
    let texts = parts.iter().map(|part| &before[part.clone()]);
    let values: Option<Vec<Value>> = texts.map(parsed).collect();
    let values = values.ok_or_else(|| not_editable("it is not YAML that Sluice can read"))?;
    let other = || ManifestFileError::OtherContent { path: path.into(), object: object.words() };
    let mut own = parts.iter().zip(&values).filter(|(_, value)| object.is(value));
    let (part, value) = own.next().ok_or_else(other)?;
    if own.next().is_some() {
        return Err(not_editable("it has this object twice"));
    }
    if *value == new {
        return Ok(before.into());
    }
    match edited {
        None => Err(ManifestFileError::Exists { path: path.into(), object: object.words() }),
        Some(is_edited) if !is_edited(value) => {
            Err(ManifestFileError::Changed { path: path.into(), object: object.words() })
        }
        Some(_) => Ok(format!("{}{document}{}", &before[..part.start], &before[part.end..])),
    }
}

/// The documents of a file, without the lines `---` between them; `None` if the file has other marks of documents. In
/// YAML, a line that begins with `---` or `...` is such a mark also within a text of several lines
/// ([YAML 1.2.2, 9.1.2](https://yaml.org/spec/1.2.2/#912-document-markers)).
fn documents(text: &str) -> Option<Vec<std::ops::Range<usize>>> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let is_mark = |mark: &str| {
            line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n']))
        };
        if is_mark("...") || line.starts_with('%') {
            return None;
        }
        if is_mark("---") {
            // Content on the line of the mark would be a part of the document.
            if !line["---".len()..].trim().is_empty() {
                return None;
            }
            parts.push(start..at);
            start = at + line.len();
        }
        at += line.len();
    }
    parts.push(start..at);
    parts.retain(|part| !is_blank(&text[part.clone()]));
    Some(parts)
}

/// Whether a text has only blanks and comments.
fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

fn parsed(document: &str) -> Option<Value> {
    serde_saphyr::from_str(document).ok()
}

#[cfg(test)]
#[path = "manifest_file_tests.rs"]
mod tests;
