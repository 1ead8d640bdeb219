//! How many live pages and streams of changes can be open at a time.

use sluice_core::slots::CallerSlots;

/// The most live pages and streams of all people.
const MAX_LIVE: usize = 600;
/// The most live pages and streams of one person, or of all service accounts of a namespace.
const MAX_LIVE_OF_ONE: usize = 20;

/// Returns the slots of live pages and streams. None is taken.
pub(crate) fn live_slots() -> CallerSlots {
    CallerSlots::new(MAX_LIVE, MAX_LIVE_OF_ONE)
}

#[cfg(test)]
mod tests {
    use sluice_core::access::Caller;

    use super::*;

    #[test]
    fn the_pages_of_one_person_do_not_occupy_those_of_others() {
        let slots = live_slots();
        let take = |name: &str| slots.take(&Caller { name: name.into(), ..Caller::default() });
        let taken: Vec<_> = (0..100).filter_map(|_| take("eve")).collect();
        assert_eq!(taken.len(), MAX_LIVE_OF_ONE);
        assert!(take("jane").is_some());
        drop(taken);
        assert!(take("eve").is_some());
        assert!(slots.is_unused(), "closed pages are forgotten");
    }
}
