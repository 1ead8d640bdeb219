//! What the state asks the runtime to do.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_api::pipeline::{Pipeline, Strategy};
use sluice_api::promotion::{Promotion, PromotionSpec};
use sluice_delivery::{ChangeRequest, FencingToken, LeaseTerm, Order, PromotionProgress};

use crate::metrics::PromotionStep;
use crate::observe::ObserveScope;
use crate::pipeline_key::PipelineKey;
use crate::record::pending_event::PendingEvent;
use crate::state::Input;
use crate::state::status_queue::StatusWrite;
use crate::watch::cluster_session::KubeconfigSource;
use sluice_core::fleet::ClusterKey;
use sluice_core::fleet::owned_read::OwnedRead;

/// The time at which a step is taken, by three clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The monotonic clock, for pauses.
    pub instant: Instant,
    /// The wall clock, for times that objects store.
    pub wall: Timestamp,
    /// The time since boot, for leases.
    pub boot: Duration,
}

/// A side effect.
#[allow(clippy::large_enum_variant, reason = "they are moved once and not kept")]
#[derive(Debug)]
pub enum Effect {
    /// Write a status; the end comes back as [`Input::StatusWritten`].
    WriteStatus(StatusWrite),
    /// Create a promotion's record; the end comes back as [`Input::PromotionCreated`].
    CreatePromotion(PipelineKey, Box<Promotion>, FencingToken),
    /// Read a promotion's record that exists; the answer comes back as [`Input::PromotionCreated`].
    ReadPromotion(PipelineKey, String),
    /// Delete a promotion's record of this name and uid.
    DeletePromotion(PipelineKey, String, Option<String>, FencingToken),
    /// Read the version of the Secret that a promotion's failed delivery uses; the answer comes back as
    /// [`Input::SecretVersion`].
    ReadSecretVersion(PipelineKey, String, String),
    /// Start a job; the end comes back as [`Input::JobEnded`].
    Start(Box<Job>),
    /// Revoke the fencing token of an in-flight side effect.
    Revoke(FencingToken),
    /// End the term of a shard, and with it all fencing tokens within.
    EndTerm(LeaseTerm),
    /// Report a commit status on a forge.
    ReportCommitStatus(Box<CommitStatusReport>),
    /// Write an event, and send it to the listener of events.
    SendEvent(PendingEvent),
    /// Keep a session with a cluster, for targets in these namespaces.
    Connect(ClusterKey, KubeconfigSource, BTreeSet<String>, ObserveScope),
    /// End the session with a cluster.
    Disconnect(ClusterKey),
    /// Read what a Flux object of a cluster owns; the answer comes back as [`Input::Cluster`].
    ReadOwned(ClusterKey, OwnedRead),
    /// Publish a pipeline to the hook server.
    Publish(PipelineKey, Arc<Pipeline>),
    /// Remove a pipeline from the hook server.
    Unpublish(PipelineKey),
    /// All pipelines are published.
    PublishedAll,
    /// Feed an input back after a while.
    Later(Duration, Box<Input>),
    /// Read again all Pipelines and Promotions whose versions differ; the answer comes back as
    /// [`Input::Resynced`].
    Resync(Resync),
    /// Hand back the Lease of a shard.
    ReleaseShard(u32),
    /// Update the metrics.
    UpdateMetrics(MetricUpdate),
}

/// Stands for the version of an object that this replica writes. Such an object is not read again.
pub(crate) const OURS: u64 = u64::MAX;

/// The objects to read again for new shards.
#[derive(Clone, Debug)]
pub struct Resync {
    /// The new shards, each with its term.
    pub shards: Vec<(u32, LeaseTerm)>,
    /// The known version of each Pipeline.
    pub pipelines: HashMap<PipelineKey, u64>,
    /// The known version of each Promotion, by namespace and name.
    pub promotions: HashMap<PipelineKey, u64>,
}

/// Something that the metrics count.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricUpdate {
    /// A pipeline was reconciled.
    Reconciled,
    /// The time that a pipeline waited from an event to its reconciliation.
    Waited(Duration),
    /// Something failed, with this reason.
    Failed(String),
    /// A promotion entered this phase.
    Entered(String),
    /// A Promotion was created.
    PromotionCreated,
    /// A promotion completed steps: its namespace, its spec, and the seconds of each step.
    Steps(String, Box<PromotionSpec>, Vec<(PromotionStep, f64)>),
    /// Whether the API server checks who approves.
    ApprovalsChecked(bool),
}

/// A side effect on git, a forge or a receiver.
#[derive(Debug)]
pub struct Job {
    /// The pipeline.
    pub pipeline: PipelineKey,
    /// The environment, or the target that is promoted on its own.
    pub place: String,
    /// The order for delivery, without credentials.
    pub order: Order,
    /// The name of the Secret that has the credentials.
    pub secret: Option<String>,
    /// The strategy as the API has it.
    pub strategy: Strategy,
    /// The promotion's record.
    pub promotion: Arc<Promotion>,
    /// The kind of work.
    pub work: Work,
}

/// The kind of work of a [`Job`].
#[derive(Debug)]
pub enum Work {
    /// Deliver the promotion of this pipeline.
    Deliver(Arc<Pipeline>),
    /// Poll the change request, and merge it if `may_merge`.
    Follow {
        /// The change request.
        request: ChangeRequest,
        /// Whether every gate is open.
        may_merge: bool,
    },
    /// Look whether a person has closed or merged the change request that Sluice is about to close.
    FollowBeforeWithdrawal(ChangeRequest),
    /// Close the change request with a comment.
    Withdraw {
        /// The change request.
        request: ChangeRequest,
        /// The comment.
        comment: String,
    },
    /// Check whether this commit is still in its branch.
    CheckCommit(String),
    /// Find a delivery that is not recorded.
    FindDelivery,
}

/// A commit status to be reported.
#[derive(Debug)]
pub struct CommitStatusReport {
    /// The pipeline.
    pub pipeline: PipelineKey,
    /// The promotion's name.
    pub promotion: String,
    /// The order that delivered the promotion, without credentials.
    pub order: Order,
    /// The name of the Secret that has the credentials.
    pub secret: Option<String>,
    /// The merged change request.
    pub request: ChangeRequest,
    /// The progress of the promotion.
    pub progress: PromotionProgress,
    /// The description.
    pub description: String,
}
