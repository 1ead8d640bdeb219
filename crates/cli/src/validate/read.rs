//! Reads what is to be validated: Pipelines from files, folders or stdin, and the files of a checkout.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::exit::{Exit, Failure, Outcome};

/// A document that says that it is a Pipeline.
#[derive(Debug)]
pub(super) struct Document {
    /// The file that it is from.
    pub source: String,
    pub object: Value,
}

/// Larger files are nobody's values.
const LARGEST: u64 = 4 << 20;

/// The Pipelines of a file, a folder, or of stdin where it is called `-`.
pub(super) fn pipelines(source: &str) -> Outcome<Vec<Document>> {
    if source == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|e| unread("stdin", &e))?;
        return of_text("stdin", &text, true);
    }
    let path = Path::new(source);
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).map_err(|e| unread(source, &e))?;
        return of_text(source, &text, true);
    }
    let mut found = Vec::new();
    for file in yaml_files(path)? {
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        found.extend(of_text(&path.join(&file.path).display().to_string(), &text, false)?);
    }
    Ok(found)
}

/// The Pipelines of a text. `meant` says that it must be readable: in a folder there are templates, too.
fn of_text(source: &str, text: &str, meant: bool) -> Outcome<Vec<Document>> {
    let is_pipeline = |object: &Value| {
        let group = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map(|(group, _)| group);
        group == Some(sluice_api::GROUP) && object["kind"] == "Pipeline"
    };
    // As kubectl reads it.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    match serde_saphyr::from_multiple_with_options::<Value>(text, options) {
        Ok(objects) => {
            let objects = objects.into_iter().flat_map(items).filter(is_pipeline);
            Ok(objects.map(|object| Document { source: source.into(), object }).collect())
        }
        Err(error) if meant => Err(Failure::new(Exit::Invalid, format!("{source} is not YAML: {error}"))),
        Err(_) => Ok(Vec::new()),
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
