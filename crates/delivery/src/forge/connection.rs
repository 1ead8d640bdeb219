//! What an adapter needs to call its forge for one order.

use std::sync::Arc;

use super::rate_limit::CallPurpose;
use super::shared::ForgeShared;
use crate::address::RepositoryAddress;
use crate::credentials::Credentials;
use crate::fencing::FencingToken;
use crate::order::Order;

/// A repository at a forge, with the credentials of an order.
pub(crate) struct ForgeConnection<'a> {
    pub(super) address: RepositoryAddress,
    pub(super) credentials: &'a Credentials,
    /// Every call that changes something checks this token.
    pub(super) token: FencingToken,
    /// The pipeline, as `namespace/name`, in whose queue calls wait.
    pub(super) pipeline: String,
    /// No call is more urgent.
    pub(super) urgency: CallPurpose,
    pub(super) shared: &'a Arc<ForgeShared>,
}

impl<'a> ForgeConnection<'a> {
    pub(crate) fn new(order: &'a Order, address: RepositoryAddress, shared: &'a Arc<ForgeShared>) -> Self {
        let (credentials, token, pipeline) = (&order.credentials, order.fencing_token.clone(), order.owner());
        ForgeConnection { address, credentials, token, pipeline, urgency: CallPurpose::Step, shared }
    }

    /// The same, for reads that can also be made later: they leave the end of a rate budget to deliveries.
    pub(crate) fn for_looks(self) -> Self {
        ForgeConnection { urgency: CallPurpose::Look, ..self }
    }
}
