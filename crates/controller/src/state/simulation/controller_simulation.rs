//! Simulates what the controller's state works with: an API server, a git repository, a cluster with Flux, and people.
//! The test says when each effect is carried out and when its answer arrives. An effect may fail, and an answer may get
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::sync::Arc;
use std::time::Instant;

use jiff::SignedDuration;
use kube::ResourceExt;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, Rejection};
use sluice_delivery::{DeliveryError, EditError, FencingToken};

use super::clusters::eu_cluster;
use super::forge::{SimulatedForge, branch_of};
use super::people::is_rejected;
use super::server::{HubEvent, SimulatedHub};
use crate::act::{ActError, JobOutcome};
use crate::metrics::PromotionStep;
use crate::state::effect::{Job, Work};
use crate::state::fixtures::{ended, state_at};
use crate::state::status_queue::{
    SerializedStatus, StatusWrite, StoredObject, WriteOutcome, serialize_status,
};
use crate::state::*;
use crate::timeout::{API_CALL_TIMEOUT, timed_out};
use crate::watch::stream::ObjectEvent;
use sluice_core::fleet::ClusterEvent;

/// The environments, in order. Each has one target in a namespace of its name.
pub(super) const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];
/// The namespace and name of the second target of dev.
pub(super) const SECOND_DEV: &str = "dev2";

/// The most reconciliations that follow from one input.
const MAX_TURNS: usize = 50;

/// A fault while an effect is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectFault {
    None,
    /// The effect is not carried out, and the answer is an error.
    Refused,
    /// The effect is carried out, and the answer is an error.
    AnswerLost,
    /// The head branch is pushed, and no change request is opened or updated. The answer is an error.
    OnlyPushed,
}

/// What an environment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::state) struct RunningVersion {
    pub version: u32,
    pub is_healthy: bool,
}

/// The controller's state, and everything around it.
pub(super) struct ControllerSimulation {
    pub state: State,
    start: Instant,
    /// Seconds since the start, by the monotonic clock.
    pub elapsed: u64,
    /// The seconds by which the wall clock is ahead, or behind if negative.
    wall_offset: i64,
    pub(super) server: SimulatedHub,
    /// The version in the files of each environment.
    pub(super) files: BTreeMap<&'static str, u32>,
    pub(super) forge: SimulatedForge,
    /// Whether the pipeline promotes by change request, and dev has a second target.
    pub(super) has_requests: bool,
    /// The commits, by promotion and round.
    pub(super) commits: BTreeSet<(String, u32)>,
    /// The branch of each commit.
    pub(super) commit_branches: BTreeMap<String, String>,
    pub fleet: BTreeMap<&'static str, RunningVersion>,
    /// The events of clusters that are not delivered yet. The events of one entry are delivered together.
    pub(super) cluster_events: Vec<(ClusterKey, Vec<ClusterEvent>)>,
    /// When each cluster was connected, in seconds since the start.
    pub(super) connected: BTreeMap<ClusterKey, u64>,
    /// Whether the cluster `eu` cannot be reached.
    pub(super) is_eu_lost: bool,
    /// When the cluster `eu` last became reachable again.
    pub(super) eu_back: Option<u64>,
    pub(super) pending: Vec<Effect>,
    pub(super) answers: Vec<Input>,
    /// Status writes of earlier processes that were sent and have not arrived.
    late_writes: Vec<StatusWrite>,
    /// The promotions whose creation was answered with a conflict, each with the time of the answer and the uid of the
    /// existing object.
    pub(super) refused: BTreeMap<String, (u64, Option<String>)>,
    /// Deliveries that took effect, by uid and round.
    pub(super) delivered: BTreeSet<(Option<String>, u32)>,
    /// The last status of the Pipeline that the state wrote or read at its start.
    pub(super) last_status: Option<SerializedStatus>,
    /// Inputs that arrive at a later second, as the state requested with [`Effect::Later`].
    pub(super) later: Vec<(u64, Input)>,
    /// What each environment has run healthily.
    pub(super) proven: BTreeMap<&'static str, BTreeSet<u32>>,
    /// The deliveries that were started while the Pipeline asked for an approval, by uid and round.
    pub(super) needed_approval: BTreeSet<(Option<String>, u32)>,
    /// The newest Pipeline that the state has received; `None` after its deletion.
    pub(super) known: Option<Arc<Pipeline>>,
    /// The rejections that the API server accepted, by the uid of the promotion, each with the request for another try at
    /// that time.
    pub(super) rejections: BTreeMap<Option<String>, (Rejection, Option<String>)>,
    /// The newest version of each promotion that the state has received, and whether it is rejected, by its uid.
    pub(super) rejected_as_known: BTreeMap<Option<String>, (u64, bool)>,
    /// The numbers of effects of each kind, which tests limit.
    pub creations: usize,
    pub pipeline_writes: usize,
    pub promotion_writes: usize,
    /// How many waits at gates the metrics have counted.
    pub gate_waits: usize,
    pub jobs: usize,
}

