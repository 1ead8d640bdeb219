//! Parts of the schemas that several types share.

/// Returns true for the default of a field, which is not serialized.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
