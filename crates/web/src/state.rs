//! What the API and the pages need.

use std::sync::Arc;

use sluice_core::fleet::index::Fleet;

use crate::board::Boards;
use crate::caller_budgets::CallerBudgets;
use crate::fleet_versions::VersionRows;
use crate::hub::Hub;
use crate::live_slots::LiveSlots;
use crate::session::Sessions;

/// What the API and the pages need.
#[derive(Clone)]
pub struct Api<H> {
    pub(crate) hub: H,
    pub(crate) fleet: Fleet,
    pub(crate) budgets: CallerBudgets,
    pub(crate) rows: VersionRows,
    pub(crate) boards: Boards,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) live: LiveSlots,
    /// Whether people can change something from the pages.
    pub(crate) actions: bool,
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
            live: LiveSlots::default(),
            actions,
        }
    }
}