impl ControllerSimulation {
    pub(super) fn new(manual: bool) -> Self {
        let start = Instant::now();
        let mut simulation = Self {
            state: state_at(crate::state::fixtures::at(start, 0)),
            start,
            elapsed: 0,
            wall_offset: 0,
            server: SimulatedHub { version: 10, ..SimulatedHub::default() },
            files: ENVIRONMENTS.map(|environment| (environment, 1)).into(),
            forge: SimulatedForge::default(),
            has_requests: false,
            commits: BTreeSet::new(),
            commit_branches: BTreeMap::new(),
            fleet: ENVIRONMENTS.map(|e| (e, RunningVersion { version: 1, is_healthy: true })).into(),
            cluster_events: Vec::new(),
            connected: BTreeMap::new(),
            is_eu_lost: false,
            eu_back: None,
            pending: Vec::new(),
            answers: Vec::new(),
            late_writes: Vec::new(),
            refused: BTreeMap::new(),
            delivered: BTreeSet::new(),
            last_status: None,
            later: Vec::new(),
            proven: ENVIRONMENTS.map(|environment| (environment, BTreeSet::from([1]))).into(),
            needed_approval: BTreeSet::new(),
            known: None,
            rejections: BTreeMap::new(),
            rejected_as_known: BTreeMap::new(),
            creations: 0,
            pipeline_writes: 0,
            promotion_writes: 0,
            gate_waits: 0,
            jobs: 0,
        };
        simulation.create_pipeline(manual);
        simulation.begin();
        simulation
    }

    /// The same with a pipeline that promotes by change request, and that needs both targets of dev.
    pub(super) fn with_requests(manual: bool) -> Self {
        let mut simulation = Self::new(manual);
        simulation.has_requests = true;
        simulation.fleet.insert(SECOND_DEV, RunningVersion { version: 1, is_healthy: true });
        simulation.proven.insert(SECOND_DEV, BTreeSet::from([1]));
        simulation.create_pipeline(manual);
        simulation.begin();
        simulation
    }

    pub(super) fn now(&self) -> Now {
        let mut now = crate::state::fixtures::at(self.start, self.elapsed);
        now.wall = now.wall.checked_add(SignedDuration::from_secs(self.wall_offset)).unwrap();
        now
    }

    // Actions of people and of the cluster.

    /// So many status writes fail, and prod changes between healthy and unhealthy. Only the answer to the first write is
    /// lost: that write is stored.
    pub(super) fn outage(&mut self, writes: u32) {
        for n in 0..writes {
            self.set_healthy("prod", n % 2 == 0);
            while !self.cluster_events.is_empty() {
                self.deliver_cluster_event();
            }
            self.pass(35);
            let fault = if n == 0 { EffectFault::AnswerLost } else { EffectFault::Refused };
            let is_write = |effect: &Effect| matches!(effect, Effect::WriteStatus(_));
            if let Some(index) = self.pending.iter().position(is_write) {
                self.carry_out(index, fault);
                self.answer(self.answers.len() - 1);
            }
        }
    }

    /// A process whose clock is a day ahead fails all its deliveries. Then another process with a right clock takes
    /// over.
    pub(super) fn fail_with_fast_clock(&mut self) {
        self.set_clock(86_400);
        for _ in 0..40 {
            self.deliver_event();
            self.deliver_cluster_event();
            let is_job = matches!(self.pending.first(), Some(Effect::Start(_)));
            self.carry_out(0, if is_job { EffectFault::Refused } else { EffectFault::None });
            self.answer(0);
            self.pass(1);
        }
        self.set_clock(0);
        self.begin();
    }

