//! What the state reacts to.

use std::time::Duration;

use sluice_api::{GitopsCluster, Pipeline, Promotion};

use crate::act::EndedJob;
use crate::hook::secret_condition::HookSecretProblem;
use crate::pipeline_key::PipelineKey;
use crate::secret::SecretVersion;
use crate::shard::{ShardChange, StoredState};
use crate::state::status_queue::{StatusOwner, WriteOutcome};
use crate::watch::event_queue::QueueSlot;
use crate::watch::stream::ObjectEvent;
use sluice_core::fleet::{ClusterEvent, ClusterKey, ObjectKey};

/// Something that happened.
#[allow(clippy::large_enum_variant, reason = "most of them are Promotions, and they are moved, not kept")]
#[derive(Debug)]
pub enum Input {
    /// The watch of Pipelines on the hub reports.
    Pipelines(ObjectEvent<Pipeline>),
    /// The watch of Promotions on the hub reports.
    Promotions(ObjectEvent<Promotion>),
    /// The watch of GitopsClusters on the hub reports; `None` while the hub does not serve that kind.
    Clusters(Option<ObjectEvent<GitopsCluster>>),
    /// A session with a cluster, identified by its number, reports an event. The slot bounds how many events of
    /// one cluster wait here.
    Cluster(ClusterKey, u64, ClusterEvent, QueueSlot),
    /// The pause before the next read of what a Flux object owns is over, for the check of this number.
    ReadOwnedAgain(ClusterKey, ObjectKey, u64),
    /// A status write, identified by its number, has ended.
    StatusWritten(StatusOwner, u64, WriteOutcome),
    /// A hook call concerns a pipeline: its targets may have changed.
    Called(PipelineKey),
    /// The Secrets with hook keys of a pipeline were read: what is wrong with them.
    HookSecret(PipelineKey, Option<HookSecretProblem>),
    /// A new promotion's record was created, or not; `None` if an object of its name exists. Also the answer to
    /// [`crate::state::Effect::ReadPromotion`].
    PromotionCreated(PipelineKey, String, Result<Option<Box<Promotion>>, kube::Error>),
    /// The Secret of a promotion's failed delivery was read.
    SecretVersion(PipelineKey, String, SecretVersion),
    /// A side effect has ended.
    JobEnded(Box<EndedJob>),
    /// This replica gains or loses a shard.
    Shard(ShardChange),
    /// Why the API server does not check who approves; `None` while it does.
    ApprovalPolicy(Option<String>),
    /// All Pipelines and Promotions were read again for new shards.
    Resynced(Box<StoredState>),
    /// Time has passed.
    Tick,
    /// The loop has time to reconcile the next pipeline of the queue.
    Reconcile,
    /// The last [`Input::Reconcile`] has taken so long that others had to wait.
    ReconcileTook(Duration),
}
