//! The fields of an object.

use serde::Serialize;
use serde_json::{Map, Value};

/// The fields of an object.
pub(super) type Fields = Map<String, Value>;

/// Returns the fields of a value; none of what is no object.
pub(super) fn fields(value: Option<&impl Serialize>) -> Fields {
    match value.and_then(|value| serde_json::to_value(value).ok()) {
        Some(Value::Object(fields)) => fields,
        _ => Fields::new(),
    }
}

/// Sets or removes a field.
pub(super) fn set(fields: &mut Fields, name: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(fields.insert(name.into(), value)),
        None => drop(fields.remove(name)),
    }
}