    /// A status write of an earlier process arrives.
    pub(super) fn late_write(&mut self, index: usize) {
        if !self.late_writes.is_empty() {
            let write = self.late_writes.remove(index % self.late_writes.len());
            self.server.write_late(write);
        }
    }

    // Inputs of the controller.

    /// A new process starts, with an empty state. Effects in flight are dropped, except status writes, which may arrive
    /// later.
    pub(super) fn begin(&mut self) {
        self.state = state_at(self.now());
        let sent = std::mem::take(&mut self.pending).into_iter().filter_map(|effect| match effect {
            Effect::WriteStatus(write) => Some(write),
            _ => None,
        });
        self.late_writes.extend(sent);
        self.answers.clear();
        self.later.clear();
        self.refused.clear();
        self.connected.clear();
        self.cluster_events.clear();
        self.known = None;
        self.rejected_as_known.clear();
        let status = self.server.pipeline.as_ref().and_then(|pipeline| pipeline.status.as_ref());
        self.last_status = status.map(|status| serialize_status(status).unwrap());
        let clusters = ObjectEvent::Listed(vec![eu_cluster()], 1);
        self.step(Input::Clusters(Some(clusters)));
        self.server.list();
        self.deliver_event();
        while !self.cluster_events.is_empty() {
            self.deliver_cluster_event();
        }
    }

    /// The watches of the hub list everything again. The next event delivers the list.
    pub(super) fn relist(&mut self) {
        self.server.list();
    }

    fn note_known(&mut self, pipeline: &Arc<Pipeline>) {
        let version = |known: &Pipeline| crate::resource_version::version_of(&known.metadata);
        if self.known.as_ref().is_none_or(|known| version(known) <= version(pipeline)) {
            self.known = Some(pipeline.clone());
        }
    }

    fn note_rejected(&mut self, promotion: &Promotion) {
        let version = crate::resource_version::version_of(&promotion.metadata);
        let known = self.rejected_as_known.entry(promotion.uid()).or_default();
        if version >= known.0 {
            *known = (version, is_rejected(&self.rejections, promotion));
        }
    }

    /// Delivers the next event of the watches.
    pub(super) fn deliver_event(&mut self) {
        if let Some((pipelines, promotions, version, end)) = self.server.listed.take() {
            self.server.delivered = end;
            pipelines.iter().for_each(|pipeline| self.note_known(pipeline));
            let pipelines = pipelines.into_iter().map(Arc::unwrap_or_clone).collect();
            self.step(Input::Pipelines(ObjectEvent::Listed(pipelines, version)));
            let writing = self.writing();
            promotions.iter().for_each(|promotion| self.note_rejected(promotion));
            let promotions = promotions.into_iter().map(Arc::unwrap_or_clone).collect();
            self.step(Input::Promotions(ObjectEvent::Listed(promotions, version)));
            self.check_still_writing(&writing);
        } else if let Some(event) = self.server.log.get(self.server.delivered).cloned() {
            self.server.delivered += 1;
            self.event(event);
        }
    }

    /// Delivers an earlier event again, like the answer to an earlier read that arrives late.
    pub(super) fn repeat_event(&mut self, index: usize) {
        let delivered = &self.server.log[..self.server.delivered];
        let is_deleted = |uid: Option<String>| {
            delivered.iter().any(|event| match event {
                HubEvent::Deleted(other) => other.uid() == uid,
                HubEvent::PipelineDeleted(other) => other.uid() == uid,
                _ => false,
            })
        };
        let event = delivered.get(index % delivered.len().max(1)).cloned();
        // After a watch has reported a deletion, it does not report an older state of the object.
        match event {
            Some(HubEvent::Promotion(object)) if is_deleted(object.uid()) => {}
            Some(HubEvent::Pipeline(object)) if is_deleted(object.uid()) => {}
            Some(event @ (HubEvent::Promotion(_) | HubEvent::Pipeline(_))) => self.event(event),
            Some(HubEvent::Deleted(_) | HubEvent::PipelineDeleted(_)) | None => {}
        }
    }

