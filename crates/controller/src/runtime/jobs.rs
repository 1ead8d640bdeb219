//! Carries out side effects on git, forges and receivers.

use std::sync::Arc;

use kube::{Client, ResourceExt};
use sluice_delivery::{
    ChangeRequestLook, Credentials, Delivery, DeliveryError, DeliveryStrategy as By, FairQueue, Order, Slot,
    clock,
};
use tokio::sync::mpsc;

use super::callback_offer::CallbackOffer;
use super::credentials::{self, ReadCredentials};
use super::notification_event;
use crate::act::{ActError, EndedJob, JobOutcome};
use crate::metrics::Metrics;
use crate::secret::SecretVersion;
use crate::state::Input;
use crate::state::effect::{Job, Work};

/// How many webhooks are called at the same time. Resolving a name takes one of Tokio's 512 threads for blocking
/// work (docs.rs/tokio, `Builder::max_blocking_threads`), and keeps it after the call has timed out if the DNS
/// server is slow.
const MAX_WEBHOOKS: usize = 32;

/// How many side effects hold large credentials at a time, which may take a megabyte each. Further ones wait. Small
/// credentials never wait, so that a server that hangs delays no other.
const MAX_LARGE: usize = 64;
/// The most bytes of credentials that are not large.
const SMALL_CREDENTIALS: usize = 16 << 10;
/// How many Secrets are read at a time. The answer of the API server takes several times the size of the Secret.
const MAX_SECRET_READS: usize = 8;

/// Carries out side effects, each in a task of its own.
#[derive(Clone)]
pub(super) struct Jobs {
    client: Client,
    delivery: Delivery,
    metrics: Arc<Metrics>,
    /// Where receivers may call back, if the hook server can be reached.
    hook_url: Option<String>,
    /// Calls of webhooks wait here, fair by namespace.
    webhooks: Arc<FairQueue>,
    /// Side effects with large credentials wait here before they hold them, fair by namespace.
    large: Arc<FairQueue>,
    /// Reads of Secrets wait here, fair by namespace.
    reads: Arc<FairQueue>,
    tx: mpsc::UnboundedSender<Input>,
}

impl Jobs {
    pub(super) fn new(
        client: Client,
        delivery: Delivery,
        metrics: Arc<Metrics>,
        hook_url: Option<String>,
        tx: mpsc::UnboundedSender<Input>,
    ) -> Self {
        let [webhooks, large, reads] = [MAX_WEBHOOKS, MAX_LARGE, MAX_SECRET_READS].map(FairQueue::new);
        Self { client, delivery, metrics, hook_url, webhooks, large, reads, tx }
    }

    /// Carries out a side effect, and reports its end.
    pub(super) fn start(&self, job: Job) {
        let jobs = self.clone();
        tokio::spawn(async move {
            let (fencing_token, failed) = (job.order.fencing_token.clone(), failure_of(&job.work));
            let (pipeline, place) = (job.pipeline.clone(), job.place.clone());
            let (promotion, uid) = (job.promotion.name_any(), job.promotion.uid());
            let strategy = job.strategy.clone();
            // Another task, so that a panic is reported like any failure.
            let tx = jobs.tx.clone();
            let mut effect = tokio::spawn(async move { jobs.run(job).await });
            let (outcome, secret) = tokio::select! {
                ended = &mut effect => ended.unwrap_or_else(|error| (failed(ActError::Internal(error.to_string())), None)),
                // Requests that were sent may still take effect; the next holder of the shard looks for their
                // effects.
                () = fencing_token.term().over() => {
                    effect.abort();
                    (failed(DeliveryError::Revoked.into()), None)
                }
            };
            // Another replica may act by now, and finds the effect.
            let outcome =
                if fencing_token.term().runs() { outcome } else { failed(DeliveryError::Revoked.into()) };
            let ended = EndedJob { pipeline, place, promotion, uid, strategy, secret, outcome };
            let _ = tx.send(Input::JobEnded(Box::new(ended)));
        });
    }

    /// Carries out a job. Also returns the version of the Secret that it used.
    async fn run(self, job: Job) -> (JobOutcome, Option<SecretVersion>) {
        let failed = failure_of(&job.work);
        let mut read = self.read(&job).await;
        let mut _large = None;
        if read.result.as_ref().is_ok_and(|credentials| credentials.size() > SMALL_CREDENTIALS) {
            // Not held while this waits.
            drop(read);
            _large = Some(self.large.acquire(&job.pipeline.to_string()).await);
            read = self.read(&job).await;
        }
        let order = match read.result {
            Ok(credentials) => self.order(&job, credentials).await,
            Err(error) => Err(error),
        };
        let outcome = match order {
            Ok(order) => self.carry_out(job, order).await,
            Err(error) => failed(error),
        };
        (outcome, read.version)
    }

