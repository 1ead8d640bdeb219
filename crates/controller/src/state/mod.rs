//! The controller's state. [`State::step`] takes one input and returns the side effects that follow from it. It
//! has no client and waits for nothing: the runtime carries out the effects and feeds their results back as
//! inputs.

mod actions;
mod branch_checks;
pub(crate) mod cached;
mod clusters;
mod commit_statuses;
mod early_retry;
pub mod effect;
mod entries;
#[cfg(test)]
mod fixtures;
pub mod input;
mod long_reconcile_pause;
mod lost_cluster_events;
mod moved_targets;
mod pipeline_status;
mod pipelines;
mod polls;
mod promotions;
mod rate_limit;
mod reconcile;
mod reconcile_queue;
mod records;
mod shards;
mod shown;
#[cfg(test)]
mod simulation;
mod slow_delivery;
pub mod status_pace;
pub mod status_queue;
pub mod stored_time;
mod timers;
mod unguarded_approvals;
pub(crate) mod unread_metadata;
mod unreadable;
mod unwritten_status;
mod waiting_branches;
mod withdrawals;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sluice_api::gitops_cluster::GitopsClusterSpec;
use sluice_delivery::FencingToken;

use crate::act::schedule::Schedule;
use crate::observe::ObserveScope;
use crate::pipeline_key::PipelineKey;
use crate::shard::Shards;
use crate::watch::parsed_object::UnreadableObject;
pub use effect::{Effect, MetricUpdate, Now};
use entries::{PipelineEntry, Record};
pub use input::Input;
use rate_limit::RateLimit;
use reconcile_queue::ReconcileQueue;
use sluice_core::fleet::ClusterKey;
use sluice_core::fleet::fact::AllowedNamespaces;
use sluice_core::fleet::index::{Fleet, Index};
use status_queue::{Basis, SerializedStatus, StatusOwner, StatusQueue, StoredObject, WriteOutcome};
use stored_time::StoredTimes;
use timers::Timers;
use waiting_branches::WaitingBranches;

/// The settings that decisions depend on.
#[derive(Clone, Debug)]
pub struct StateSettings {
    /// What is observed on clusters.
    pub observe: ObserveScope,
    /// Only pipelines in this namespace are handled; `None` for all. Clusters in other namespaces are observed only if
    /// such a pipeline refers to them.
    pub watch_namespace: Option<String>,
    /// Pipelines may refer only to clusters in their own namespace and to their own namespace on the hub, unless
    /// an annotation of the referenced object allows more.
    pub no_cross_namespace_refs: bool,
    /// The hook server is running.
    pub serves_hooks: bool,
    /// How many ended promotions of each environment are kept.
    pub history_limit: usize,
    /// How often a new change request is polled.
    pub poll_interval: Duration,
}

/// The state of the controller.
pub struct State {
    settings: StateSettings,
    now: Now,
    effects: Vec<Effect>,
    pipelines: HashMap<PipelineKey, PipelineEntry>,
    promotions: HashMap<PipelineKey, BTreeMap<String, Record>>,
    /// The side effects in flight, by pipeline and the environment or target that is promoted into.
    in_flight: HashMap<(PipelineKey, String), InFlight>,
    statuses: StatusQueue,
    /// The starts of promotions, by pipeline and the environment or target that is promoted into.
    starts: RateLimit<(PipelineKey, String)>,
    index: Index,
    schedule: Schedule,
    /// The branches that failed deliveries write to.
    waiting_branches: WaitingBranches,
    stored_times: StoredTimes,
    /// The shards that this replica has.
    shards: Shards,
    /// Why the API server does not check who approves, if it does not.
    approvals_unguarded: Option<String>,
    /// Objects that cannot be read, by kind.
    unreadable: BTreeMap<(&'static str, PipelineKey), UnreadableObject>,
    clusters: Option<HashMap<(String, String), KnownCluster>>,
    has_cluster_kind: bool,
    /// The clusters with a session.
    observed: BTreeSet<ClusterKey>,
    /// The pipelines with targets on each cluster, by namespace.
    users: BTreeMap<ClusterKey, BTreeMap<String, BTreeSet<PipelineKey>>>,
    /// When a pipeline first referred to each of the clusters in `users`.
    first_used: BTreeMap<ClusterKey, Instant>,
    /// The clusters whose `users` have changed since their sessions were last updated.
    changed_users: BTreeSet<ClusterKey>,
    /// The clusters that views show, whether or not a pipeline refers to them.
    shown: BTreeSet<ClusterKey>,
    /// Whether Pipelines and Promotions have been listed.
    listed: (bool, bool),
    /// The versions of the last lists of Pipelines and of Promotions.
    listed_at: (u64, u64),
    /// The version up to which the watch of Promotions has reported everything.
    promotions_watched_to: u64,
    queue: ReconcileQueue,
    timers: Timers,
    last_reconciled: Option<PipelineKey>,
}

/// A side effect in flight.
#[derive(Debug)]
struct InFlight {
    /// The promotion's name.
    promotion: String,
    /// Whether it was started because all gates of a proposed promotion were open: a poll that may merge, or a rebuild.
    needs_open_gates: bool,
    /// Whether it only looks for a delivery.
    finds_delivery: bool,
    fencing_token: FencingToken,
    started: Instant,
}

/// A GitopsCluster.
#[derive(Clone, Debug, PartialEq)]
struct KnownCluster {
    spec: GitopsClusterSpec,
    /// The namespaces whose Pipelines may use it, by its annotation.
    allowed: Option<AllowedNamespaces>,
    /// What is observed on it, by its annotation.
    observe: ObserveScope,
}

impl State {
    /// A state without objects.
    pub fn new(settings: StateSettings, shards: Shards, now: Now) -> Self {
        State {
            schedule: Schedule::new(settings.poll_interval),
            settings,
            now,
            effects: Vec::new(),
            pipelines: HashMap::new(),
            promotions: HashMap::new(),
            in_flight: HashMap::new(),
            statuses: StatusQueue::default(),
            starts: RateLimit::new(records::STARTS_AT_ONCE, records::START_PERIOD),
            index: Index::default(),
            stored_times: StoredTimes::default(),
            waiting_branches: WaitingBranches::default(),
            shards,
            approvals_unguarded: None,
            unreadable: BTreeMap::new(),
            clusters: None,
            has_cluster_kind: true,
            // Most hubs have targets themselves. So the hub is watched from the start, until it is known that no
            // pipeline has a target there.
            observed: BTreeSet::from([ClusterKey::Local]),
            users: BTreeMap::new(),
            first_used: BTreeMap::new(),
            changed_users: BTreeSet::new(),
            shown: BTreeSet::new(),
            listed: (false, false),
            listed_at: (0, 0),
            promotions_watched_to: 0,
            queue: ReconcileQueue::default(),
            last_reconciled: None,
            timers: Timers::default(),
        }
    }

