//! Fields that are left out of the JSON when they have their default.

/// Returns true for the default of a field, which is not serialized.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
