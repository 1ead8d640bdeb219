//! The loop: feeds inputs to the state, and carries out the effects that follow. It holds all clients.

mod callback_offer;
mod commit_status;
mod credentials;
pub mod file_proposals;
mod jobs;
pub mod notification_event;
pub mod planned_changes;
pub(crate) mod policy_watch;
mod records;
mod resync;
pub mod status_writer;
mod work_slots;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use sluice_delivery::{Delivery, clock, fault, since_boot};
use tokio::sync::mpsc;

use crate::hook::Directory;
use crate::metrics::Metrics;
use crate::observe::ObserveScope;
use crate::options::{ControllerOptions, Replica};
use crate::pipeline_key::PipelineKey;
use crate::record::event_sender::Events;
use crate::record::unwritten_status::write_error_message;
use crate::shard::{LeaseCommand, Shards};
use crate::snapshots::{Shown, SnapshotRequests};
use crate::state::effect::{Effect, MetricUpdate, Now, Resync};
use crate::state::status_queue::{StatusOwner, WriteOutcome};
use crate::state::{Input, State, StateSettings};
use crate::watch::cluster_session::KubeconfigSource;
use crate::watch::session_set::SessionSet;
use commit_status::CommitStatuses;
use jobs::Jobs;
use records::Records;
use sluice_core::fleet::ClusterKey;
use status_writer::StatusWriter;

/// The longest pause between two rounds of the loop, for liveness.
const MAX_ROUND_PAUSE: Duration = Duration::from_secs(5);
/// How long pipelines are reconciled before the loop takes in new inputs, so that a namespace with many pipelines
/// does not delay the events of another one.
const RECONCILE_SLICE: Duration = Duration::from_millis(20);
/// How long the reconciliation of one pipeline may take before the pipeline rests. Ordinary ones take less than a millisecond.
const LONG_RECONCILE: Duration = Duration::from_millis(100);
/// How many inputs are taken in before pipelines are reconciled.
const MAX_INPUTS: usize = 512;

/// The loop.
pub struct Runtime {
    state: State,
    inputs: mpsc::UnboundedReceiver<Input>,
    tx: mpsc::UnboundedSender<Input>,
    snapshots: SnapshotRequests,
    hub: Client,
    watch_namespace: Option<String>,
    observe: ObserveScope,
    metrics: Arc<Metrics>,
    directory: Arc<Directory>,
    sessions: SessionSet,
    events: Events,
    records: Records,
    statuses: StatusWriter,
    commit_statuses: CommitStatuses,
    jobs: Jobs,
    /// To the lease manager.
    lease_commands: mpsc::UnboundedSender<LeaseCommand>,
}

impl Runtime {
    /// A loop, and the sender of its inputs. Shards to hand back are reported to `lease_commands`, and the state of
    /// the loop is published in `shown`.
    pub fn new(
        options: ControllerOptions,
        hub: Client,
        delivery: Delivery,
        metrics: Arc<Metrics>,
        lease_commands: mpsc::UnboundedSender<LeaseCommand>,
        shown: Shown,
    ) -> (Self, mpsc::UnboundedSender<Input>) {
        let (tx, inputs) = mpsc::unbounded_channel();
        let settings = StateSettings {
            observe: options.observe,
            watch_namespace: options.watch_namespace.clone(),
            no_cross_namespace_refs: options.no_cross_namespace_refs,
            serves_hooks: options.hook.is_some(),
            history_limit: options.history_limit,
            poll_interval: options.poll_interval,
        };
        let shards = match &options.replica {
            Replica::Only => Shards::all(),
            Replica::Elected(election) => Shards::none_of(election.shards),
            Replica::Observer => Shards::none_of(1),
        };
        let sessions = SessionSet::new(
            hub.clone(),
            options.insecure_kubeconfig_exec,
            options.observed_memory,
            tx.clone(),
            metrics.relists.clone(),
        );
        let mut state = State::new(settings, shards, now());
        state.show_in(shown.fleet);
        let runtime = Self {
            state,
            inputs,
            snapshots: shown.snapshots,
            watch_namespace: options.watch_namespace,
            observe: options.observe,
            directory: Arc::default(),
            sessions,
            events: Events::new(hub.clone(), metrics.clone()),
            records: Records::new(hub.clone(), tx.clone()),
            statuses: StatusWriter::new(hub.clone(), tx.clone()),
            commit_statuses: CommitStatuses::new(hub.clone(), delivery.clone(), metrics.clone()),
            jobs: Jobs::new(hub.clone(), delivery, metrics.clone(), options.hook_url, tx.clone()),
            tx: tx.clone(),
            hub,
            metrics,
            lease_commands,
        };
        (runtime, tx)
    }