    /// Reads the credentials of a job.
    async fn read(&self, job: &Job) -> ReadCredentials {
        let _slot = self.reads.acquire(&job.pipeline.to_string()).await;
        let (client, namespace) = (&self.client, &job.pipeline.namespace);
        credentials::read(client, namespace, &job.order.strategy, job.secret.clone()).await
    }

    async fn carry_out(self, job: Job, order: Order) -> JobOutcome {
        let _slot = self.slot(&job).await;
        match job.work {
            Work::Deliver(pipeline) => {
                let event = notification_event::event(&pipeline, &job.promotion, &order, clock::now());
                JobOutcome::Delivery(
                    match notification_event::announce(self.client, &self.metrics, &order, event).await {
                        Ok(()) => self.delivery.deliver(&order).await.map_err(ActError::from),
                        Err(error) => Err(error),
                    },
                )
            }
            Work::Follow { request, may_merge } => {
                let followed = match may_merge {
                    true => self.delivery.advance(&order, &request).await,
                    false => self.delivery.follow(&order, &request).await.map(ChangeRequestLook::from),
                };
                JobOutcome::Follow(followed.map_err(ActError::from))
            }
            Work::FollowBeforeWithdrawal(request) => {
                let followed = self.delivery.follow(&order, &request).await;
                JobOutcome::Withdrawal(followed.map_err(ActError::from))
            }
            Work::Withdraw { request, comment } => {
                let withdrawn = self.delivery.withdraw(&order, &request, &comment).await;
                JobOutcome::Withdrawal(withdrawn.map_err(ActError::from))
            }
            Work::CheckCommit(commit) => {
                let lost = self.delivery.is_lost(&order, &commit).await;
                JobOutcome::Check(lost.map(|lost| lost.then_some(commit)).map_err(ActError::from))
            }
            Work::FindDelivery => {
                JobOutcome::Find(self.delivery.find_delivery(&order).await.map_err(ActError::from))
            }
        }
    }

    /// Completes the order of a job with its credentials.
    async fn order(&self, job: &Job, mut credentials: Credentials) -> Result<Order, ActError> {
        let (client, key) = (&self.client, &job.pipeline);
        if let Some(offer) = CallbackOffer::new(self.hook_url.as_deref(), &job.strategy) {
            credentials.callback = offer.create(client, key, &job.promotion).await?;
        }
        Ok(Order { credentials, ..job.order.clone() })
    }

    /// Waits for a slot, if the job calls a webhook.
    async fn slot(&self, job: &Job) -> Option<Slot> {
        let is_webhook = matches!(job.order.strategy, By::Webhook { .. });
        if is_webhook { Some(self.webhooks.acquire(&job.pipeline.to_string()).await) } else { None }
    }
}

