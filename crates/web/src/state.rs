//! What the API and the pages need.

use std::sync::Arc;

use sluice_core::fleet::index::Fleet;
use sluice_core::slots::CallerSlots;

use crate::board::Boards;
use crate::caller_budgets::CallerBudgets;
use crate::fleet_versions::VersionRows;
use crate::hub::Hub;
use crate::session::Sessions;
use crate::sign_in_link::SignInLink;

/// The most live pages and streams of all people.
const MAX_LIVE: usize = 1000;
/// The most of one person, or of all service accounts of a namespace.
const MAX_LIVE_OF_ONE: usize = 20;

/// What the API and the pages need.
#[derive(Clone)]
pub struct Api<H> {
    pub(crate) hub: H,
    pub(crate) fleet: Fleet,
    pub(crate) budgets: CallerBudgets,
    pub(crate) rows: VersionRows,
    pub(crate) boards: Boards,
    pub(crate) sessions: Arc<Sessions>,
    /// The open live pages and streams.
    pub(crate) live: CallerSlots,
    /// Whether people can change something from the pages.
    pub(crate) actions: bool,
    /// How the only user of this server signs in; `None` if everybody signs in with a token of the hub.
    pub(crate) sign_in_link: Option<Arc<SignInLink>>,
}

impl<H: Hub> Api<H> {
    /// Returns an API about a fleet and the objects of a hub. With `actions`, people can change objects from the pages, in
    /// their own name.
    pub fn new(fleet: Fleet, hub: H, actions: bool) -> Self {
        Api {
            hub,
            fleet,
            budgets: CallerBudgets::default(),
            rows: VersionRows::default(),
            boards: Boards::default(),
            sessions: Arc::default(),
            live: live_slots(),
            actions,
            sign_in_link: None,
        }
    }

    /// Lets the only user of this server sign in by opening `/sign-in/link/{code}` once, instead of with a token. The hub
    /// identifies the user by `token`.
    #[must_use]
    pub fn with_sign_in_link(self, code: String, token: String) -> Self {
        Api { sign_in_link: Some(Arc::new(SignInLink::new(code, token))), ..self }
    }
}

fn live_slots() -> CallerSlots {
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
