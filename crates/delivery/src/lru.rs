//! A map with a limit on what it holds: beyond it, what was used longest ago is dropped.

use std::collections::{BTreeMap, HashMap};

/// Values by name, each with a weight in a unit of the owner's choice (entries, bytes). They weigh at most `LIMIT`
/// together.
#[derive(Debug)]
pub(crate) struct Lru<V, const LIMIT: usize> {
    entries: HashMap<String, LruEntry<V>>,
    /// The names in the order of their last use, oldest first.
    order: BTreeMap<u64, String>,
    uses: u64,
    weight: usize,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<V, const LIMIT: usize> Default for Lru<V, LIMIT> {
    fn default() -> Self {
        Lru { entries: HashMap::new(), order: BTreeMap::new(), uses: 0, weight: 0 }
    }
}

impl<V, const LIMIT: usize> Lru<V, LIMIT> {
    /// Returns the value of a name, which counts as a use.
    pub(crate) fn get(&mut self, name: &str) -> Option<&mut V> {
        let entry = self.entries.get_mut(name)?;
        self.uses += 1;
        let kept = self.order.remove(&entry.used).unwrap_or_else(|| name.to_string());
        entry.used = self.uses;
        self.order.insert(self.uses, kept);
        Some(&mut entry.value)
    }

    /// Sets the value of a name. One that is heavier than the limit is not kept.
    pub(crate) fn insert(&mut self, name: String, value: V, weight: usize) {
        self.remove(&name);
        if weight > LIMIT {
            return;
        }
        self.uses += 1;
        self.order.insert(self.uses, name.clone());
        self.entries.insert(name, LruEntry { value, weight, used: self.uses });
        self.weight += weight;
        while self.weight > LIMIT {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.forget(&oldest);
        }
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(used) = self.forget(name) {
            self.order.remove(&used);
        }
    }

    fn forget(&mut self, name: &str) -> Option<u64> {
        let entry = self.entries.remove(name)?;
        self.weight -= entry.weight;
        Some(entry.used)
    }

    /// Keeps the values that `keep` returns true for.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        let dropped = self.entries.iter().filter(|(_, entry)| !keep(&entry.value));
        let dropped: Vec<String> = dropped.map(|(name, _)| name.clone()).collect();
        dropped.iter().for_each(|name| self.remove(name));
    }

    /// Returns the names with their values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.entries.iter().map(|(name, entry)| (name, &entry.value))
    }
}

impl<V: Clone + Default, const LIMIT: usize> Lru<V, LIMIT> {
    /// Returns the value of a name; a default one of weight 1 is made if there is none.
    pub(crate) fn or_default(&mut self, name: String) -> V {
        if let Some(value) = self.get(&name) {
            return value.clone();
        }
        let value = V::default();
        self.insert(name, value.clone(), 1);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lru: &Lru<u32, 3>) -> Vec<&str> {
        let mut names: Vec<&str> = lru.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_least_recently_used_is_dropped() {
        let mut lru = Lru::default();
        for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
            lru.insert(name.into(), value, 1);
        }
        assert_eq!(lru.get("a"), Some(&mut 1));
        lru.insert("d".into(), 4, 1);
        assert_eq!(names(&lru), ["a", "c", "d"]);
        lru.insert("c".into(), 5, 1);
        lru.insert("e".into(), 6, 2);
        assert_eq!(names(&lru), ["c", "e"]);
        assert_eq!(lru.get("c"), Some(&mut 5));
        // Too heavy on its own: it drops nothing else, and is not kept.
        lru.insert("f".into(), 7, 4);
        assert_eq!(names(&lru), ["c", "e"]);
        lru.retain(|value| *value == 5);
        assert_eq!((names(&lru), lru.weight, lru.order.len()), (vec!["c"], 1, 1));
        lru.remove("c");
        assert_eq!((lru.weight, lru.order.len(), lru.get("c")), (0, 0, None));
    }
}
