//! Parts of the schemas that several types share.

/// The schema of a time. It is a pattern and not a format, because an API server accepts lists for a text with a format.
pub(crate) fn date_time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let pattern =
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$";
    schemars::json_schema!({ "type": "string", "pattern": pattern })
}

/// Returns true for the default of a field, which is not serialized.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