/// Makes the outcome of this work from an error.
fn failure_of(work: &Work) -> fn(ActError) -> JobOutcome {
    match work {
        Work::Deliver(_) => |error| JobOutcome::Delivery(Err(error)),
        Work::Follow { .. } => |error| JobOutcome::Follow(Err(error)),
        Work::FollowBeforeWithdrawal(_) | Work::Withdraw { .. } => |error| JobOutcome::Withdrawal(Err(error)),
        Work::CheckCommit(_) => |error| JobOutcome::Check(Err(error)),
        Work::FindDelivery => |error| JobOutcome::Find(Err(error)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_api::pipeline::Strategy;
    use sluice_api::promotion::Promotion;
    use sluice_testkit::{Scratch, eventually};

    use super::*;
    use crate::act::order;
    use crate::pipeline_key::PipelineKey;

    /// A client whose hub does not answer, and a delivery with its metrics.
    pub(in crate::runtime) fn unreachable(scratch: &Scratch) -> (Client, Delivery, Arc<Metrics>) {
        let hub = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let cache = scratch.folder("cache").unwrap();
        let delivery = Delivery::new(sluice_delivery::DeliveryOptions::new(&cache)).unwrap();
        (Client::try_from(hub).unwrap(), delivery.clone(), Arc::new(Metrics::new(delivery)))
    }

    /// The delivery of a promotion by this strategy.
    pub(in crate::runtime) fn job(key: &PipelineKey, strategy: &serde_json::Value) -> Job {
        let pipeline =
            json!({"metadata": {"name": key.name, "namespace": key.namespace}, "spec": {"environments": []}});
        let promotion = json!({"metadata": {"name": "p", "namespace": key.namespace}, "spec": {"pipeline": key.name,
            "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}}});
        let strategy: Strategy = serde_json::from_value(strategy.clone()).unwrap();
        let promotion: Arc<Promotion> = Arc::new(serde_json::from_value(promotion).unwrap());
        let pipeline = Arc::new(serde_json::from_value(pipeline).unwrap());
        let (order, secret) = order::order(&pipeline, &promotion, &strategy, true).unwrap();
        let (key, place) = (key.clone(), "prod".into());
        Job { pipeline: key, place, order, secret, strategy, promotion, work: Work::Deliver(pipeline) }
    }

    /// A hub that answers each read with a Secret of this many bytes.
    async fn hub_with_secret(bytes: usize) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let value = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![b'a'; bytes]);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git", "namespace": "n"},
            "data": {"caFile": value}});
        let app = axum::Router::new().fallback(move || std::future::ready(axum::Json(secret.clone())));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
    }

    #[tokio::test]
    async fn only_side_effects_with_large_credentials_wait_for_each_other() {
        for (bytes, held) in [(1 << 10, 0), (64 << 10, MAX_LARGE * 3 / 4)] {
            let scratch = Scratch::new("jobs").unwrap();
            let (_, delivery, metrics) = unreachable(&scratch);
            let client = hub_with_secret(bytes).await;
            let jobs = Jobs::new(client, delivery, metrics, None, mpsc::unbounded_channel().0);
            // A git server that accepts connections and never answers.
            let git = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("https://{}/a/b", git.local_addr().unwrap());
            let commit = json!({"commit": {"url": url, "branch": "main", "secretRef": {"name": "git"}}});
            for n in 0..100 {
                let key = PipelineKey { namespace: "busy".into(), name: format!("p{n}") };
                tokio::spawn(jobs.clone().run(job(&key, &commit)));
            }
            // The first one has its credentials, and waits for the git server.
            let _connection = tokio::time::timeout(Duration::from_secs(30), git.accept()).await.unwrap();
            let as_expected = async || {
                let now = jobs.large.held_by_namespace("busy");
                anyhow::ensure!(now == held, "{now} of {held}");
                Ok(())
            };
            eventually(Duration::from_secs(30), as_expected).await.unwrap();
            let other = tokio::time::timeout(Duration::from_secs(10), jobs.large.acquire("quiet/p")).await;
            assert!(other.is_ok(), "a slot is left for another namespace");
        }
    }

    #[tokio::test]
    async fn reads_of_secrets_are_limited_and_leave_slots_for_another_namespace() {
        let scratch = Scratch::new("jobs").unwrap();
        let (_, delivery, metrics) = unreachable(&scratch);
        // A hub that accepts connections and never answers.
        let hub = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = kube::Config::new(format!("http://{}", hub.local_addr().unwrap()).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let jobs = Jobs::new(client, delivery, metrics, None, mpsc::unbounded_channel().0);
        let commit = json!({"commit": {"url": "https://git.example.com/a/b", "branch": "main", "secretRef": {"name": "git"}}});
        let start = |namespace: &str, name: String| {
            let key = PipelineKey { namespace: namespace.into(), name };
            tokio::spawn(jobs.clone().run(job(&key, &commit)));
        };
        (0..500).for_each(|n| start("busy", format!("p{n}")));
        start("quiet", "p".into());
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let reading = |namespace: &str| jobs.reads.held_by_namespace(namespace);
        assert_eq!((reading("busy"), reading("quiet")), (MAX_SECRET_READS * 3 / 4, 1));
    }

    #[tokio::test]
    async fn slow_webhooks_of_a_namespace_leave_slots_for_another() {
        let scratch = Scratch::new("webhooks").unwrap();
        let (client, delivery, metrics) = unreachable(&scratch);
        let jobs = Jobs::new(client, delivery, metrics, None, mpsc::unbounded_channel().0);
        let (begun_tx, mut begun_calls) = mpsc::unbounded_channel();
        let busy = (0..200).map(|n| ("busy", format!("p{n}")));
        for (namespace, name) in busy.chain([("quiet", "p".to_string())]) {
            let key = PipelineKey { namespace: namespace.into(), name };
            let job = job(&key, &json!({"webhook": {"url": "https://ci.example.com/x"}}));
            let (jobs, begun_tx) = (jobs.clone(), begun_tx.clone());
            tokio::spawn(async move {
                let _slot = jobs.slot(&job).await.unwrap();
                let _ = begun_tx.send(namespace);
                std::future::pending::<()>().await
            });
        }
        // All tasks run in this thread: each task that can begin has begun after this many yields.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let begun: Vec<&str> = std::iter::from_fn(|| begun_calls.try_recv().ok()).collect();
        assert!(!begun.is_empty() && begun.len() < MAX_WEBHOOKS, "{}", begun.len());
        assert!(begun.contains(&"quiet"), "{begun:?}");
    }
}
