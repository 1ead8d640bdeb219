//! A small set of objects: thousands of Flux objects have one each, so it takes no more memory than its entries.

use super::object_key::ObjectKey;

/// The objects that a Flux object says it made, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(Box<[ObjectKey]>);

impl Inventory {
    /// Whether an object is in it.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.binary_search(key).is_ok()
    }

    /// Returns the objects, ordered by kind, namespace and name.
    pub fn iter(&self) -> std::slice::Iter<'_, ObjectKey> {
        self.0.iter()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<ObjectKey> for Inventory {
    fn from_iter<I: IntoIterator<Item = ObjectKey>>(keys: I) -> Self {
        let mut keys: Vec<ObjectKey> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        Self(keys.into())
    }
}
