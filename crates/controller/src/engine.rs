//! The loop: takes in what happens, finds out which pipelines it concerns, and gives each of them a
//! turn. One task owns all state; whatever waits for somebody else runs in a task of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::{Client, ResourceExt};
use sluice_api::cluster::GitopsClusterSpec;
use sluice_api::pipeline::{Observe, Pipeline as ApiPipeline, PipelineStatus, Target};
use sluice_api::promotion::{Callback, Promotion as ApiPromotion};
use sluice_core::evidence::Evidence;
use sluice_core::model::Pipeline;
use sluice_delivery::{Delivery, Permit};
use tokio::sync::mpsc;

use crate::act::polling::Polling;
use crate::hook::Directory;
use crate::intake::{Input, PipelineKey};
use crate::metrics::Metrics;
use crate::observe::early::{Early, Heard, STANDING};
use crate::observe::facts::{ClusterEvent, ClusterKey};
use crate::observe::index::{Index, Touched};
use crate::observe::reported::Reports;
use crate::options::Options;
use crate::record::events::Events;
use crate::record::writer::{Spelled, StatusOf, Writer, Written, spell};
use crate::translate;
use crate::watch::fleet::Fleet;
use crate::watch::guard::Unreadable;
use crate::watch::session::Access;
use crate::watch::stream::Seen;

/// Everything that the loop owns.
pub struct Engine {
    pub(crate) options: Options,
    pub(crate) hub: Client,
    pub(crate) delivery: Delivery,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    pub(crate) tell: mpsc::UnboundedSender<Input>,
    pub(crate) writer: Writer,
    pub(crate) index: Index,
    early: Early,
    pub(crate) pipelines: HashMap<PipelineKey, Entry>,
    directory: Arc<Directory>,
    pub(crate) promotions: HashMap<PipelineKey, BTreeMap<String, Record>>,
    /// What is under way for a place of a pipeline, with the leave to do it.
    pub(crate) under_way: HashMap<(PipelineKey, String), Permit>,
    pub(crate) polling: Polling,
    fleet: Fleet,
    clusters: Option<HashMap<(String, String), GitopsClusterSpec>>,
    has_cluster_kind: bool,
    places: BTreeMap<ClusterKey, BTreeMap<String, BTreeSet<PipelineKey>>>,
    /// The places have changed, and the fleet has not been told yet.
    moved: bool,
    listed: (bool, bool),
    due: BTreeSet<PipelineKey>,
    timers: BTreeSet<(Instant, PipelineKey)>,
    wakes: HashMap<PipelineKey, Instant>,
    started: Instant,
}

/// A pipeline that is looked after.
pub(crate) struct Entry {
    /// As its owner wrote it; its status is not kept here.
    pub object: Arc<ApiPipeline>,
    /// The same as `core` sees it.
    pub model: Pipeline,
    /// What calls have left in its status.
    pub told: Told,
    /// What its targets have proven.
    pub evidence: Evidence,
    /// The status as it stands, or is being written.
    pub status: Option<Spelled>,
    /// The resource version under which our last write stands.
    pub written: u64,
    /// Since when a status that differs waits to be written.
    pub differs: Option<Instant>,
    /// When a status was last sent.
    pub sent: Option<Instant>,
    /// When something happened that it has not had a turn for.
    pub touched: Option<Instant>,
    /// By environment: why a promotion into it could not be recorded.
    pub unrecorded: BTreeMap<String, String>,
    /// Not before then is another one tried.
    pub unrecorded_until: Option<Instant>,
}

/// What calls leave in a pipeline's status, whichever replica took them. It is never ours to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// What the members of targets that cannot be read have reported.
    pub reports: Reports,
    /// When a forge last said that something became of a change request.
    forge_called: Option<String>,
}

