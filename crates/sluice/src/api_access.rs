//! Connects the API's question who may see what to the hub's API server.

use kube::Client;
use sluice_controller::access::AccessReviews;
use sluice_core::access::{AccessError, Caller, ReadRight};
use sluice_web::Access;

/// The answers of the hub's API server.
#[derive(Clone)]
pub struct HubAccess(AccessReviews);

impl HubAccess {
    pub fn new(hub: Client) -> Self {
        HubAccess(AccessReviews::new(hub))
    }
}

impl Access for HubAccess {
    async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        self.0.identify(token).await
    }

    async fn allows(&self, caller: &Caller, right: &ReadRight) -> Result<bool, AccessError> {
        self.0.allows(caller, right).await
    }
}