    /// The pipelines as the hook server sees them.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// Runs until all senders of inputs are gone.
    pub async fn run(mut self) {
        // Most hubs have targets themselves, so the session with the hub starts immediately.
        let (hub, observe) = (KubeconfigSource::Local, self.observe);
        self.sessions.start_or_update(&ClusterKey::Local, hub, BTreeSet::new(), observe);
        let mut batch = Vec::new();
        loop {
            let pause = self.pause();
            tokio::select! {
                biased;
                // First, because inputs may come without a pause. The reader may be gone.
                request = self.snapshots.next() => drop(request.send(self.state.snapshot())),
                n = self.inputs.recv_many(&mut batch, MAX_INPUTS) => if n == 0 { return },
                () = tokio::time::sleep(pause) => {}
            }
            let may_change = !batch.is_empty() || self.state.queued() > 0;
            for input in batch.drain(..) {
                self.take_in(input);
            }
            self.step(Input::Tick);
            let begun = Instant::now();
            while self.state.queued() > 0 && begun.elapsed() < RECONCILE_SLICE {
                let reconciled = Instant::now();
                self.step(Input::Reconcile);
                let took = reconciled.elapsed();
                if took > LONG_RECONCILE {
                    self.step(Input::ReconcileTook(took));
                }
            }
            if may_change {
                self.snapshots.note_change();
            }
            self.refresh_metrics();
        }
    }

    /// How long to wait for inputs.
    fn pause(&self) -> Duration {
        if self.state.queued() > 0 {
            return Duration::ZERO;
        }
        let next = self.state.next_tick().map(|at| at.saturating_duration_since(Instant::now()));
        next.map_or(MAX_ROUND_PAUSE, |pause| pause.min(MAX_ROUND_PAUSE))
    }

    /// Updates the metrics that follow from the state.
    fn refresh_metrics(&self) {
        if self.state.is_ready() {
            self.metrics.set_ready();
        }
        self.metrics.record_iteration(self.state.queued());
        let (up, all) = self.state.clusters_up();
        self.metrics.set_clusters(up, all, self.state.observed_objects());
    }

