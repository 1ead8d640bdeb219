//! A limited number of slots, of all holders and of each, so that one holder does not occupy those of others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::access::Caller;

/// The slots. Copies share them.
#[derive(Clone, Debug)]
pub struct Slots<K> {
    most: usize,
    most_of_one: usize,
    /// How many each holder has. Holders without a slot are absent.
    held: Arc<Mutex<HashMap<K, usize>>>,
}

/// A slot. Dropping it releases the slot.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    holder: K,
}

/// The slots of callers, by [`Caller::limit_group`].
pub type CallerSlots = Slots<String>;

/// A slot of a caller.
pub type CallerSlot = Slot<String>;

impl<K: Clone + Eq + Hash> Slots<K> {
    /// Returns this number of slots, of which one holder may have at most `most_of_one`.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, held: Arc::default() }
    }

    /// Returns any number of slots, of which one holder may have at most `most_of_one`.
    pub fn for_each(most_of_one: usize) -> Self {
        Self::new(usize::MAX, most_of_one)
    }

    /// Takes a slot for a holder; `None` if too many are taken.
    pub fn take_for(&self, holder: K) -> Option<Slot<K>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.get(&holder).copied().unwrap_or_default();
        if own >= self.most_of_one || held.values().sum::<usize>() >= self.most {
            return None;
        }
        held.insert(holder.clone(), own + 1);
        Some(Slot { held: self.held.clone(), holder })
    }

    /// Whether no slot is taken.
    pub fn is_unused(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl CallerSlots {
    /// Takes a slot for a caller; `None` if too many are taken.
    pub fn take(&self, caller: &Caller) -> Option<CallerSlot> {
        self.take_for(caller.limit_group().into())
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = held.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_one_holder_are_limited_and_free_again_when_dropped() {
        let slots = Slots::for_each(3);
        let mut busy: Vec<Slot<&str>> = (0..10).map_while(|_| slots.take_for("busy")).collect();
        let quiet = slots.take_for("quiet");
        assert_eq!((busy.len(), quiet.is_some()), (3, true));
        busy.pop();
        busy.extend(slots.take_for("busy"));
        assert!(busy.len() == 3 && slots.take_for("busy").is_none());
        drop((busy, quiet));
        assert!(slots.is_unused(), "holders without a slot are forgotten");
    }
}