impl Told {
    /// Takes it out of a status.
    fn of(status: &mut PipelineStatus) -> Self {
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
    /// This process made it, and has not tried to deliver it yet.
    pub first: bool,
}

impl Entry {
    /// The status as it stands, or is being written.
    pub fn stands(&self) -> PipelineStatus {
        self.status.as_ref().and_then(|s| serde_json::from_str(s.get()).ok()).unwrap_or_default()
    }
}

impl Record {
    /// Whether it is of this very pipeline, and not of an earlier one of the same name.
    pub fn belongs_to(&self, pipeline: &ApiPipeline) -> bool {
        let owners = self.object.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|o| o.kind == "Pipeline").peekable();
        owners.peek().is_none() || owners.any(|o| Some(&o.uid) == pipeline.metadata.uid.as_ref())
    }
}

/// The longest time without a turn of the loop, for the sake of liveness.
const TICK: Duration = Duration::from_secs(5);

impl Engine {
    /// An engine that knows nothing yet, and the way to tell it things.
    pub fn new(
        options: Options,
        hub: Client,
        delivery: Delivery,
        metrics: Arc<Metrics>,
    ) -> (Self, mpsc::UnboundedReceiver<Input>) {
        let (tell, inputs) = mpsc::unbounded_channel();
        let engine = Self {
            hub: hub.clone(),
            delivery,
            events: Events::new(hub.clone(), metrics.clone()),
            writer: Writer::new(hub.clone(), tell.clone()),
            fleet: Fleet::new(hub, options.insecure_kubeconfig_exec, tell.clone()),
            polling: Polling::every(options.poll_interval),
            options,
            metrics,
            tell,
            index: Index::default(),
            early: Early::default(),
            pipelines: HashMap::new(),
            directory: Arc::default(),
            promotions: HashMap::new(),
            under_way: HashMap::new(),
            clusters: None,
            has_cluster_kind: true,
            places: BTreeMap::new(),
            moved: false,
            listed: (false, false),
            due: BTreeSet::new(),
            timers: BTreeSet::new(),
            wakes: HashMap::new(),
            started: Instant::now(),
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
            let next =
                self.timers.first().map_or(TICK, |(at, _)| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                n = inputs.recv_many(&mut batch, 512) => if n == 0 { return },
                () = tokio::time::sleep(next.min(TICK)) => {}
            }
            for input in batch.drain(..) {
                self.take_in(input);
            }
            self.wake(Instant::now());
            self.turns();
        }
    }