    /// Takes in one input and returns the effects that follow.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Pipelines(event) => self.pipeline_event(event),
            Input::Promotions(event) => self.promotion_event(event),
            Input::Clusters(event) => self.gitops_cluster_event(event),
            Input::Cluster(key, _session, event, _slot) => self.cluster_event(&key, event),
            Input::ReadOwnedAgain(key, owner, number) => self.read_owned_again(&key, &owner, number),
            Input::Called(key) => self.enqueue(&key),
            Input::HookSecret(key, problem) => self.hook_secret_read(&key, problem),
            Input::StatusWritten(owner, number, outcome) => self.status_written(&owner, number, outcome),
            Input::PromotionCreated(pipeline, name, result) => self.created(&pipeline, &name, result),
            Input::SecretVersion(key, promotion, version) => self.secret_observed(&key, &promotion, version),
            Input::JobEnded(ended) => self.job_ended(*ended),
            Input::Shard(change) => self.shard_changed(change),
            Input::Resynced(stored) => self.resynced(*stored),
            Input::ApprovalPolicy(gap) => self.approval_policy_checked(gap),
            Input::Tick => self.tick(),
            Input::Reconcile => self.reconcile_next(),
            Input::ReconcileTook(time) => self.rest(time),
        }
        std::mem::take(&mut self.effects)
    }

    /// When the next [`Input::Tick`] is due; `None` if only another input makes something due.
    pub fn next_tick(&self) -> Option<Instant> {
        self.timers.next().into_iter().chain(self.shards.next_release()).min()
    }

    /// Whether Pipelines and Promotions have been listed: nothing is decided before.
    pub fn is_ready(&self) -> bool {
        self.listed == (true, true)
    }

    /// How many pipelines wait to be reconciled.
    pub fn queued(&self) -> usize {
        if self.is_ready() { self.queue.len() } else { 0 }
    }

    /// The number of connected clusters, and the number of all clusters that pipelines refer to.
    pub fn clusters_up(&self) -> (usize, usize) {
        self.index.clusters_up()
    }

    /// Publishes the observed clusters in `fleet`, which views already read.
    pub fn show_in(&mut self, fleet: Fleet) {
        self.index.show_in(fleet);
    }

    /// Returns the number of observed objects of all clusters.
    pub fn observed_objects(&self) -> usize {
        self.index.objects()
    }

    fn tick(&mut self) {
        for key in self.timers.expired(self.now.instant) {
            match self.rests_until(&key) {
                Some(until) => self.timers.set(&key, until),
                None => self.queue.insert(key),
            }
        }
        self.settle_shards();
    }

    /// Reconciles the first pipeline of the queue that this replica acts for.
    fn reconcile_next(&mut self) {
        if !self.is_ready() {
            return;
        }
        while let Some(key) = self.queue.next() {
            // If another replica holds the shard, that replica reconciles the pipeline. This one does so when it
            // gains the shard.
            if self.acts(&key) {
                self.count(MetricUpdate::Reconciled);
                // The reconciliation sets the next time.
                self.timers.cancel(&key);
                self.last_reconciled = Some(key.clone());
                return self.reconcile(&key);
            }
        }
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn count(&mut self, count: MetricUpdate) {
        self.effects.push(Effect::UpdateMetrics(count));
    }

    /// Queues a pipeline. If it rests after a long decision, sets a timer that queues it afterwards.
    fn enqueue(&mut self, key: &PipelineKey) {
        if let Some(until) = self.rests_until(key) {
            return self.timers.set(key, until);
        }
        if let Some(entry) = self.pipelines.get_mut(key) {
            entry.enqueued.get_or_insert(self.now.instant);
            self.queue.insert(key.clone());
        }
    }

    /// Queues a pipeline at the given time, unless it is reconciled earlier.
    fn requeue_at(&mut self, key: &PipelineKey, at: Instant) {
        self.timers.set(key, at);
    }

    /// Whether side effects may be started for a pipeline.
    fn acts(&self, key: &PipelineKey) -> bool {
        self.shards.acts(key, self.now.boot)
    }

    /// The fencing token for writes and side effects of a pipeline. `None` if another replica holds its shard, or
    /// if this one has not read yet what the last holder wrote.
    fn fencing_token(&self, key: &PipelineKey) -> Option<FencingToken> {
        self.shards.fencing_token(key, self.now.boot)
    }

    /// Queues a status to be written.
    fn write_status(
        &mut self,
        owner: StatusOwner,
        status: SerializedStatus,
        basis: Basis,
        fencing_token: FencingToken,
    ) {
        let write = self.statuses.push(owner, status, basis, fencing_token, self.now.instant);
        self.effects.extend(write.map(Effect::WriteStatus));
    }

    fn status_written(&mut self, owner: &StatusOwner, number: u64, outcome: WriteOutcome) {
        let Some(next) = self.statuses.ended(owner, number, &outcome, self.now.instant) else { return };
        self.effects.extend(next.map(Effect::WriteStatus));
        match outcome {
            WriteOutcome::Stored(stored) => match owner {
                StatusOwner::Pipeline(key) => {
                    if let Some(entry) = self.pipelines.get_mut(key) {
                        entry.cached.written(stored);
                    }
                }
                StatusOwner::Promotion(key, name) => {
                    if let Some(record) = self.record_mut(key, name) {
                        record.cached.written(stored);
                        // It may be closed now.
                        let status = record.object().status.as_ref();
                        if status.is_some_and(|status| status.withdraws_request()) {
                            self.enqueue(key);
                        }
                    }
                }
            },
            WriteOutcome::Conflict(stored) => self.status_conflict(owner, *stored),
            WriteOutcome::Withheld => self.mark_status_unknown(owner),
            WriteOutcome::Failed(error) => self.report_unwritten(owner, &error),
            WriteOutcome::Gone => {}
        }
    }

    /// Notes that the last status of an object may or may not be stored.
    fn mark_status_unknown(&mut self, owner: &StatusOwner) {
        match owner {
            StatusOwner::Pipeline(key) => {
                if let Some(entry) = self.pipelines.get_mut(key) {
                    entry.cached.mark_status_unknown();
                }
            }
            StatusOwner::Promotion(key, name) => {
                if let Some(record) = self.record_mut(key, name) {
                    record.cached.mark_status_unknown();
                }
            }
        }
    }

    /// Loads a status that another writer has stored. Effects of this replica that are missing in it are found
    /// again, as after a crash.
    fn status_conflict(&mut self, owner: &StatusOwner, stored: StoredObject) {
        tracing::warn!(pipeline = %owner.pipeline(), promotion = owner.promotion(), "another writer has changed this object; its stored status is loaded");
        match (owner, stored) {
            // If the object is not known any more, it was deleted since.
            (StatusOwner::Pipeline(key), StoredObject::Pipeline(pipeline)) => {
                if let Some(entry) = self.pipelines.get_mut(key) {
                    entry.cached.mark_status_unknown();
                    self.put_pipeline(pipeline);
                }
            }
            (StatusOwner::Promotion(key, name), StoredObject::Promotion(promotion)) => {
                if let Some(record) = self.record_mut(key, name) {
                    record.cached.mark_status_unknown();
                    record.is_first_try = false;
                    self.put_promotion(promotion);
                }
            }
            _ => {}
        }
    }

    fn record(&self, key: &PipelineKey, name: &str) -> Option<&Record> {
        self.promotions.get(key)?.get(name)
    }

    fn record_mut(&mut self, key: &PipelineKey, name: &str) -> Option<&mut Record> {
        self.promotions.get_mut(key)?.get_mut(name)
    }

    /// How long ago a pipeline first referred to a cluster.
    fn used_for(&self, cluster: &ClusterKey) -> Duration {
        let since = self.first_used.get(cluster);
        since.map(|since| self.now.instant.saturating_duration_since(*since)).unwrap_or_default()
    }
}