    fn event(&mut self, event: HubEvent) {
        match event {
            HubEvent::Pipeline(pipeline) => {
                self.note_known(&pipeline);
                self.step(Input::Pipelines(ObjectEvent::Applied(Arc::unwrap_or_clone(pipeline))));
            }
            HubEvent::PipelineDeleted(pipeline) => {
                self.known = self.known.take().filter(|known| known.uid() != pipeline.uid());
                self.last_status = None;
                self.step(Input::Pipelines(ObjectEvent::Deleted(pipeline.metadata.clone())));
            }
            HubEvent::Promotion(promotion) => {
                self.note_rejected(&promotion);
                self.step(Input::Promotions(ObjectEvent::Applied(Arc::unwrap_or_clone(promotion))));
            }
            HubEvent::Deleted(promotion) => {
                self.step(Input::Promotions(ObjectEvent::Deleted(promotion.metadata.clone())))
            }
        }
    }

    /// Time passes by all clocks.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.elapsed += seconds;
        let (due, later) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= self.elapsed);
        self.later = later;
        let due: Vec<(u64, Input)> = due;
        due.into_iter().for_each(|(_, input)| self.step(input));
        self.step(Input::Tick);
    }

    /// Someone sets the wall clock.
    pub(super) fn set_clock(&mut self, offset: i64) {
        self.wall_offset = offset;
    }

    /// Gives the state an input, and then lets it reconcile all pipelines in its queue.
    pub(super) fn step(&mut self, input: Input) {
        let effects = self.state.step(input, self.now());
        effects.into_iter().for_each(|effect| self.keep_effect(effect));
        let mut turns = 0;
        while self.state.queued() > 0 {
            turns += 1;
            assert!(turns < MAX_TURNS, "the pipeline is reconciled without end: {}", self.summary());
            let effects = self.state.step(Input::Reconcile, self.now());
            effects.into_iter().for_each(|effect| self.keep_effect(effect));
        }
    }

    /// Checks an effect, and keeps it until it is carried out.
    fn keep_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Later(pause, input) => self.later.push((self.elapsed + pause.as_secs().max(1), *input)),
            Effect::Revoke(fencing_token) => fencing_token.revoke(),
            Effect::WriteStatus(write) => {
                self.check_write(&write);
                match write.owner {
                    StatusOwner::Pipeline(_) => self.pipeline_writes += 1,
                    StatusOwner::Promotion(..) => self.promotion_writes += 1,
                }
                self.pending.push(Effect::WriteStatus(write));
            }
            Effect::CreatePromotion(key, object, fencing_token) => {
                self.check_creation(&object);
                self.creations += 1;
                self.pending.push(Effect::CreatePromotion(key, object, fencing_token));
            }
            Effect::Start(job) => {
                self.check_job(&job);
                self.jobs += 1;
                self.pending.push(Effect::Start(job));
            }
            Effect::ReadPromotion(..) | Effect::DeletePromotion(..) => self.pending.push(effect),
            Effect::UpdateMetrics(MetricUpdate::Steps(_, _, steps)) => {
                self.gate_waits += steps.iter().filter(|(step, _)| *step == PromotionStep::Gates).count();
            }
            Effect::Connect(cluster, ..) => self.connect(cluster),
            Effect::ReadOwned(cluster, read) => self.answer_read(cluster, read),
            Effect::Disconnect(cluster) => {
                self.connected.remove(&cluster);
                self.cluster_events.retain(|(other, _)| *other != cluster);
            }
            _ => {}
        }
    }

    // Effects.

    /// Carries out an effect that is pending.
    pub(super) fn carry_out(&mut self, index: usize, fault: EffectFault) {
        if self.pending.is_empty() {
            return;
        }
        let effect = self.pending.remove(index % self.pending.len());
        let answer = match effect {
            Effect::WriteStatus(write) => self.write(write, fault),
            Effect::CreatePromotion(key, object, fencing_token) => {
                self.create(key, *object, &fencing_token, fault)
            }
            Effect::ReadPromotion(key, name) => {
                let found = self.server.promotions.get(&name).map(|object| Box::new(object.as_ref().clone()));
                let found = found.ok_or_else(|| timed_out(API_CALL_TIMEOUT)).map(Some);
                Some(Input::PromotionCreated(key, name, found))
            }
            Effect::DeletePromotion(_, name, uid, _) => {
                let is_same = self.server.promotions.get(&name).is_some_and(|object| object.uid() == uid);
                if let Some(object) = is_same.then(|| self.server.promotions.remove(&name)).flatten() {
                    self.server.version += 1;
                    self.server.log.push(HubEvent::Deleted(object));
                }
                None
            }
            Effect::Start(job) => Some(self.perform(*job, fault)),
            _ => None,
        };
        self.answers.extend(answer);
    }

    /// Delivers an answer.
    pub(super) fn answer(&mut self, index: usize) {
        if !self.answers.is_empty() {
            let answer = self.answers.remove(index % self.answers.len());
            self.note_conflict(&answer);
            self.step(answer);
        }
    }

    fn note_conflict(&mut self, answer: &Input) {
        match answer {
            Input::PromotionCreated(_, name, Ok(None)) => {
                let uid = self.server.promotions.get(name).and_then(|object| object.uid());
                self.refused.insert(name.clone(), (self.elapsed, uid));
            }
            Input::StatusWritten(_, _, WriteOutcome::Conflict(stored)) => {
                if let StoredObject::Pipeline(pipeline) = &**stored {
                    self.note_known(&Arc::new(pipeline.clone()));
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, write: StatusWrite, fault: EffectFault) -> Option<Input> {
        let (owner, number) = (write.owner.clone(), write.number);
        let failed = || WriteOutcome::Failed(timed_out(API_CALL_TIMEOUT));
        let outcome = match fault {
            EffectFault::Refused => failed(),
            _ => self.server.write(write),
        };
        let outcome = if fault == EffectFault::AnswerLost { failed() } else { outcome };
        Some(Input::StatusWritten(owner, number, outcome))
    }

    fn create(
        &mut self,
        key: PipelineKey,
        mut object: Promotion,
        fencing_token: &FencingToken,
        fault: EffectFault,
    ) -> Option<Input> {
        let name = object.name_any();
        fencing_token.check().ok()?;
        if fault == EffectFault::Refused {
            return Some(Input::PromotionCreated(key, name, Err(timed_out(API_CALL_TIMEOUT))));
        }
        let created = if self.server.promotions.contains_key(&name) {
            None
        } else {
            object.metadata.uid = Some(format!("{name}-{}", self.server.version));
            self.server.created.insert(name.clone());
            Some(Box::new(Arc::unwrap_or_clone(self.server.store_promotion(object))))
        };
        let answer =
            if fault == EffectFault::AnswerLost { Err(timed_out(API_CALL_TIMEOUT)) } else { Ok(created) };
        Some(Input::PromotionCreated(key, name, answer))
    }

    fn perform(&mut self, job: Job, fault: EffectFault) -> Input {
        let takes_effect = matches!(job.work, Work::Deliver(_))
            && job.order.fencing_token.check().is_ok()
            && fault != EffectFault::Refused;
        if takes_effect {
            self.check_delivery(&job);
        }
        let by_forge = self.at_forge(&job, fault);
        let (order, promotion) = (&job.order, &job.promotion);
        let failed = || match fault {
            EffectFault::Refused => DeliveryError::Edit(EditError::NoMarker {
                repository: "fleet".into(),
                branch: "main".into(),
                marker: "m".into(),
                similar: None,
            }),
            _ => DeliveryError::CacheFolder { path: "/".into(), source: Error::other("no answer") },
        };
        let outcome = by_forge.unwrap_or_else(|| match &job.work {
            Work::CheckCommit(commit) => {
                let is_there = branch_of(order) == self.commit_branches.get(commit).map(String::as_str);
                JobOutcome::Check(Ok((!is_there).then(|| commit.clone())))
            }
            Work::Deliver(_) if order.fencing_token.check().is_err() => {
                JobOutcome::Delivery(Err(ActError::Delivery(DeliveryError::Revoked)))
            }
            Work::Deliver(_) => {
                let effect = (fault != EffectFault::Refused)
                    .then(|| self.commit(&promotion.name_any(), order, promotion));
                let delivered = effect.filter(|_| fault == EffectFault::None);
                JobOutcome::Delivery(delivered.ok_or_else(|| ActError::Delivery(failed())))
            }
            Work::FindDelivery => {
                let found = self.find_commit(&promotion.name_any(), order);
                let answer = if fault == EffectFault::None { Ok(found) } else { Err(failed()) };
                JobOutcome::Find(answer.map_err(ActError::Delivery))
            }
            Work::Follow { .. } | Work::FollowBeforeWithdrawal(_) | Work::Withdraw { .. } => {
                unreachable!("a forge carries it out")
            }
        });
        Input::JobEnded(Box::new(ended(&job, outcome)))
    }
}

/// A chart version as a number.
pub(super) fn version_of(revision: &str) -> u32 {
    revision.split('.').next_back().unwrap().parse().unwrap()
}