    fn turns(&mut self) {
        if self.listed == (true, true) {
            self.metrics.set_ready();
            while let Some(key) = self.due.pop_first() {
                self.metrics.turns.inc();
                // A turn finds out anew when the next one is due.
                self.no_wake(&key);
                self.turn(&key, Timestamp::now());
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

    fn no_wake(&mut self, key: &PipelineKey) {
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

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Pipelines(seen) => self.pipelines_seen(seen),
            Input::Promotions(seen) => self.promotions_seen(seen),
            Input::Clusters(seen) => self.clusters_seen(seen),
            Input::Cluster(key, number, event) => {
                if self.fleet.is_current(&key, number) {
                    self.cluster_said(key, event);
                }
            }
            Input::Stood(key, object, number) => {
                if let Some(event) = self.early.due(&key, &object, number) {
                    self.cluster_event(&key, event);
                }
            }
            Input::Called(key) => self.touch(&key),
            Input::Written(object, how) => self.written(&object, &how),
            Input::Created(pipeline, name, result) => self.created(&pipeline, &name, result),
            Input::Done(done) => self.done(*done),
        }
    }

    fn pipelines_seen(&mut self, seen: Seen<ApiPipeline>) {
        match seen {
            Seen::Listed(objects) => {
                let there: HashSet<PipelineKey> = objects.iter().map(key_of).collect();
                let gone: Vec<_> = self.pipelines.keys().filter(|k| !there.contains(*k)).cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
                objects.into_iter().for_each(|object| self.put_pipeline(object));
                (self.listed.0, self.moved) = (true, true);
                self.directory.complete();
            }
            Seen::Applied(object) => self.put_pipeline(object),
            Seen::Deleted(metadata) => self.forget(&named(&metadata)),
            // Nothing is done by an older version of it that its owner has replaced.
            Seen::Unreadable(bad) => {
                self.forget(&named(&bad.metadata));
                self.events.unreadable::<ApiPipeline>(bad);
            }
            Seen::Failed(error) => {
                tracing::warn!(%error, "cannot watch Pipelines: are the CRDs installed (sluice crds | kubectl apply -f -), and may the controller read them?")
            }
        }
        // Most of what is seen are our own statuses, and moves nothing.
        if std::mem::take(&mut self.moved) {
            self.settle_fleet();
        }
    }

    fn put_pipeline(&mut self, mut object: ApiPipeline) {
        let key = key_of(&object);
        if object.metadata.deletion_timestamp.is_some() {
            return self.forget(&key);
        }
        let version: u64 =
            object.metadata.resource_version.as_ref().and_then(|v| v.parse().ok()).unwrap_or(0);
        let mut status = object.status.take().unwrap_or_default();
        let told = Told::of(&mut status);
        let heard = self.hear(&key, &told);
        let same_object =
            self.pipelines.get_mut(&key).filter(|e| e.object.metadata.uid == object.metadata.uid);
        match same_object {
            Some(entry) if entry.object.metadata.generation == object.metadata.generation => {
                // Our own writes come back to us, late; somebody else's are put right again.
                let ours = version <= entry.written || status == entry.stands();
                if !ours && !self.writer.is_writing(&StatusOf::Pipeline(key.clone())) {
                    entry.status = spell(&status).ok();
                } else if !heard {
                    return;
                }
            }
            Some(entry) => {
                entry.model = translate::pipeline(&object);
                let before = std::mem::replace(&mut entry.object, Arc::new(object));
                // What is under way was begun for what the owner wanted before.
                self.under_way
                    .iter()
                    .filter(|((of, _), _)| *of == key)
                    .for_each(|(_, permit)| permit.revoke());
                self.displace(&key, &before);
                self.place(&key);
            }
            None => {
                if self.pipelines.contains_key(&key) {
                    self.forget(&key);
                }
                let entry = Entry {
                    model: translate::pipeline(&object),
                    object: Arc::new(object),
                    told,
                    evidence: translate::evidence(Some(&status)),
                    status: spell(&status).ok(),
                    written: 0,
                    differs: None,
                    sent: None,
                    touched: None,
                    unrecorded: BTreeMap::new(),
                    unrecorded_until: None,
                };
                if let Some(other) = self.pipelines.insert(key.clone(), entry) {
                    self.displace(&key, &other.object);
                }
                self.place(&key);
            }
        }
        self.touch(&key);
    }

    /// Takes in what calls have left, which a watch tells in its order, however late it is with what was
    /// written here. Says whether there is something new.
    fn hear(&mut self, key: &PipelineKey, told: &Told) -> bool {
        let Some(entry) = self.pipelines.get_mut(key).filter(|entry| entry.told != *told) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.told, told.clone());
        if before.forge_called != told.forge_called {
            let records = self.promotions.get(key).into_iter().flatten();
            records.for_each(|(name, _)| self.polling.hasten(name, Instant::now()));
        }
        true
    }

    /// Notes where a pipeline has its targets.
    fn place(&mut self, key: &PipelineKey) {
        let Some(object) = self.pipelines.get(key).map(|e| e.object.clone()) else { return };
        self.directory.put(key.clone(), object.clone());
        for target in read_of(&object) {
            let cluster = translate::cluster_of(target, &key.namespace);
            let places = self.places.entry(cluster).or_default();
            places.entry(target.namespace.clone()).or_default().insert(key.clone());
        }
        self.moved = true;
    }

    /// Forgets where a pipeline had its targets.
    fn displace(&mut self, key: &PipelineKey, object: &ApiPipeline) {
        for target in read_of(object) {
            let cluster = translate::cluster_of(target, &key.namespace);
            let Some(places) = self.places.get_mut(&cluster) else { continue };
            if let Some(pipelines) = places.get_mut(&target.namespace) {
                pipelines.remove(key);
                if pipelines.is_empty() {
                    places.remove(&target.namespace);
                }
            }
        }
        self.moved = true;
    }

    fn forget(&mut self, key: &PipelineKey) {
        // What is under way for it is nobody's wish any more.
        self.under_way.iter().filter(|((of, _), _)| of == key).for_each(|(_, permit)| permit.revoke());
        if let Some(entry) = self.pipelines.remove(key) {
            self.displace(key, &entry.object);
        }
        self.directory.remove(key);
        self.due.remove(key);
        self.no_wake(key);
    }

    fn promotions_seen(&mut self, seen: Seen<ApiPromotion>) {
        match seen {
            Seen::Listed(objects) => {
                let there: HashSet<(PipelineKey, String)> =
                    objects.iter().map(|o| (pipeline_of(o), o.name_any())).collect();
                let mut lost = Vec::new();
                for (key, records) in &mut self.promotions {
                    let before = records.len();
                    records.retain(|name, r| !r.stored || there.contains(&(key.clone(), name.clone())));
                    lost.extend((records.len() < before).then(|| key.clone()));
                }
                lost.iter().for_each(|key| self.touch(key));
                objects.into_iter().for_each(|object| self.put_promotion(object));
                self.listed.1 = true;
            }
            Seen::Applied(object) => self.put_promotion(object),
            Seen::Deleted(metadata) => self.lose_promotion(&named(&metadata)),
            // Its name stays taken, so that what it stands for is not begun a second time.
            Seen::Unreadable(bad) => {
                self.lose_promotion(&named(&bad.metadata));
                self.events.unreadable::<ApiPromotion>(bad);
            }
            Seen::Failed(error) => {
                tracing::warn!(%error, "cannot watch Promotions: are the CRDs installed (sluice crds | kubectl apply -f -), and may the controller read them?")
            }
        }
    }

    /// Forgets a record, whichever pipeline it was of.
    fn lose_promotion(&mut self, gone: &PipelineKey) {
        self.polling.forget(&gone.name);
        let here = |(key, records): (&PipelineKey, &mut BTreeMap<String, Record>)| {
            let held = key.namespace == gone.namespace && records.remove(&gone.name).is_some();
            held.then(|| key.clone())
        };
        let of = self.promotions.iter_mut().find_map(here);
        of.iter().for_each(|key| self.touch(key));
    }

    /// Takes in a record. People change its spec; its status only this process writes, and knows
    /// better than a watch that lags behind.
    fn put_promotion(&mut self, mut object: ApiPromotion) {
        let (key, name) = (pipeline_of(&object), object.name_any());
        let records = self.promotions.entry(key.clone()).or_default();
        let first = records.get(&name).is_some_and(|r| r.first);
        let said = object.status.as_mut().and_then(|status| status.callback.take());
        if let Some(known) = records.get(&name) {
            object.status.clone_from(&known.object.status);
            if known.stored && known.object.spec == object.spec && known.said == said {
                return;
            }
        }
        records.insert(name, Record { object: Arc::new(object), stored: true, said, first });
        self.touch(&key);
    }

    fn clusters_seen(&mut self, seen: Option<Seen<sluice_api::GitopsCluster>>) {
        let key = |c: &sluice_api::GitopsCluster| (c.namespace().unwrap_or_default(), c.name_any());
        self.has_cluster_kind = seen.is_some();
        match seen {
            None => self.clusters = Some(HashMap::new()),
            Some(Seen::Listed(all)) => {
                self.clusters = Some(all.into_iter().map(|c| (key(&c), c.spec)).collect())
            }
            Some(Seen::Applied(c)) => {
                self.clusters.get_or_insert_default().insert(key(&c), c.spec);
            }
            Some(Seen::Deleted(metadata) | Seen::Unreadable(Unreadable { metadata, .. })) => {
                let gone = named(&metadata);
                self.clusters.get_or_insert_default().remove(&(gone.namespace, gone.name));
            }
            Some(Seen::Failed(error)) => {
                tracing::warn!(%error, "cannot watch GitopsClusters: may the controller read them?");
            }
        }
        self.settle_fleet();
    }

    /// Has a session with each cluster that a pipeline refers to, and with no other.
    fn settle_fleet(&mut self) {
        if !self.listed.0 {
            return;
        }
        let unwanted: Vec<ClusterKey> =
            self.places.iter().filter(|(_, places)| places.is_empty()).map(|(key, _)| key.clone()).collect();
        for key in unwanted {
            self.places.remove(&key);
            self.fleet.end(&key);
            self.index.forget(&key);
        }
        let wanted: Vec<(ClusterKey, BTreeSet<String>)> =
            self.places.iter().map(|(key, places)| (key.clone(), places.keys().cloned().collect())).collect();
        for (key, namespaces) in wanted {
            match self.access(&key) {
                None => {}
                Some(Ok(access)) => self.fleet.keep(&key, access, namespaces),
                Some(Err(why)) => {
                    self.fleet.end(&key);
                    self.cluster_event(&key, ClusterEvent::Lost(why));
                }
            }
        }
    }

    /// Where the kubeconfig of a cluster is; `None` before the hub's clusters are known.
    fn access(&self, key: &ClusterKey) -> Option<Result<Access, String>> {
        let ClusterKey::Remote { namespace, name } = key else { return Some(Ok(Access::Local)) };
        if !self.has_cluster_kind {
            return Some(Err(
                "this cluster has no kind GitopsCluster (gitops.weave.works): install its CRD, or leave clusterRef out"
                    .into(),
            ));
        }
        let Some(spec) = self.clusters.as_ref()?.get(&(namespace.clone(), name.clone())) else {
            return Some(Err(format!(
                "there is no GitopsCluster {namespace}/{name}: create it, or correct the target's clusterRef"
            )));
        };
        Some(match spec.kubeconfig_secret() {
            Some(secret) => Ok(Access::Secret { namespace: namespace.clone(), name: secret }),
            None => Err(format!(
                "GitopsCluster {namespace}/{name} says not where its kubeconfig is: set spec.secretRef.name or \
                 spec.capiClusterRef.name"
            )),
        })
    }

    /// Takes in what a cluster says, or lets it wait where it may have come too early.
    fn cluster_said(&mut self, key: ClusterKey, event: ClusterEvent) {
        match self.early.hear(&self.index, &key, event) {
            Heard::Now(event) => self.cluster_event(&key, event),
            Heard::Later(object, number) => {
                let tell = self.tell.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(STANDING).await;
                    let _ = tell.send(Input::Stood(key, object, number));
                });
            }
        }
    }

    fn cluster_event(&mut self, key: &ClusterKey, event: ClusterEvent) {
        // A cluster that nobody refers to any more has nothing to say.
        let Some(places) = self.places.get(key) else { return };
        let touched = self.index.apply(key, event);
        let pipelines: Vec<PipelineKey> = match touched {
            Touched::Nothing => return,
            Touched::Everything => places.values().flatten().cloned().collect(),
            Touched::Namespaces(namespaces) => {
                namespaces.iter().filter_map(|n| places.get(n)).flatten().cloned().collect()
            }
        };
        pipelines.iter().for_each(|pipeline| self.touch(pipeline));
    }

    fn written(&mut self, object: &StatusOf, how: &Written) {
        self.metrics.written(object.kind(), how);
        if let Written::Failed(error) = how {
            tracing::warn!(?object, %error, "cannot write a status; it is tried again");
        }
        self.writer.ended(object, how);
        if let (StatusOf::Pipeline(key), Written::Stands(version)) = (object, how)
            && let Some(entry) = self.pipelines.get_mut(key)
        {
            entry.written = version.parse().unwrap_or(entry.written);
        }
        if let (StatusOf::Promotion(..), Written::Stands(_)) = (object, how) {
            sluice_delivery::fault::point("after-outcome");
        }
    }

    /// How long this process has been running.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The targets of a pipeline that are read: those that only report are on clusters that nobody reaches.
fn read_of(object: &ApiPipeline) -> impl Iterator<Item = &Target> {
    let targets = object.spec.environments.iter().flat_map(|e| &e.targets);
    targets.filter(|target| target.observe == Observe::Watch)
}

/// The key of a pipeline.
pub(crate) fn key_of(object: &ApiPipeline) -> PipelineKey {
    PipelineKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// The namespace and name that an object has.
fn named(metadata: &ObjectMeta) -> PipelineKey {
    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
    PipelineKey { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
}

/// The key of a promotion's pipeline.
fn pipeline_of(object: &ApiPromotion) -> PipelineKey {
    PipelineKey { namespace: object.namespace().unwrap_or_default(), name: object.spec.pipeline.clone() }
}
