//! A limited number of slots, of all callers and of each, so that one caller does not occupy those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::access::Caller;

/// The slots. Copies share them.
#[derive(Clone, Debug)]
pub struct CallerSlots {
    most: usize,
    most_of_one: usize,
    /// How many each limit group holds. Groups without a slot are absent.
    held: Arc<Mutex<HashMap<String, usize>>>,
}

/// A slot of a caller. Dropping it releases the slot.
#[derive(Debug)]
pub struct CallerSlot {
    slots: CallerSlots,
    group: String,
}

impl CallerSlots {
    /// Returns this number of slots, of which one caller, or the service accounts of one namespace, may hold at most
    /// `most_of_one`.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, held: Arc::default() }
    }

    /// Takes a slot for a caller; `None` if too many are taken.
    pub fn take(&self, caller: &Caller) -> Option<CallerSlot> {
        let group = caller.limit_group();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.get(group).copied().unwrap_or_default();
        if own >= self.most_of_one || held.values().sum::<usize>() >= self.most {
            return None;
        }
        held.insert(group.into(), own + 1);
        Some(CallerSlot { slots: self.clone(), group: group.into() })
    }

    /// Whether no slot is taken.
    pub fn is_unused(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        let mut held = self.slots.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = held.get_mut(&self.group) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.group);
            }
        }
    }
}
