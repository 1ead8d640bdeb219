//! The entry to this crate: one [`Delivery`] for the whole process, shared by all pipelines.

use std::sync::Arc;
use std::time::Instant;

use sluice_core::planned_change::PlannedChange;

use crate::change_request::{ChangeRequestTarget, merge, propose, report_status, status, withdraw};
use crate::error::DeliveryError;
use crate::forge::PromotionProgress;
use crate::notification::{NotificationError, ProgressEvent};
use crate::options::DeliveryOptions;
use crate::order::{DeliveryStrategy, Order};
use crate::outcome::{ChangeRequest, ChangeRequestLook, ChangeRequestStatus, Delivered};
use crate::planned_change::{self, delivered_change, planned_change};
use crate::resources::Resources;
use crate::stats::Stats;
use crate::{direct_commit, lost_commit};

/// Delivers promotions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delivery(Arc<Resources>);

impl Delivery {
    /// Makes the folder for caches if it does not exist.
    ///
    /// # Errors
    /// When that folder, or the folder for credentials, cannot be made.
    pub fn new(options: DeliveryOptions) -> Result<Self, DeliveryError> {
        Ok(Delivery(Arc::new(Resources::new(options)?)))
    }

    /// Delivers an order, or finds that it was delivered. Running it again is harmless.
    ///
    /// # Errors
    /// When the order is not delivered. The error says when to try again.
    pub async fn deliver(&self, order: &Order) -> Result<Delivered, DeliveryError> {
        let (resources, began) = (&*self.0, Instant::now());
        match &order.strategy {
            DeliveryStrategy::PullRequest { forge, url, base, settings } => {
                let _turn = resources.lock_branch(order, url, &order.branch()).await;
                let authorized = resources.with_app_token(order).await?;
                let target = ChangeRequestTarget { kind: *forge, url, base, settings };
                let delivered = propose::deliver(resources, &authorized, target, began).await;
                resources.drop_rejected_token(order, delivered)
            }
            DeliveryStrategy::Commit { url, branch } => {
                let _turn = resources.lock_branch(order, url, branch).await;
                let authorized = resources.with_app_token(order).await?;
                let delivered = direct_commit::deliver(resources, &authorized, url, branch, began).await;
                resources.drop_rejected_token(order, delivered)
            }
            DeliveryStrategy::Notification(about) => resources.events.deliver(order, about).await,
            DeliveryStrategy::Webhook { url, about } => resources.webhooks.deliver(order, url, about).await,
        }
    }

    /// Reads the status of a change request, with one call that costs nothing of the rate limit if nothing changed.
    ///
    /// # Errors
    /// When the forge does not return the change request.
    pub async fn follow(
        &self,
        order: &Order,
        request: &ChangeRequest,
    ) -> Result<ChangeRequestStatus, DeliveryError> {
        let status = status::follow(&self.0, &*self.0.with_app_token(order).await?, request).await;
        self.0.drop_rejected_token(order, status)
    }

    /// Reads the status of a change request, merges it if the strategy asks for that and the forge allows it, and then
    /// deletes its branch. Running it again is harmless. A merge needs the checks of the change request, and the order can ask
    /// for them.
    ///
    /// # Errors
    /// When a call to the forge fails, or git does.
    pub async fn advance(
        &self,
        order: &Order,
        request: &ChangeRequest,
    ) -> Result<ChangeRequestLook, DeliveryError> {
        let look = merge::advance(&self.0, &*self.0.with_app_token(order).await?, request).await;
        self.0.drop_rejected_token(order, look)
    }

    /// Closes an open change request with a comment. A change request that is not open, or carries another promotion,
    /// stays as it is.
    ///
    /// # Errors
    /// When a call to the forge fails.
    pub async fn withdraw(
        &self,
        order: &Order,
        request: &ChangeRequest,
        comment: &str,
    ) -> Result<ChangeRequestStatus, DeliveryError> {
        let status =
            withdraw::withdraw(&self.0, &*self.0.with_app_token(order).await?, request, comment).await;
        self.0.drop_rejected_token(order, status)
    }

