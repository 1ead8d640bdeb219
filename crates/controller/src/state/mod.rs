//! The loop: takes in what happens, finds out which pipelines it concerns, and gives each of them a
//! turn. One task owns all state; whatever waits for somebody else runs in a task of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use sluice_api::cluster::GitopsClusterSpec;
use sluice_api::pipeline::{Pipeline as ApiPipeline, PipelineStatus};
use sluice_api::promotion::{Callback, KeyApproval, Promotion as ApiPromotion};
use sluice_core::evidence::Evidence;
use sluice_core::model::Pipeline;
use sluice_delivery::{Delivery, Line, Permit, clock};
use tokio::sync::mpsc;

use crate::act::polling::Polling;
use crate::act::report::Reported;
use crate::due::Due;
use crate::hook::Directory;
use crate::hook::condition::Problem;
use crate::intake::{Input, PipelineKey};
use crate::metrics::Metrics;
use crate::observe::early::Early;
use crate::observe::facts::{Allowed, ClusterKey};
use crate::observe::index::Index;
use crate::observe::reported::Reports;
use crate::options::Options;
use crate::record::events::Events;
use crate::record::pace::Damping;
use crate::record::queue::NewsQueue;
use crate::record::stored_time::StoredTimes;
use crate::record::writer::{Found, Spelled, StatusOf, Writer, Written};
use crate::shard::Shards;
use crate::watch::cause::words;
use crate::watch::fleet::Fleet;
use crate::watch::guard::Unreadable;
use crate::watch::session::Access;

/// Everything that the loop owns.
pub struct Engine {
    pub(crate) options: Options,
    pub(crate) hub: Client,
    pub(crate) delivery: Delivery,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// Commit statuses wait here.
    pub(crate) reports: NewsQueue,
    /// Calls of webhooks wait here, fair by namespace.
    pub(crate) calls: Arc<Line>,
    pub(crate) tell: mpsc::UnboundedSender<Input>,
    pub(crate) writer: Writer,
    pub(crate) index: Index,
    pub(crate) early: Early,
    pub(crate) pipelines: HashMap<PipelineKey, Entry>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) promotions: HashMap<PipelineKey, BTreeMap<String, Record>>,
    /// What is under way for a place of a pipeline, with the leave to do it.
    pub(crate) under_way: HashMap<(PipelineKey, String), Permit>,
    pub(crate) polling: Polling,
    pub(crate) stored_times: StoredTimes,
    /// For which pipelines this replica acts.
    pub(crate) shards: Shards,
    /// Why the API server does not check who approves, if it does not.
    pub(crate) approvals_unguarded: Option<String>,
    /// Objects that cannot be read, by kind.
    pub(crate) unreadable: BTreeMap<(&'static str, PipelineKey), Unreadable>,
    pub(crate) fleet: Fleet,
    pub(crate) clusters: Option<HashMap<(String, String), KnownCluster>>,
    pub(crate) has_cluster_kind: bool,
    pub(crate) places: BTreeMap<ClusterKey, BTreeMap<String, BTreeSet<PipelineKey>>>,
    /// When a pipeline first referred to each of the clusters in `places`.
    pub(crate) first_used: BTreeMap<ClusterKey, Instant>,
    /// The places have changed, and the fleet has not been told yet.
    pub(crate) moved: bool,
    pub(crate) listed: (bool, bool),
    /// The versions of the last lists of pipelines and of promotions.
    pub(crate) listed_at: (u64, u64),
    pub(crate) due: Due,
    timers: BTreeSet<(Instant, PipelineKey)>,
    wakes: HashMap<PipelineKey, Instant>,
}

/// A GitopsCluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownCluster {
    pub spec: GitopsClusterSpec,
    /// The namespaces whose Pipelines may use it, by its annotation.
    pub allowed: Option<Allowed>,
}

/// A pipeline that is looked after.
pub(crate) struct Entry {
    /// As its owner wrote it; its status is not kept here.
    pub object: Arc<ApiPipeline>,
    /// The same as `core` sees it.
    pub model: Pipeline,
    /// What calls have left in its status.
    pub told: Told,
    /// The newest version of the object that was read, by watch, list or get. Spec and calls are known as
    /// of this version; an acknowledged status write says nothing about them.
    pub read_at: u64,
    /// What its targets have proven.
    pub evidence: Evidence,
    /// The status as it stands, or is being written.
    pub status: Option<Spelled>,
    /// The version of the object at which its status was as it is here: of the last acknowledged write, or
    /// of the last read. 0 where that is not known. Says nothing about the spec: see `read_at`.
    pub version: u64,
    /// Since when a status that differs waits to be written.
    pub differs: Option<Instant>,
    /// When a status was last sent.
    pub sent: Option<Instant>,
    /// Slows down the writes of health that changes again and again.
    pub damping: Damping,
    /// Its owner has edited it since a status was composed for it.
    pub edited: bool,
    /// When something happened that it has not had a turn for.
    pub touched: Option<Instant>,
    /// When an event about each of its clusters was last sent.
    pub cluster_events: BTreeMap<ClusterKey, Instant>,
    /// By their names, the promotions that could not be recorded.
    pub unrecorded: BTreeMap<String, Unrecorded>,
    /// What is wrong with its Secrets with hook keys; `None` until they were read.
    pub hook_secret: Option<Option<Problem>>,
}

