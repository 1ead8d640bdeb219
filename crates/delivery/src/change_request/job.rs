//! What every step of a delivery by change request needs.

use tokio::sync::OnceCell;

use crate::error::DeliveryResult;
use crate::forge::Forge;
use crate::forge_kind::ForgeKind;
use crate::git::LockedRepository;
use crate::order::{DeliveryStrategy, Order, Settings};
use crate::resources::Resources;

/// Where a change request goes, and what it should look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRequestTarget<'a> {
    pub(crate) kind: ForgeKind,
    pub(crate) url: &'a str,
    pub(crate) base: &'a str,
    pub(crate) settings: &'a Settings,
}

/// An order that is delivered by change request, with its forge.
pub(crate) struct ChangeRequestJob<'a> {
    pub(super) resources: &'a Resources,
    pub(super) order: &'a Order,
    pub(super) target: ChangeRequestTarget<'a>,
    pub(super) forge: Box<dyn Forge>,
    /// The head branch.
    pub(super) branch: String,
    /// The user of the credentials, once it was read ([`Forge::own_user`]).
    pub(super) own_user: OnceCell<Option<String>>,
}

impl<'a> ChangeRequestJob<'a> {
    pub(crate) fn new(
        resources: &'a Resources,
        order: &'a Order,
        target: ChangeRequestTarget<'a>,
    ) -> DeliveryResult<Self> {
        let forge = resources.forge(order, target.kind, target.url)?;
        let (branch, own_user) = (order.branch(), OnceCell::new());
        Ok(ChangeRequestJob { resources, order, target, forge, branch, own_user })
    }

    /// The job of an order; `None` if the order is not delivered by change request.
    pub(crate) fn of(resources: &'a Resources, order: &'a Order) -> DeliveryResult<Option<Self>> {
        let DeliveryStrategy::PullRequest { forge, url, base, settings } = &order.strategy else {
            return Ok(None);
        };
        let target = ChangeRequestTarget { kind: *forge, url, base, settings };
        Self::new(resources, order, target).map(Some)
    }

    /// Waits for the cache of the repository.
    pub(super) async fn lock(&self) -> DeliveryResult<LockedRepository<'a>> {
        self.resources.lock(self.order, self.target.url, None).await
    }

    /// Waits for the cache of the repository; a fetch also brings the head branch.
    pub(super) async fn lock_with_head(&self) -> DeliveryResult<LockedRepository<'a>> {
        let head = (self.target.base, self.branch.as_str());
        self.resources.lock(self.order, self.target.url, Some(head)).await
    }
}
