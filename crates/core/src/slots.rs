//! Slots, limited for all holders together and for each holder, so that one holder does not take the slots of others. A
//! holder gets no slot if it would then have more than are left: three holders that take all they can get have a quarter
//! each, and a quarter is left. Service accounts have slots apart from those of people, because everybody who may create
//! namespaces can have any number of service accounts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::access::Caller;
use crate::lock::lock;

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

/// A slot of a caller.
pub type CallerSlot = Slot<String>;

/// Something for people, and the same for service accounts.
#[derive(Clone, Debug)]
pub struct ByCallerKind<T> {
    people: T,
    service_accounts: T,
}

impl<T> ByCallerKind<T> {
    /// Makes both.
    pub fn new(make: impl Fn() -> T) -> Self {
        Self { people: make(), service_accounts: make() }
    }

    /// Returns what is for callers of this kind.
    pub fn of(&self, caller: &Caller) -> &T {
        if caller.is_service_account() { &self.service_accounts } else { &self.people }
    }
}

/// The slots of callers, by [`Caller::limit_group`]: some of people, and as many of service accounts.
#[derive(Clone, Debug)]
pub struct CallerSlots(ByCallerKind<Slots<String>>);

impl<K: Clone + Eq + Hash> Slots<K> {
    /// Returns this number of slots, of which one holder may have at most `most_of_one`.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, held: Arc::default() }
    }

    /// Returns any number of slots, of which one holder may have at most `most_of_one`.
    pub fn for_each(most_of_one: usize) -> Self {
        Self::new(usize::MAX, most_of_one)
    }

    /// Takes a slot for a holder; `None` if it has its share.
    pub fn take_for(&self, holder: K) -> Option<Slot<K>> {
        let mut held = lock(&self.held);
        let own = held.get(&holder).copied().unwrap_or_default();
        let left = self.most - held.values().sum::<usize>();
        if own >= self.most_of_one || own >= left {
            return None;
        }
        held.insert(holder.clone(), own + 1);
        Some(Slot { held: self.held.clone(), holder })
    }

    /// Whether no slot is taken.
    pub fn is_unused(&self) -> bool {
        lock(&self.held).is_empty()
    }
}

impl CallerSlots {
    /// Returns this number of slots for people, and as many for service accounts. One caller may have at most
    /// `most_of_one`.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self(ByCallerKind::new(|| Slots::new(most, most_of_one)))
    }

    /// Takes a slot for a caller; `None` if it has its share.
    pub fn take(&self, caller: &Caller) -> Option<CallerSlot> {
        self.0.of(caller).take_for(caller.limit_group().into())
    }

    /// Whether no slot is taken.
    pub fn is_unused(&self) -> bool {
        self.0.people.is_unused() && self.0.service_accounts.is_unused()
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
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
    fn holders_that_take_all_they_can_get_leave_some_to_the_next() {
        for busy in 1..20 {
            let slots = Slots::new(32, 32);
            let taken: Vec<Slot<usize>> = (0..1000).filter_map(|n| slots.take_for(n % busy)).collect();
            let next: Vec<Slot<usize>> = (0..1000).map_while(|_| slots.take_for(busy)).collect();
            let least = (32 / (2 * (busy + 1))).max(1);
            assert!(next.len() >= least, "{} of 32 beside {busy}", next.len());
            assert!(taken.len() + next.len() <= 32);
        }
    }

    #[test]
    fn service_accounts_of_many_namespaces_take_no_slots_of_people() {
        let slots = CallerSlots::new(4, 2);
        let take = |name: String| slots.take(&Caller { name, ..Caller::default() });
        let robots: Vec<CallerSlot> =
            (0..100).filter_map(|n| take(format!("system:serviceaccount:team-{n}:robot"))).collect();
        let people: Vec<CallerSlot> = (0..100).filter_map(|n| take(format!("person-{n}"))).collect();
        assert_eq!((robots.len(), people.len()), (4, 4));
        drop((robots, people));
        assert!(slots.is_unused());
    }

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
