//! Validates what no definition says: `apiVersion`, `kind` and `metadata`, by the rules that an API server has for
//! every object
//! ([objectmeta.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go),
//! `ValidateObjectMetaAccessor`).

use serde_json::Value;

use super::schema::{Problem, unknown};

/// The fields of `metadata`, as `meta/v1` ObjectMeta has them, with their types.
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

/// The most bytes that the keys and values of all annotations may have together (`objectmeta.go`,
/// `TotalAnnotationSizeLimitB`).
const ANNOTATION_BYTES: usize = 256 << 10;

/// The length to which a server shortens `generateName`, and what it may add
/// ([generate.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/storage/names/generate.go)).
const GENERATED_BYTES: usize = 58;
const GENERATED_SUFFIX: &str = "x4k2z";

/// Two finalizers that contradict each other (`objectmeta.go`, `ValidateFinalizers`).
const CONTRADICTION: [&str; 2] = ["orphan", "foregroundDeletion"];

/// Removes labels and annotations without a value, which an API server accepts.
pub(super) fn settle(object: &mut Value) {
    for path in ["/metadata/labels", "/metadata/annotations"] {
        if let Some(texts) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            texts.retain(|_, text| !text.is_null());
        }
    }
}

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
        problem("metadata.name", "is required".into());
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

/// The texts of labels or annotations; what is no text is a problem.
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
        // The case of letters does not matter here, also before the slash.
        if !is_label_key(&key.to_lowercase()) {
            problem(&path, format!("{key:?} is no key of an annotation: {KEY}"));
        }
    }
    if bytes > ANNOTATION_BYTES {
        problem(path, format!("have {bytes} bytes, and {ANNOTATION_BYTES} are the most"));
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

/// What to write in place of a key.
const KEY: &str = "write at most 63 letters, digits, -, _ and ., which begin and end with a letter or digit, after a \
                   domain and / if there is one, as example.com/team";

/// The key of a label: a name, and before it a domain if there is one
/// ([kube.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go),
/// `IsLabelKey`).
fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// The value of a label (`kube.go`, `IsLabelValue`).
fn is_label_value(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= 63
            && text.starts_with(fits)
            && text.ends_with(fits)
            && text.chars().all(|c| fits(c) || matches!(c, '-' | '_' | '.')))
}

/// A DNS label
/// ([dns.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validate/content/dns.go),
/// `IsDNS1123Label`).
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// A DNS subdomain: parts with dots between them. Here a part may be longer than 63 (`dns.go`, `IsDNS1123Subdomain`).
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(fits) && text.ends_with(fits) && text.chars().all(|c| fits(c) || c == '-')
}

/// What a server accepts as `generateName`: it does not look at a dash at the end, nor at the letter before that
/// ([generic.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validation/generic.go),
/// `NameIsDNSSubdomain` and `maskTrailingDash`).
fn is_prefix(text: &str) -> bool {
    match text.strip_suffix('-').filter(|rest| text.is_ascii() && !rest.is_empty()) {
        Some(rest) => is_subdomain(&format!("{}a", &rest[..rest.len() - 1])),
        None => is_subdomain(text),
    }
}

/// Whether the name that a server makes of `generateName` is one.
fn is_generating(text: &str) -> bool {
    text.is_ascii()
        && is_subdomain(&format!("{}{GENERATED_SUFFIX}", &text[..text.len().min(GENERATED_BYTES)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What the test against an API server (`tests/it/validate.rs`) cannot hold: which of several problems are found.
    #[test]
    fn each_problem_is_found_where_it_is() {
        let object = json!({"apiVersion": "a/v1", "kind": "Pipeline", "metadata": {
            "name": "Podinfo", "generateName": "_", "namespace": "a.b", "generation": "1", "lables": {},
            "labels": {"a b": "c d", "e": 1}, "annotations": {"/": ""}, "uid": null,
            "finalizers": ["a b", 7, "orphan", "foregroundDeletion"]}});
        let found = judge(&object, "a/v1");
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
            judge(&json!({"apiVersion": "a/v1", "kind": "Pipeline", "metadata": {"name": "a"}}), "a/v1"),
            []
        );
    }

    #[test]
    fn the_name_that_is_made_counts_and_not_only_its_beginning() {
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