/// A promotion that could not be recorded.
#[derive(Debug)]
pub(crate) struct Unrecorded {
    /// What failed, and what to do.
    pub why: String,
    /// Recording it is not tried again before.
    pub until: Instant,
    /// The pause after the last failure.
    pub pause: Duration,
}

impl Unrecorded {
    /// One that has not failed yet.
    pub fn new(now: Instant) -> Self {
        Self { why: String::new(), until: now, pause: Duration::ZERO }
    }
}

/// What calls leave in a pipeline's status, whichever replica took them. It is never ours to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// What the members of targets that cannot be read have reported.
    pub reports: Reports,
    /// When a forge last said that something became of a change request.
    pub forge_called: Option<String>,
}

impl Told {
    /// Takes it out of a status.
    pub(crate) fn of(status: &mut PipelineStatus) -> Self {
        Self { reports: std::mem::take(&mut status.reports), forge_called: status.forge_called.take() }
    }
}

/// A promotion's record.
pub(crate) struct Record {
    /// As it stands, or is being written.
    pub object: Arc<ApiPromotion>,
    /// It stands on the server: only then may anything be done about it.
    pub stored: bool,
    /// What the other side of a webhook has said, whichever replica was told.
    pub said: Option<Callback>,
    /// The approval by key, whichever replica took it. It is never ours to write.
    pub key_approval: Option<Box<KeyApproval>>,
    /// This process made it, and has not tried to deliver it yet.
    pub first: bool,
    /// The newest version of the object that was read. Spec and callback are known as of this version.
    pub read_at: u64,
    /// The version of the object at which its status was as it is here; 0 where that is not known.
    pub version: u64,
    /// What this process has last reported on its commit.
    pub reported: Option<Reported>,
}

impl Entry {
    /// The newest version at which both spec and status are known.
    pub fn known_at(&self) -> u64 {
        self.read_at.min(self.version)
    }

    /// The status as it stands, or is being written.
    pub fn stands(&self) -> PipelineStatus {
        self.status.as_ref().and_then(|s| serde_json::from_str(s.get()).ok()).unwrap_or_default()
    }
}

impl Record {
    /// One that this process is making.
    pub fn being_made(object: Arc<ApiPromotion>) -> Self {
        let (said, key_approval, reported) = (None, None, None);
        Self { object, stored: false, said, key_approval, first: true, read_at: 0, version: 0, reported }
    }

    /// The newest version at which both spec and status are known.
    pub fn known_at(&self) -> u64 {
        self.read_at.min(self.version)
    }

    /// Whether it is of this very pipeline, and not of an earlier one of the same name.
    pub fn belongs_to(&self, pipeline: &ApiPipeline) -> bool {
        let owners = self.object.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|o| o.kind == "Pipeline").peekable();
        owners.peek().is_none() || owners.any(|o| Some(&o.uid) == pipeline.metadata.uid.as_ref())
    }
}

/// How many webhooks are called at the same time. A name that is looked up takes one of the 512 threads that Tokio
/// has for all that blocks (docs.rs/tokio, `Builder::max_blocking_threads`), and longer than the call if its DNS
/// server is slow.
pub(crate) const WEBHOOKS: usize = 32;
/// The longest time without a turn of the loop, for the sake of liveness.
const TICK: Duration = Duration::from_secs(5);
/// How long pipelines have their turns before the loop takes in what has arrived in the meantime: what a
/// namespace with many pipelines leaves to do does not delay what arrives for another one.
const SLICE: Duration = Duration::from_millis(20);

