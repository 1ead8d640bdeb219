//! Texts in the JSON of forges.

use serde_json::Value;

/// A text.
pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().map(String::from)
}

/// The texts of a list, or those that the objects in it have under `key`.
pub(super) fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|one| text(one).or(text(&one[key]))).collect()
}

/// A title without the prefix by which its forge recognizes drafts, and whether it had such a prefix.
pub(super) fn without_prefix<'a>(title: &'a str, prefixes: &[&str]) -> (&'a str, bool) {
    let begins = |prefix: &&&str| title.get(..prefix.len()).is_some_and(|t| t.eq_ignore_ascii_case(prefix));
    match prefixes.iter().find(begins) {
        Some(prefix) => (title[prefix.len()..].trim_start(), true),
        None => (title, false),
    }
}