    /// Finds the commit by which an earlier try has delivered an order; `None` if the order is not delivered by a commit. Only
    /// reads.
    ///
    /// # Errors
    /// When git fails.
    pub async fn find_delivery(&self, order: &Order) -> Result<Option<Delivered>, DeliveryError> {
        let DeliveryStrategy::Commit { url, branch } = &order.strategy else { return Ok(None) };
        let authorized = self.0.with_app_token(order).await?;
        let found = direct_commit::find_delivery(&self.0, &authorized, url, branch).await;
        self.0.drop_rejected_token(order, found)
    }

    /// Whether the branch of an order has lost the commit that delivered the order. Only reads: one fetch, and another
    /// one if the files do not have the order's values.
    ///
    /// # Errors
    /// When git fails.
    pub async fn is_lost(&self, order: &Order, commit: &str) -> Result<bool, DeliveryError> {
        let lost = lost_commit::is_lost(&self.0, &*self.0.with_app_token(order).await?, commit).await;
        self.0.drop_rejected_token(order, lost)
    }

    /// Computes what the delivery of an order would change now; `None` if it does not write to git. Only reads, with at
    /// most one fetch.
    ///
    /// # Errors
    /// When git fails, or there is nothing to set.
    pub async fn planned_change(&self, order: &Order) -> Result<Option<PlannedChange>, DeliveryError> {
        let order = self.0.with_app_token(order).await?;
        let planned = planned_change(&self.0, &order, Instant::now()).await;
        self.0.drop_rejected_token(&order, planned)
    }

    /// Computes what a commit has changed of the values of an order; `None` if the order does not write to git. Only
    /// reads, with two fetches.
    ///
    /// # Errors
    /// When git fails, the server does not have the commit any more, or there was nothing to set.
    pub async fn delivered_change(
        &self,
        order: &Order,
        commit: &str,
    ) -> Result<Option<PlannedChange>, DeliveryError> {
        let order = self.0.with_app_token(order).await?;
        let change = delivered_change(&self.0, &order, commit).await;
        self.0.drop_rejected_token(&order, change)
    }

    /// Reads the files of an order that changes files: the text of each, and `None` for one that does not exist. Only reads,
    /// with one fetch.
    ///
    /// # Errors
    /// When git fails, or a file may not be written.
    pub async fn files(&self, order: &Order) -> Result<Vec<Option<String>>, DeliveryError> {
        let order = self.0.with_app_token(order).await?;
        let texts = planned_change::files(&self.0, &order, Instant::now()).await;
        self.0.drop_rejected_token(&order, texts)
    }

    /// Reports the progress of a promotion on the commit that its merged change request left on the base branch. Tries
    /// once. Reports for one environment or target go out one after the other, so that the last one stays.
    ///
    /// # Errors
    /// When the forge does not accept the commit status.
    pub async fn report(
        &self,
        order: &Order,
        request: &ChangeRequest,
        progress: PromotionProgress,
        description: &str,
    ) -> Result<(), DeliveryError> {
        let DeliveryStrategy::PullRequest { url, .. } = &order.strategy else { return Ok(()) };
        // No branch has a space in its name, so deliveries do not wait here.
        let _turn = self.0.lock_branch(order, url, &format!("{} status", order.subject())).await;
        let reported = report_status::report(
            &self.0,
            &*self.0.with_app_token(order).await?,
            request,
            (progress, description),
        )
        .await;
        self.0.drop_rejected_token(order, reported)
    }

    /// Sends a progress event to the address for events, if there is one. Tries once.
    ///
    /// # Errors
    /// When the receiver does not accept it.
    pub async fn send_progress_event(&self, event: &ProgressEvent) -> Result<(), NotificationError> {
        self.0.events.send_progress_event(event).await
    }

    /// Whether there is an address for events.
    pub fn sends_events(&self) -> bool {
        self.0.events.has_address()
    }

    /// Counts of all calls, fetches and pushes since the start.
    pub fn stats(&self) -> Stats {
        self.0.counters.snapshot(self.0.rate_budgets())
    }
}