impl Engine {
    /// An engine that knows nothing yet, and the way to tell it things.
    pub fn new(
        options: Options,
        hub: Client,
        delivery: Delivery,
        metrics: Arc<Metrics>,
        shards: Shards,
    ) -> (Self, mpsc::UnboundedReceiver<Input>) {
        let (tell, inputs) = mpsc::unbounded_channel();
        let engine = Self {
            hub: hub.clone(),
            delivery,
            events: Events::new(hub.clone(), metrics.clone()),
            reports: NewsQueue::default(),
            calls: Line::new(WEBHOOKS),
            writer: Writer::new(hub.clone(), tell.clone()),
            fleet: Fleet::new(
                hub,
                options.insecure_kubeconfig_exec,
                options.observed_memory,
                tell.clone(),
                metrics.listed_again.clone(),
            ),
            polling: Polling::every(options.poll_interval),
            stored_times: StoredTimes::default(),
            options,
            metrics,
            tell,
            shards,
            approvals_unguarded: None,
            unreadable: BTreeMap::new(),
            index: Index::default(),
            early: Early::default(),
            pipelines: HashMap::new(),
            directory: Arc::default(),
            promotions: HashMap::new(),
            under_way: HashMap::new(),
            clusters: None,
            has_cluster_kind: true,
            places: BTreeMap::new(),
            first_used: BTreeMap::new(),
            moved: false,
            listed: (false, false),
            listed_at: (0, 0),
            due: Due::default(),
            timers: BTreeSet::new(),
            wakes: HashMap::new(),
        };
        (engine, inputs)
    }

    /// The way to tell it things.
    pub fn door(&self) -> mpsc::UnboundedSender<Input> {
        self.tell.clone()
    }

