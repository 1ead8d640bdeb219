//! What the server of a stand-in has.

use std::sync::{Arc, Mutex};

use sluice_delivery::ForgeKind;
use sluice_testkit::Repo;
use sluice_testkit::api_description::CallChecker;

use super::forge_api::ForgeApi;
use super::forge_state::ForgeState;

/// The server of a stand-in.
#[derive(Clone)]
pub(super) struct StandInServer {
    pub(super) kind: ForgeKind,
    pub(super) api: Arc<dyn ForgeApi>,
    pub(super) repo: Repo,
    pub(super) git: String,
    pub(super) forge_state: Arc<Mutex<ForgeState>>,
    pub(super) checker: Arc<CallChecker>,
}
