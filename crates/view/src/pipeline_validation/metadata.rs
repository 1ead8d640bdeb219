//! Validates the fields that no definition describes: `apiVersion`, `kind` and `metadata`, by the rules of an API server for
//! all objects
//! ([objectmeta.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go),
//! `ValidateObjectMetaAccessor`).

use serde_json::Value;

use super::schema::{SchemaProblem, unknown};
use sluice_core::dns_name::{is_label, is_subdomain};

/// The fields of `metadata` with their types, from ObjectMeta of `meta/v1`.
const FIELDS: [(&str, &str); 15] = [
    ("name", "string"),
    ("generateName", "string"),
    ("namespace", "string"),
    ("selfLink", "string"),
    ("uid", "string"),
    ("resourceVersion", "string"),
    ("generation", "integer"),
    ("creationTimestamp", "string"),
    ("deletionTimestamp", "string"),
    ("deletionGracePeriodSeconds", "integer"),
    ("labels", "object"),
    ("annotations", "object"),
    ("ownerReferences", "array"),
    ("finalizers", "array"),
    ("managedFields", "array"),
];

/// The most bytes of the keys and values of all annotations together (`objectmeta.go`,
/// `TotalAnnotationSizeLimitB`).
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// The length to which an API server shortens `generateName`, and an example of the suffix that it adds
/// ([generate.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/storage/names/generate.go)).
const GENERATED_BYTES: usize = 58;
const GENERATED_SUFFIX: &str = "x4k2z";

/// Two finalizers that contradict each other (`objectmeta.go`, `ValidateFinalizers`).
const CONTRADICTION: [&str; 2] = ["orphan", "foregroundDeletion"];

/// Removes labels and annotations without a value, which an API server ignores.
pub(super) fn normalize(object: &mut Value) {
    for path in ["/metadata/labels", "/metadata/annotations"] {
        if let Some(texts) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            texts.retain(|_, text| !text.is_null());
        }
    }
}

/// Returns the problems for which an API server refuses an object as a Pipeline of this version.
pub(super) fn problems(object: &Value, api_version: &str) -> Vec<SchemaProblem> {
    let mut problems = Vec::new();
    let mut problem =
        |path: &str, message: String| problems.push(SchemaProblem { path: path.into(), message });
    match object["apiVersion"].as_str() {
        Some(found) if found == api_version => {}
        Some(found) => problem("apiVersion", format!("{found} is not served; write {api_version}")),
        None => problem("apiVersion", format!("is required; write {api_version}")),
    }
    if object["kind"] != "Pipeline" {
        problem("kind", "write Pipeline".into());
    }
    let metadata = &object["metadata"];
    names(metadata, &mut problem);
    for (name, value) in metadata.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let path = format!("metadata.{name}");
        let Some((_, kind)) = FIELDS.iter().find(|(field, _)| field == name) else {
            problem(&path, unknown(name, FIELDS.iter().map(|(field, _)| *field)));
            continue;
        };
        if !is_of_type(value, kind) {
            problem(&path, format!("must be of type {kind}"));
            continue;
        }
        match name.as_str() {
            "labels" => labels(&path, value, &mut problem),
            "annotations" => annotations(&path, value, &mut problem),
            "finalizers" => finalizers(&path, value, &mut problem),
            _ => {}
        }
    }
    problems
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "object" => value.is_object(),
        _ => value.is_array(),
    }
}

fn names(metadata: &Value, problem: &mut impl FnMut(&str, String)) {
    let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_none() && prefix.is_none() {
        problem("metadata.name", super::schema::MISSING.into());
    }
    if let Some(name) = name.filter(|name| !is_subdomain(name)) {
        problem(
            "metadata.name",
            format!("{name:?} is no name: write at most 253 lower-case letters, digits, - and ., as podinfo"),
        );
    }
    if let Some(prefix) =
        prefix.filter(|prefix| !is_prefix(prefix) || name.is_none() && !is_generating(prefix))
    {
        problem(
            "metadata.generateName",
            format!(
                "{prefix:?} begins no name: write at most 253 lower-case letters, digits, - and ., as podinfo-"
            ),
        );
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|namespace| !is_label(namespace)) {
        problem(
            "metadata.namespace",
            format!("{namespace:?} is no namespace: write at most 63 lower-case letters, digits and -"),
        );
    }
}

/// Returns the paths, keys and texts of labels or annotations. A value that is no text is a problem.
fn texts<'a>(
    path: &str,
    value: &'a Value,
    problem: &mut impl FnMut(&str, String),
) -> Vec<(String, &'a str, &'a str)> {
    let mut texts = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}[{key}]");
        match value.as_str() {
            Some(text) => texts.push((path, key.as_str(), text)),
            None => problem(&path, "must be of type string: put it in quotes".into()),
        }
    }
    texts
}

