//! Reads the Pipelines to validate from files, folders or stdin.

use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;
use sluice_core::nearest::nearest;

use crate::checkout::{read_failure, yaml_files};
use crate::exit::{Exit, Failure, Outcome};

/// A document that is meant as a Pipeline.
#[derive(Debug)]
pub(super) struct Document {
    /// The file of the document.
    pub source: String,
    pub object: Value,
}

/// The documents of the files that were read.
#[derive(Debug, Default)]
pub(super) struct ManifestSet {
    pub documents: Vec<Document>,
    /// A sentence about each other document that may be meant as a Pipeline.
    pub others: Vec<String>,
}

/// Reads the Pipelines of a file, of a folder, or of stdin if the source is `-`.
pub(super) fn pipelines(source: &str, found: &mut ManifestSet) -> Outcome {
    if source == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|e| read_failure("stdin", &e))?;
        return of_text("stdin", &text, true, found);
    }
    let path = Path::new(source);
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).map_err(|e| read_failure(source, &e))?;
        return of_text(source, &text, true, found);
    }
    for file in yaml_files(path)? {
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        of_text(&path.join(&file.path).display().to_string(), &text, false, found)?;
    }
    Ok(())
}

/// Adds the Pipelines of a text. With `must_parse`, a text that is no YAML is an error. A folder may also have templates.
fn of_text(source: &str, text: &str, must_parse: bool, found: &mut ManifestSet) -> Outcome {
    // kubectl also uses the last of two equal keys.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    match serde_saphyr::from_multiple_with_options::<Value>(text, options) {
        Ok(objects) => {
            for object in objects.into_iter().flat_map(items) {
                match other(source, &object) {
                    None => found.documents.push(Document { source: source.into(), object }),
                    Some(Other::Ignored) => {}
                    Some(Other::Suspicious(sentence)) => found.others.push(sentence),
                }
            }
            Ok(())
        }
        Err(error) => {
            let error = error.to_string();
            let sentence = format!("{source} is not YAML: {}", error.lines().next().unwrap_or_default());
            if must_parse {
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
    /// The object may be meant as a Pipeline. The text is a sentence that says why.
    Suspicious(String),
}

/// Returns why an object is not validated; `None` for a Pipeline of Sluice, also with a misspelled `apiVersion` or `kind`.
fn other(source: &str, object: &Value) -> Option<Other> {
    let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str());
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let is_pipeline = kind.is_some_and(|kind| ["pipeline", "pipelines"].contains(&&*kind.to_lowercase()));
    let is_near = nearest(group, [sluice_api::GROUP].into_iter()).is_some() || group.ends_with("weave.works");
    match kind {
        _ if is_pipeline && (is_near || version.is_empty()) => None,
        None if group == sluice_api::GROUP => None,
        Some(kind) if is_pipeline => Some(Other::Suspicious(format!(
            "{source} has a {kind} of {version}, not of {}",
            sluice_api::GROUP
        ))),
        _ => Some(Other::Ignored),
    }
}

/// Returns the objects of a List, or the object itself if it is no List.
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
