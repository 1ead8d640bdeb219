//! Reads what is to be validated: Pipelines from files, folders or stdin, and the files of a checkout.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::exit::{Exit, Failure, Outcome};
use crate::suggest::nearest;

/// A document that says that it is a Pipeline.
#[derive(Debug)]
pub(super) struct Document {
    /// The file that it is from.
    pub source: String,
    pub object: Value,
}

/// Larger files are nobody's values.
const LARGEST: u64 = 4 << 20;

/// What was found in files.
#[derive(Debug, Default)]
pub(super) struct ManifestSet {
    pub documents: Vec<Document>,
    /// What else could have been meant as a Pipeline: a sentence each.
    pub others: Vec<String>,
}

/// Reads the Pipelines of a file, of a folder, or of stdin if the source is `-`.
pub(super) fn pipelines(source: &str, found: &mut ManifestSet) -> Outcome {
    if source == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|e| unread("stdin", &e))?;
        return of_text("stdin", &text, true, found);
    }
    let path = Path::new(source);
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).map_err(|e| unread(source, &e))?;
        return of_text(source, &text, true, found);
    }
    for file in yaml_files(path)? {
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        of_text(&path.join(&file.path).display().to_string(), &text, false, found)?;
    }
    Ok(())
}

/// Adds the Pipelines of a text. `meant` says that it must be readable: a folder also holds templates.
fn of_text(source: &str, text: &str, meant: bool, found: &mut ManifestSet) -> Outcome {
    // As kubectl reads it.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    match serde_saphyr::from_multiple_with_options::<Value>(text, options) {
        Ok(objects) => {
            for object in objects.into_iter().flat_map(items) {
                match other(source, &object) {
                    None => found.documents.push(Document { source: source.into(), object }),
                    Some(Other::Ignored) => {}
                    Some(Other::Told(sentence)) => found.others.push(sentence),
                }
            }
            Ok(())
        }
        Err(error) => {
            let error = error.to_string();
            let sentence = format!("{source} is not YAML: {}", error.lines().next().unwrap_or_default());
            if meant {
                return Err(Failure::new(Exit::Invalid, sentence));
            }
            if text.contains(sluice_api::GROUP) {
                found.others.push(sentence);
            }
            Ok(())
        }
    }
}

/// An object that is not validated.
enum Other {
    Ignored,
    /// It was possibly meant as a Pipeline: what it is.
    Told(String),
}

/// Returns what an object is that is no Pipeline of Sluice. An object that was plainly meant as one, with a slip in
/// its `apiVersion` or `kind`, is validated.
fn other(source: &str, object: &Value) -> Option<Other> {
    let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str());
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let is_pipeline = kind.is_some_and(|kind| ["pipeline", "pipelines"].contains(&&*kind.to_lowercase()));
    let is_near = nearest(group, [sluice_api::GROUP].into_iter()).is_some() || group.ends_with("weave.works");
    match kind {
        _ if is_pipeline && (is_near || version.is_empty()) => None,
        None if group == sluice_api::GROUP => None,
        Some(kind) if is_pipeline => {
            Some(Other::Told(format!("{source} has a {kind} of {version}, not of {}", sluice_api::GROUP)))
        }
        _ => Some(Other::Ignored),
    }
}

/// The objects of a List; another object is itself.
fn items(object: Value) -> Vec<Value> {
    match object {
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        object => vec![object],
    }
}

fn unread(source: &str, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Error };
    Failure::new(exit, format!("cannot read {source}: {error}"))
}

/// A YAML file of a checkout.
#[derive(Debug)]
pub(super) struct File {
    /// From the checkout's root, with `/` between its parts.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// The YAML files below a folder, in the order of their paths: what git would hold. Links are not
/// followed.
pub(super) fn yaml_files(root: &Path) -> Outcome<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        let entries = std::fs::read_dir(&place).map_err(|e| unread(&place.display().to_string(), &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| unread(&place.display().to_string(), &e))?;
            let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
            let name = path.to_string_lossy().into_owned();
            if kind.is_dir() && entry.file_name() != ".git" {
                folders.push(path);
            } else if kind.is_file()
                && (name.ends_with(".yaml") || name.ends_with(".yml"))
                && entry.metadata()?.len() <= LARGEST
            {
                let file = root.join(&path);
                let bytes = std::fs::read(&file).map_err(|e| unread(&file.display().to_string(), &e))?;
                files.push(File { path: name, bytes });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
