//! Sends commit statuses to forges.

use std::sync::Arc;

use kube::Client;
use sluice_delivery::{Delivery, DeliveryError, Order, Retry};

use super::credentials;
use crate::act::ActError;
use crate::metrics::Metrics;
use crate::record::progress_queue::ProgressQueue;
use crate::state::effect::CommitStatusReport;

/// Sends commit statuses, each in a task of its own, with a few tries.
pub(super) struct CommitStatuses {
    client: Client,
    delivery: Delivery,
    metrics: Arc<Metrics>,
    queue: ProgressQueue,
}

impl CommitStatuses {
    pub(super) fn new(client: Client, delivery: Delivery, metrics: Arc<Metrics>) -> Self {
        Self { client, delivery, metrics, queue: ProgressQueue::default() }
    }

    /// Sends a commit status.
    pub(super) fn send(&self, status: CommitStatusReport) {
        let sending = Arc::new(Sending {
            status,
            client: self.client.clone(),
            delivery: self.delivery.clone(),
            metrics: self.metrics.clone(),
        });
        let sender = sending.clone();
        let attempt = move |is_last| {
            let sender = sender.clone();
            async move { sender.send(is_last).await }
        };
        if !self.queue.send(sending.status.pipeline.to_string(), attempt) {
            sending.give_up("too many wait to be sent");
        }
    }
}

/// A commit status that is being sent.
struct Sending {
    status: CommitStatusReport,
    client: Client,
    delivery: Delivery,
    metrics: Arc<Metrics>,
}

impl Sending {
    /// Tries to send it. On failure returns when to try again; logs it if there is no further try.
    async fn send(&self, is_last: bool) -> Result<(), Retry> {
        let Err(error) = self.attempt().await else { return Ok(()) };
        let retry = retry(&error);
        if matches!(error, ActError::Delivery(DeliveryError::Revoked)) {
            // A newer one is reported, or another replica reports it.
        } else if is_last || retry == Retry::OnChange {
            self.give_up(error);
        } else {
            let (pipeline, promotion) = (&self.status.pipeline, &self.status.promotion);
            tracing::warn!(%pipeline, promotion, %error, "cannot report a commit status; it will be retried");
        }
        Err(retry)
    }

    async fn attempt(&self) -> Result<(), ActError> {
        let CommitStatusReport { pipeline, order, secret, request, progress, description, .. } = &self.status;
        let namespace = &pipeline.namespace;
        let credentials =
            credentials::read(&self.client, namespace, &order.strategy, secret.clone()).await.result?;
        let order = Order { credentials, ..order.clone() };
        Ok(self.delivery.report(&order, request, *progress, description).await?)
    }

    fn give_up(&self, why: impl std::fmt::Display) {
        self.metrics.count_failure("CommitStatusFailed");
        let (pipeline, promotion) = (&self.status.pipeline, &self.status.promotion);
        tracing::error!(%pipeline, promotion, error = %why, "a commit status was not sent and is not retried; the promotion continues");
    }
}

/// When a retry makes sense: after a failure that may end on its own. The forge would reject a rejected request
/// again.
fn retry(error: &ActError) -> Retry {
    match error {
        ActError::SecretNotRead(_) => Retry::Soon,
        ActError::Delivery(error) => match (error.retry(), error.reason()) {
            (at @ Retry::At(_), _) => at,
            (_, "Unreachable" | "Timeout") => Retry::Soon,
            _ => Retry::OnChange,
        },
        ActError::NoSecret(_)
        | ActError::SecretNotAllowed(_)
        | ActError::Internal(_)
        | ActError::Event(_) => Retry::OnChange,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_delivery::{ChangeRequest, PromotionProgress, clock};
    use sluice_testkit::Scratch;

    use super::super::jobs::tests::{job, unreachable};
    use super::*;
    use crate::pipeline_key::PipelineKey;

    #[tokio::test(start_paused = true)]
    async fn a_commit_status_that_cannot_be_sent_is_given_up_and_counted() {
        let scratch = Scratch::new("reports").unwrap();
        let (client, delivery, metrics) = unreachable(&scratch);
        let pipeline = PipelineKey { namespace: "apps".into(), name: "podinfo".into() };
        let strategy = json!({"pull-request": {"type": "github", "url": "https://git.example.com/acme/fleet.git",
            "secretRef": {"name": "s"}}});
        let job = job(&pipeline, &strategy);
        let request = ChangeRequest {
            number: 1,
            url: "https://git.example.com/1".into(),
            branch: "b".into(),
            head_commit: "c".into(),
            notes: Vec::new(),
            queued: false,
        };
        let (progress, description) = (PromotionProgress::Pending, "waits".into());
        let (promotion, order, secret) = ("p".into(), job.order, job.secret);
        let status =
            CommitStatusReport { pipeline, promotion, order, secret, request, progress, description };
        CommitStatuses::new(client, delivery, metrics.clone()).send(status);
        let failures = "sluice_promotion_failures_total{reason=\"CommitStatusFailed\"} 1";
        let given_up = async {
            while !metrics.render().contains(failures) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), given_up).await.unwrap();
    }

    #[test]
    fn a_commit_status_that_a_forge_rejects_is_not_retried() {
        let forge = "git.example.com".to_string();
        let limited = sluice_delivery::ForgeError::RateLimited { forge: forge.clone(), until: clock::now() };
        let at = Retry::At(clock::now());
        let refused = |status| {
            let (forge, says) = (forge.clone(), String::new());
            sluice_delivery::ForgeError::Refused { forge, status, says: says.into() }
        };
        let (forge, says) = (forge.clone(), String::new());
        let unreachable = sluice_delivery::ForgeError::Unreachable { forge, says };
        for (error, expected) in [(limited, at), (refused(422), Retry::OnChange), (unreachable, Retry::Soon)]
        {
            let found = retry(&ActError::Delivery(DeliveryError::Forge(error)));
            assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&expected));
        }
    }
}
