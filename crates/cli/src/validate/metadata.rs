//! Validates what no definition says: `apiVersion`, `kind` and `metadata`, by the rules that an API server has for
//! every object (kubernetes.io, "Object Names and IDs" and "Labels and Selectors").

use serde_json::Value;

use super::schema::{Problem, unknown};

/// The fields of `metadata`, as `meta/v1` ObjectMeta has them.
const FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Returns what an API server refuses about an object that is to be a Pipeline of this version.
pub(super) fn judge(object: &Value, api_version: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |path: &str, message: String| problems.push(Problem { path: path.into(), message });
    match object["apiVersion"].as_str() {
        Some(found) if found == api_version => {}
        Some(found) => problem("apiVersion", format!("{found} is not served; write {api_version}")),
        None => problem("apiVersion", format!("is required; write {api_version}")),
    }
    if object["kind"] != "Pipeline" {
        problem("kind", "write Pipeline".into());
    }
    let metadata = &object["metadata"];
    match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
        (Some(name), _) if !is_subdomain(name) => problem(
            "metadata.name",
            format!("{name:?} is no name: write at most 253 lower-case letters, digits, - and ., as podinfo"),
        ),
        (None, None) => problem("metadata.name", "is required".into()),
        _ => {}
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|namespace| !is_label(namespace)) {
        problem(
            "metadata.namespace",
            format!("{namespace:?} is no namespace: write at most 63 lower-case letters, digits and -"),
        );
    }
    for (name, value) in metadata.as_object().into_iter().flatten() {
        match name.as_str() {
            name if !FIELDS.contains(&name) => {
                problem(&format!("metadata.{name}"), unknown(name, FIELDS.into_iter()));
            }
            "name" | "generateName" | "namespace" if !value.is_string() => {
                problem(&format!("metadata.{name}"), "must be of type string".into());
            }
            "labels" | "annotations" => {
                for (key, text) in value.as_object().into_iter().flatten() {
                    let path = format!("metadata.{name}[{key}]");
                    match text.as_str() {
                        None => problem(&path, "must be of type string: put it in quotes".into()),
                        Some(text) if name == "labels" && !is_label_value(text) => problem(
                            &path,
                            format!(
                                "{text:?} is no value of a label: write at most 63 letters, digits, -, _ and ."
                            ),
                        ),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    problems
}

fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.starts_with(fits)
        && text.ends_with(fits)
        && text.chars().all(|c| fits(c) || c == '-')
}

/// A DNS subdomain (RFC 1123): parts with dots between them. Here a part may be longer than 63.
fn is_subdomain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(fits) && part.ends_with(fits) && part.chars().all(|c| fits(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_label_value(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= 63
            && text.starts_with(fits)
            && text.ends_with(fits)
            && text.chars().all(|c| fits(c) || matches!(c, '-' | '_' | '.')))
}
