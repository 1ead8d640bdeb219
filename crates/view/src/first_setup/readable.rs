//! An object as YAML that people read: on a page, in a form and in a repository.

use serde_json::Value;
use sluice_core::value_check::is_unsafe;

use crate::ordered::Ordered;
use crate::yaml::raw_yaml;

/// Returns an object as YAML, with texts of several lines as blocks if they can be; `None` if it cannot be written without
/// a change and without invisible characters.
pub(super) fn readable(object: &Value) -> Option<String> {
    let is_same = |text: &String| serde_saphyr::from_str::<Value>(text).is_ok_and(|read| read == *object);
    let texts =
        [true, false].into_iter().filter_map(|with_blocks| raw_yaml(&Ordered(object), with_blocks).ok());
    texts.into_iter().find(|text| !text.contains(is_invisible) && is_same(text))
}

/// Whether an object has invisible characters, or characters that reorder a text. Pages leave them out, so that the files would
/// differ from the object.
pub(super) fn has_invisible(object: &Value) -> bool {
    let is_bad = |text: &str| text.contains(|c| is_invisible(c) && c != '\r');
    match object {
        Value::String(text) => is_bad(text),
        Value::Array(items) => items.iter().any(has_invisible),
        Value::Object(fields) => fields.iter().any(|(key, value)| is_bad(key) || has_invisible(value)),
        _ => false,
    }
}

fn is_invisible(c: char) -> bool {
    !matches!(c, '\n' | '\t') && is_unsafe(c)
}