    /// Takes in an input.
    fn take_in(&mut self, input: Input) {
        match &input {
            // The session has ended since, so its events are outdated.
            Input::Cluster(key, session, ..) if !self.sessions.is_current(key, *session) => return,
            Input::Called(key) => self.directory.reconcile_begun(key),
            Input::StatusWritten(owner, _, outcome) => self.count_write(owner, outcome),
            _ => {}
        }
        let is_outcome = matches!(input, Input::JobEnded(_));
        let effects = self.state.step(input, now());
        if is_outcome && effects.iter().any(is_record_write) {
            fault::point("before-outcome");
        }
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn step(&mut self, input: Input) {
        let effects = self.state.step(input, now());
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn count_write(&self, owner: &StatusOwner, outcome: &WriteOutcome) {
        self.metrics.count_status_write(owner.kind(), outcome);
        match (owner, outcome) {
            (_, WriteOutcome::Failed(error)) => {
                tracing::warn!(pipeline = %owner.pipeline(), promotion = owner.promotion(), error = %write_error_message(error), "cannot write a status; it will be retried");
            }
            (StatusOwner::Promotion(..), WriteOutcome::Stored(_)) => fault::point("after-outcome"),
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteStatus(write) => self.statuses.send(write),
            Effect::CreatePromotion(key, object, fencing_token) => {
                self.records.create(key, *object, fencing_token)
            }
            Effect::ReadPromotion(key, name) => self.records.read(key, name),
            Effect::DeletePromotion(key, name, uid, fencing_token) => {
                self.records.delete(key, name, uid, fencing_token)
            }
            Effect::ReadSecretVersion(key, promotion, secret) => {
                self.read_secret_version(key, promotion, secret)
            }
            Effect::Start(job) => self.jobs.start(*job),
            Effect::Revoke(fencing_token) => fencing_token.revoke(),
            Effect::EndTerm(term) => term.end(),
            Effect::ReportCommitStatus(status) => self.commit_statuses.send(*status),
            Effect::SendEvent(event) => self.events.send(event),
            Effect::Connect(key, access, namespaces, observe) => {
                self.sessions.start_or_update(&key, access, namespaces, observe)
            }
            Effect::Disconnect(key) => self.sessions.end(&key),
            Effect::ReadOwned(key, read) => self.sessions.read_owned(&key, read),
            Effect::Publish(key, pipeline) => self.directory.put(key, pipeline),
            Effect::Unpublish(key) => self.directory.remove(&key),
            Effect::PublishedAll => self.directory.complete(),
            Effect::Later(pause, input) => self.later(pause, *input),
            Effect::Resync(resync) => self.resync(resync),
            // If the lease manager has ended, the Leases expire.
            Effect::ReleaseShard(shard) => drop(self.lease_commands.send(LeaseCommand::HandBack(shard))),
            Effect::UpdateMetrics(update) => self.update_metrics(update),
        }
    }

    fn read_secret_version(&self, key: PipelineKey, promotion: String, secret: String) {
        let (hub, tx) = (self.hub.clone(), self.tx.clone());
        tokio::spawn(async move {
            if let Some(version) = credentials::read_version(&hub, &key.namespace, &secret).await {
                let _ = tx.send(Input::SecretVersion(key, promotion, version));
            }
        });
    }

    fn later(&self, pause: Duration, input: Input) {
        let tx = self.tx.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = tx.send(input);
        });
    }

    fn resync(&self, resync: Resync) {
        let (hub, namespace, tx) = (self.hub.clone(), self.watch_namespace.clone(), self.tx.clone());
        tokio::spawn(async move {
            if let Some(stored) = resync::read(hub, namespace, resync).await {
                let _ = tx.send(Input::Resynced(Box::new(stored)));
            }
        });
    }

    fn update_metrics(&self, update: MetricUpdate) {
        match update {
            MetricUpdate::Reconciled => drop(self.metrics.reconciles.inc()),
            MetricUpdate::Waited(time) => self.metrics.observe_wait(time),
            MetricUpdate::Failed(reason) => self.metrics.count_failure(&reason),
            MetricUpdate::Entered(phase) => self.metrics.count_phase(&phase),
            MetricUpdate::PromotionCreated => self.metrics.count_write("Promotion"),
            MetricUpdate::Steps(namespace, spec, steps) => {
                self.metrics.steps.completed(&namespace, &spec, &steps)
            }
            MetricUpdate::ApprovalsChecked(checked) => {
                self.metrics.approvals_checked.set(i64::from(checked));
            }
        }
    }
}

/// The time, by all clocks.
fn now() -> Now {
    Now { instant: Instant::now(), wall: clock::now(), boot: since_boot() }
}

/// Whether an effect writes the status of a promotion.
fn is_record_write(effect: &Effect) -> bool {
    matches!(effect, Effect::WriteStatus(write) if matches!(write.owner, StatusOwner::Promotion(..)))
}