    /// What others may know of the pipelines.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// Runs until every way to tell it things is gone.
    pub async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        // Most hubs are a cluster of their own pipelines: it is read along with them, and let go
        // again if none has a target there.
        self.places.entry(ClusterKey::Local).or_default();
        self.fleet.keep(&ClusterKey::Local, Access::Local, BTreeSet::new());
        let mut batch = Vec::new();
        loop {
            let next = self.timers.first().map(|(at, _)| *at).into_iter().chain(self.shards.closing()).min();
            let is_behind = self.listed == (true, true) && self.due.len() > 0;
            let next = match next {
                _ if is_behind => Duration::ZERO,
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => TICK,
            };
            tokio::select! {
                biased;
                n = inputs.recv_many(&mut batch, 512) => if n == 0 { return },
                () = tokio::time::sleep(next.min(TICK)) => {}
            }
            for input in batch.drain(..) {
                self.take_in(input);
            }
            self.wake(Instant::now());
            self.settle_shards(Instant::now());
            self.turns();
        }
    }

    fn turns(&mut self) {
        if self.listed == (true, true) {
            self.metrics.set_ready();
            let begun = Instant::now();
            while begun.elapsed() < SLICE
                && let Some(key) = self.due.next()
            {
                // It has its turn where it is acted for, and here when that comes to be here.
                if !self.shards.acts(&key) {
                    continue;
                }
                self.metrics.turns.inc();
                // A turn finds out anew when the next one is due.
                self.no_wake(&key);
                self.turn(&key, clock::now());
            }
        }
        self.metrics.ticked(self.due.len());
        let (up, all) = self.index.clusters_up();
        self.metrics.clusters(up, all);
    }

    fn wake(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key.clone()));
            self.wakes.remove(&key);
            self.due.insert(key);
        }
    }

    /// Gives a pipeline a turn at a time, unless it has one before that.
    pub(crate) fn wake_at(&mut self, key: &PipelineKey, at: Instant) {
        match self.wakes.get(key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.timers.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.timers.insert((at, key.clone()));
        self.wakes.insert(key.clone(), at);
    }

    pub(crate) fn no_wake(&mut self, key: &PipelineKey) {
        if let Some(at) = self.wakes.remove(key) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    /// Gives a pipeline a turn as soon as may be.
    pub(crate) fn touch(&mut self, key: &PipelineKey) {
        if let Some(entry) = self.pipelines.get_mut(key) {
            entry.touched.get_or_insert_with(Instant::now);
            self.due.insert(key.clone());
        }
    }

    pub(crate) fn take_in(&mut self, input: Input) {
        match input {
            Input::Pipelines(seen) => self.pipelines_seen(seen),
            Input::Promotions(seen) => self.promotions_seen(seen),
            Input::Clusters(seen) => self.clusters_seen(seen),
            Input::Cluster(key, number, event, _ticket) => {
                if self.fleet.is_current(&key, number) {
                    self.cluster_said(key, event);
                }
            }
            Input::Stood(key, object, number) => {
                if let Some(event) = self.early.due(&key, &object, number) {
                    self.cluster_event(&key, event);
                }
            }
            Input::Called(key) => {
                self.directory.heard(&key);
                self.touch(&key);
            }
            Input::HookSecret(key, problem) => {
                if let Some(entry) = self.pipelines.get_mut(&key) {
                    entry.hook_secret = Some(problem);
                    self.touch(&key);
                }
            }
            Input::Written(object, number, how) => self.written(&object, number, how),
            Input::Created(pipeline, name, result) => self.created(&pipeline, &name, result),
            Input::Done(done) => self.done(*done),
            Input::Shards(news) => self.turned_over(news),
            Input::Standing(standing) => self.stands(*standing),
            Input::ApprovalPolicy(gap) => self.approvals_checked(gap),
        }
    }

    fn written(&mut self, object: &StatusOf, number: u64, how: Written) {
        self.metrics.written(object.kind(), &how);
        if let Written::Failed(error) = &how {
            tracing::warn!(pipeline = %object.pipeline(), promotion = object.promotion(), error = %words(error), "cannot write a status; it is tried again");
        }
        if !self.writer.ended(object, number, &how) {
            return;
        }
        match (object, how) {
            (StatusOf::Pipeline(key), Written::Stands(version)) => {
                if let Some(entry) = self.pipelines.get_mut(key) {
                    entry.version = entry.version.max(version);
                }
            }
            (StatusOf::Promotion(key, name), Written::Stands(version)) => {
                if let Some(record) = self.promotions.get_mut(key).and_then(|r| r.get_mut(name)) {
                    record.version = record.version.max(version);
                }
                sluice_delivery::fault::point("after-outcome");
            }
            (_, Written::Overtaken(found)) => self.overtaken(object, *found),
            (_, Written::Withheld) => self.unsure(object),
            _ => {}
        }
    }

    /// Nobody knows whether what was to be written stands.
    pub(crate) fn unsure(&mut self, object: &StatusOf) {
        match object {
            StatusOf::Pipeline(key) => {
                if let Some(entry) = self.pipelines.get_mut(key) {
                    entry.version = 0;
                }
            }
            StatusOf::Promotion(key, name) => {
                if let Some(record) = self.promotions.get_mut(key).and_then(|r| r.get_mut(name)) {
                    record.version = 0;
                }
            }
        }
    }

    /// Somebody else has written a status in the meantime: what stands is what counts. What this
    /// replica did since is found again, as after a crash.
    fn overtaken(&mut self, object: &StatusOf, found: Found) {
        tracing::warn!(pipeline = %object.pipeline(), promotion = object.promotion(), "somebody else has written this status; it is taken up as it stands");
        match (object, found) {
            // What is not known any more was removed since.
            (StatusOf::Pipeline(key), Found::Pipeline(pipeline)) => {
                if let Some(entry) = self.pipelines.get_mut(key) {
                    entry.version = 0;
                    self.put_pipeline(pipeline);
                }
            }
            (StatusOf::Promotion(key, name), Found::Promotion(promotion)) => {
                if let Some(record) = self.promotions.get_mut(key).and_then(|r| r.get_mut(name)) {
                    (record.version, record.first) = (0, false);
                    self.put_promotion(promotion);
                }
            }
            _ => {}
        }
    }

    /// How long ago a pipeline first referred to a cluster.
    pub(crate) fn used_for(&self, cluster: &ClusterKey) -> Duration {
        self.first_used.get(cluster).map(Instant::elapsed).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sluice_testkit::Scratch;

    use super::*;

    /// One that acts for everything, and is told by nobody. Nobody listens where its hub is.
    pub(crate) fn engine(scratch: &Scratch) -> Engine {
        let hub = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        engine_of(scratch, hub).0
    }

    /// One that acts for everything on this hub, and what its tasks tell it.
    pub(crate) fn engine_of(scratch: &Scratch, hub: Client) -> (Engine, mpsc::UnboundedReceiver<Input>) {
        let cache_dir = scratch.folder("cache").unwrap();
        let delivery = Delivery::new(sluice_delivery::Options::new(&cache_dir)).unwrap();
        let metrics = Arc::new(Metrics::new(delivery.clone()));
        let options = Options {
            watch_namespace: None,
            no_cross_namespace_refs: false,
            insecure_kubeconfig_exec: false,
            observed_memory: crate::options::OBSERVED_MEMORY,
            metrics_addr: None,
            health_addr: None,
            hook: None,
            hook_url: None,
            cache_dir,
            cache_bytes: sluice_delivery::DEFAULT_CACHE_BYTES,
            insecure_git_http: false,
            poll_interval: Duration::from_secs(30),
            history_limit: 20,
            delivery_timeout: Duration::from_secs(60),
            git_author: sluice_delivery::DEFAULT_AUTHOR.into(),
            events_addr: None,
            election: None,
            allowed_hosts: sluice_delivery::AllowedHosts::default(),
            webhooks: sluice_delivery::Allowed::default(),
        };
        Engine::new(options, hub, delivery, metrics, Shards::all())
    }
}