fn labels(path: &str, value: &Value, problem: &mut impl FnMut(&str, String)) {
    for (path, key, text) in texts(path, value, problem) {
        if !is_label_key(key) {
            problem(&path, format!("{key:?} is no key of a label: {KEY}"));
        }
        if !is_label_value(text) {
            problem(
                &path,
                format!("{text:?} is no value of a label: write at most 63 letters, digits, -, _ and ."),
            );
        }
    }
}

fn annotations(path: &str, value: &Value, problem: &mut impl FnMut(&str, String)) {
    let mut bytes = 0;
    for (path, key, text) in texts(path, value, problem) {
        bytes += key.len() + text.len();
        // The keys of annotations are case-insensitive, also before the slash.
        if !is_label_key(&key.to_lowercase()) {
            problem(&path, format!("{key:?} is no key of an annotation: {KEY}"));
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        problem(path, format!("have {bytes} bytes; at most {MAX_ANNOTATION_BYTES} are allowed"));
    }
}

fn finalizers(path: &str, value: &Value, problem: &mut impl FnMut(&str, String)) {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, one) in all.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match one.as_str() {
            Some(text) if !is_label_key(text) => problem(&path, format!("{text:?} is no finalizer: {KEY}")),
            Some(_) => {}
            None => problem(&path, "must be of type string: put it in quotes".into()),
        }
    }
    if CONTRADICTION.iter().all(|one| all.iter().any(|found| found == one)) {
        problem(path, format!("{} contradict each other: write one of them", CONTRADICTION.join(" and ")));
    }
}

/// The form of a key, for messages.
const KEY: &str = "write at most 63 letters, digits, -, _ and ., which begin and end with a letter or digit, after a \
                   domain and / if there is one, as example.com/team";

/// Returns true for the key of a label: a name, with or without a domain before it
/// ([kube.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go),
/// `IsLabelKey`).
fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Returns true for the value of a label (`kube.go`, `IsLabelValue`).
fn is_label_value(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= 63
            && text.starts_with(fits)
            && text.ends_with(fits)
            && text.chars().all(|c| fits(c) || matches!(c, '-' | '_' | '.')))
}

/// Returns true if an API server accepts a `generateName`: it ignores a dash at the end and the letter before the dash
/// ([generic.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validation/generic.go),
/// `NameIsDNSSubdomain` and `maskTrailingDash`).
fn is_prefix(text: &str) -> bool {
    match text.strip_suffix('-').filter(|rest| text.is_ascii() && !rest.is_empty()) {
        Some(rest) => is_subdomain(&format!("{}a", &rest[..rest.len() - 1])),
        None => is_subdomain(text),
    }
}

/// Returns true if the name that an API server makes from `generateName` is valid.
fn is_generating(text: &str) -> bool {
    text.is_ascii()
        && is_subdomain(&format!("{}{GENERATED_SUFFIX}", &text[..text.len().min(GENERATED_BYTES)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The test against an API server (`tests/it/validate.rs`) does not check which of several problems are found.
    #[test]
    fn each_problem_is_found_at_its_path() {
        let object = json!({"apiVersion": "a/v1", "kind": "Pipeline", "metadata": {
            "name": "Podinfo", "generateName": "_", "namespace": "a.b", "generation": "1", "lables": {},
            "labels": {"a b": "c d", "e": 1}, "annotations": {"/": ""}, "uid": null,
            "finalizers": ["a b", 7, "orphan", "foregroundDeletion"]}});
        let found = problems(&object, "a/v1");
        let mut paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            [
                "metadata.annotations[/]",
                "metadata.finalizers",
                "metadata.finalizers[0]",
                "metadata.finalizers[1]",
                "metadata.generateName",
                "metadata.generation",
                "metadata.labels[a b]",
                "metadata.labels[a b]",
                "metadata.labels[e]",
                "metadata.lables",
                "metadata.name",
                "metadata.namespace",
            ]
        );
        assert_eq!(
            problems(&json!({"apiVersion": "a/v1", "kind": "Pipeline", "metadata": {"name": "a"}}), "a/v1"),
            []
        );
    }

    #[test]
    fn the_generated_name_is_checked_and_not_only_its_prefix() {
        for (text, begins, makes) in [
            ("podinfo-", true, true),
            ("podinfo_-", true, false),
            ("podinfo.-", true, false),
            ("-", false, false),
            ("a-", true, true),
            ("é-", false, false),
            (&"x".repeat(253), true, true),
            (&"x".repeat(254), false, true),
            (&format!("{}_-", "x".repeat(57)), true, false),
            (&format!("{}_-", "x".repeat(58)), true, true),
        ] {
            assert_eq!((is_prefix(text), is_generating(text)), (begins, makes), "{text}");
        }
    }
}
