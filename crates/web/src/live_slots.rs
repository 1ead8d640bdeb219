//! How many live pages are open at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::access::Caller;

/// The most live pages of all people.
const MAX_LIVE: usize = 1000;
/// The most live pages of one person, or of all service accounts of a namespace.
const MAX_LIVE_OF_ONE: usize = 20;

/// The live pages of each person.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveSlots(Arc<Mutex<HashMap<String, usize>>>);

/// A live page. It ends when this is dropped.
pub(crate) struct LiveSlot {
    slots: LiveSlots,
    caller: String,
}

impl LiveSlots {
    /// Opens a live page of a person; `None` if too many are open.
    pub(crate) fn take(&self, caller: &Caller) -> Option<LiveSlot> {
        let caller = caller.limit_group();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (open.values().sum::<usize>(), open.get(caller).copied().unwrap_or_default());
        if all >= MAX_LIVE || own >= MAX_LIVE_OF_ONE {
            return None;
        }
        open.insert(caller.into(), own + 1);
        Some(LiveSlot { slots: self.clone(), caller: caller.into() })
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        let mut open = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.into(), ..Caller::default() }
    }

    #[test]
    fn the_pages_of_one_person_do_not_occupy_those_of_others() {
        let slots = LiveSlots::default();
        let taken: Vec<_> = (0..100).filter_map(|_| slots.take(&caller("eve"))).collect();
        assert_eq!(taken.len(), MAX_LIVE_OF_ONE);
        assert!(slots.take(&caller("jane")).is_some());
        drop(taken);
        assert!(slots.take(&caller("eve")).is_some());
        assert!(slots.0.lock().unwrap().is_empty(), "closed pages are forgotten");
    }
}
