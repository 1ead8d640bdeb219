//! A forge with one repository: head branches, change requests, and people who merge and close them. Deliveries, polls and
//! withdrawals do what `change_request/` of delivery does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_api::promotion::{Phase, Promotion, PromotionStatus, RecordedChangeRequest, RecordedRequestState};
use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, DeliveryError, DeliveryStrategy, MergeMode, Order,
    OutdatedReason,
};

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault, version_of};
use super::people::is_rejected;
use super::server::HubEvent;
use crate::act::{ActError, JobOutcome};
use crate::state::effect::{Effect, Job, Work};
use crate::state::fixtures::key;

/// A commit at the end of a head branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeadCommit {
    pub id: String,
    /// The promotion, as `namespace/name`.
    pub promotion: String,
    pub round: u32,
    pub version: u32,
    /// The version in the files that the commit was made for.
    base: u32,
}

impl HeadCommit {
    /// The name of the promotion.
    fn name(&self) -> &str {
        self.promotion.trim_start_matches("apps/")
    }
}

/// The state of a change request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    Open,
    Merged,
    Closed,
}

/// A change request at the forge.
#[derive(Clone, Debug)]
pub(super) struct SimulatedRequest {
    pub number: u64,
    pub environment: &'static str,
    branch: String,
    pub state: RequestState,
    /// The end of the branch when the change request was merged or closed.
    ended: Option<HeadCommit>,
    /// The promotion and round in the body.
    marker: (String, u32),
}

/// The forge.
#[derive(Debug, Default)]
pub(super) struct SimulatedForge {
    branches: BTreeMap<String, HeadCommit>,
    pub requests: Vec<SimulatedRequest>,
    /// The promotions whose recorded change request a person closed: uid, round, and the request for another try at that
    /// time.
    pub closed_by_people: Vec<(Option<String>, u32, Option<String>)>,
    /// The promotions of which a person has closed any change request, by the mark in its body.
    ever_closed_by_people: BTreeSet<String>,
}

impl SimulatedForge {
    pub(super) fn head(&self, request: &SimulatedRequest) -> HeadCommit {
        request.ended.clone().unwrap_or_else(|| self.branches[&request.branch].clone())
    }

    fn open_from(&self, branch: &str) -> Option<usize> {
        let mut requests = self.requests.iter();
        requests.position(|request| request.state == RequestState::Open && request.branch == branch)
    }

    fn end(&mut self, index: usize, state: RequestState) {
        self.requests[index].ended = Some(self.head(&self.requests[index]));
        self.requests[index].state = state;
    }

    pub(super) fn nth_open(&self, index: usize) -> Option<usize> {
        let open: Vec<usize> =
            (0..self.requests.len()).filter(|i| self.requests[*i].state == RequestState::Open).collect();
        open.get(index % open.len().max(1)).copied()
    }
}

fn failed() -> DeliveryError {
    DeliveryError::CacheFolder { path: "/".into(), source: Error::other("no answer") }
}

fn environment_of(order: &Order) -> &'static str {
    ENVIRONMENTS.into_iter().find(|environment| *environment == order.environment).unwrap()
}

fn carries(head: &HeadCommit, order: &Order) -> bool {
    (&head.promotion, head.round) == (&order.promotion, order.round)
}

/// Whether another open promotion, which may use the change request, has made the head of the branch.
fn is_of_another(job: &Job, head: &HeadCommit) -> bool {
    job.order.open_beside.contains(&head.promotion)
}

fn url(number: u64) -> String {
    format!("https://github.com/acme/fleet/pull/{number}")
}

fn request_of(request: &SimulatedRequest, head: &HeadCommit) -> ChangeRequest {
    ChangeRequest {
        number: request.number,
        url: url(request.number),
        branch: request.branch.clone(),
        head_commit: head.id.clone(),
        ..ChangeRequest::default()
    }
}

/// The strategy of a pipeline that promotes by change request, or by commit.
pub(super) fn strategy(by_request: bool) -> Value {
    match by_request {
        true => json!({"pull-request": {"type": "github", "url": "https://github.com/acme/fleet",
            "merge": "WhenGreen", "secretRef": {"name": "git"}}}),
        false => json!({"commit": {"url": "https://git.example.com/acme/fleet.git", "branch": "main"}}),
    }
}

impl ControllerSimulation {
    /// Carries out a job at the forge; `None` if the job is not about a change request.
    pub(super) fn at_forge(&mut self, job: &Job, fault: EffectFault) -> Option<JobOutcome> {
        match &job.work {
            Work::Deliver(_) if matches!(job.order.strategy, DeliveryStrategy::PullRequest { .. }) => {
                let proposed = self.propose(job, fault);
                Some(JobOutcome::Delivery(proposed.map_err(ActError::Delivery)))
            }
            Work::Follow { request, may_merge } => {
                let polled = self.poll(job, (request, *may_merge), fault);
                Some(JobOutcome::Follow(polled.map(Into::into).map_err(ActError::Delivery)))
            }
            Work::FollowBeforeWithdrawal(request) => {
                let (found, _) = self.request_status(job, request);
                let answer = if fault == EffectFault::None { Ok(found) } else { Err(failed()) };
                Some(JobOutcome::Withdrawal(answer.map_err(ActError::Delivery)))
            }
            Work::Withdraw { request, .. } => {
                let withdrawn = self.withdraw_request(job, request, fault);
                Some(JobOutcome::Withdrawal(withdrawn.map_err(ActError::Delivery)))
            }
            Work::Deliver(_) | Work::CheckCommit(_) | Work::FindDelivery => None,
        }
    }

    /// Commits as delivery does: an earlier commit of the same promotion and round is found again.
    pub(super) fn commit(&mut self, name: &str, order: &Order, promotion: &Promotion) -> Delivered {
        let commit = format!("{name}.{}", order.round);
        let environment = ENVIRONMENTS.iter().find(|e| **e == promotion.spec.environment).unwrap();
        let version = version_of(&promotion.spec.revision);
        self.commits.insert((name.into(), order.round));
        if let Some(found) = self.find_commit(name, order) {
            return found;
        }
        if self.files[environment] == version {
            return Delivered::AlreadySet { commit };
        }
        self.commit_branches.insert(commit.clone(), branch_of(order).unwrap_or_default().into());
        self.files.insert(environment, version);
        Delivered::Committed { commit }
    }

    /// The commit by which an earlier try has delivered this round of a promotion.
    pub(super) fn find_commit(&self, name: &str, order: &Order) -> Option<Delivered> {
        let commit = format!("{name}.{}", order.round);
        let is_there =
            self.commit_branches.get(&commit).is_some_and(|branch| branch_of(order) == Some(branch));
        is_there.then_some(Delivered::Committed { commit })
    }

    /// Delivers by change request as `change_request/propose.rs` does.
    fn propose(&mut self, job: &Job, fault: EffectFault) -> Result<Delivered, DeliveryError> {
        let order = &job.order;
        order.fencing_token.check()?;
        if fault == EffectFault::Refused {
            return Err(failed());
        }
        self.check_not_closed(job);
        let done = self.propose_now(job, fault);
        if fault == EffectFault::AnswerLost { Err(failed()) } else { done }
    }

    fn propose_now(&mut self, job: &Job, fault: EffectFault) -> Result<Delivered, DeliveryError> {
        let order = &job.order;
        let (environment, branch) = (environment_of(order), order.branch());
        let version = version_of(&job.promotion.spec.revision);
        if order.retried
            && let Some(done) = self.find_earlier(order, version)
        {
            let is_set = matches!(done, Delivered::Rejected { .. }) && self.files[environment] == version;
            let commit = format!("base{version}");
            return Ok(if is_set { Delivered::AlreadySet { commit } } else { done });
        }
        let base = self.files[environment];
        self.commits.insert((job.promotion.name_any(), order.round));
        if base == version {
            let is_recorded =
                |open: &usize| order.recorded_open.contains(&url(self.forge.requests[*open].number));
            if let Some(open) = self.forge.open_from(&branch).filter(|open| !is_recorded(open)) {
                self.forge.end(open, RequestState::Closed);
            }
            return Ok(Delivered::AlreadySet { commit: format!("base{base}") });
        }
        let commit = HeadCommit {
            id: format!("{}:{}.{version}.on{base}", order.promotion, order.round),
            promotion: order.promotion.clone(),
            round: order.round,
            version,
            base,
        };
        let is_found = self.forge.branches.insert(branch.clone(), commit.clone()).as_ref() == Some(&commit);
        if fault == EffectFault::OnlyPushed {
            return Err(failed());
        }
        let marker = (order.promotion.clone(), order.round);
        let index = match self.forge.open_from(&branch) {
            Some(index) => {
                self.forge.requests[index].marker = marker;
                index
            }
            None => {
                if (order.rebuild.is_some() || is_found)
                    && let Some(done) = self.find_earlier(order, version)
                {
                    return Ok(done);
                }
                let number = self.forge.requests.len() as u64 + 1;
                let state = RequestState::Open;
                let request = SimulatedRequest { number, environment, branch, state, ended: None, marker };
                self.forge.requests.push(request);
                self.forge.requests.len() - 1
            }
        };
        let request = request_of(&self.forge.requests[index], &commit);
        Ok(Delivered::Proposed { request, merged: false })
    }

    fn find_earlier(&self, order: &Order, version: u32) -> Option<Delivered> {
        let mut reopen = false;
        for request in self.forge.requests.iter().rev().filter(|r| r.branch == order.branch()) {
            if order.rebuild.is_some() && request.state == RequestState::Open {
                return None;
            }
            let head = self.forge.head(request);
            let is_own = match &request.marker {
                (promotion, round) if *promotion == order.promotion => *round == order.round,
                _ => request.state == RequestState::Merged && carries(&head, order),
            };
            if !is_own {
                continue;
            }
            let found = request_of(request, &head);
            match request.state {
                RequestState::Closed if order.withdrawn.contains(&found.url) => reopen = true,
                RequestState::Open if carries(&head, order) && head.version == version => {
                    return Some(Delivered::Proposed { request: found, merged: false });
                }
                RequestState::Open => {}
                RequestState::Merged if carries(&head, order) => {
                    return Some(Delivered::Proposed { request: found, merged: true });
                }
                RequestState::Merged => reopen = true,
                RequestState::Closed if reopen => {}
                RequestState::Closed => return Some(Delivered::Rejected { request: found }),
            }
        }
        None
    }

    /// The status of a change request, as `change_request/status.rs` reads it.
    fn request_status(&self, job: &Job, request: &ChangeRequest) -> (ChangeRequestStatus, Option<usize>) {
        let order = &job.order;
        let Some(index) = self.forge.requests.iter().position(|found| found.number == request.number) else {
            return (ChangeRequestStatus::Gone, None);
        };
        let found = &self.forge.requests[index];
        if url(found.number) != request.url || found.branch != order.branch() {
            return (ChangeRequestStatus::Elsewhere, None);
        }
        let head = self.forge.head(found);
        let files = self.files[found.environment];
        let status = match found.state {
            RequestState::Open => {
                let conflicts = files != head.base && files != head.version;
                let stale = conflicts.then_some(OutdatedReason::Conflicts);
                ChangeRequestStatus::Open { head: head.id, stale }
            }
            RequestState::Merged => {
                let ours = carries(&head, order);
                ChangeRequestStatus::Merged { commit: format!("merge of {}", head.id), head: head.id, ours }
            }
            RequestState::Closed if head.id != request.head_commit && is_of_another(job, &head) => {
                ChangeRequestStatus::HandedOver
            }
            RequestState::Closed => ChangeRequestStatus::Closed,
        };
        (status, Some(index))
    }

    /// Polls a change request as `change_request/merge.rs` does.
    fn poll(
        &mut self,
        job: &Job,
        (request, may_merge): (&ChangeRequest, bool),
        fault: EffectFault,
    ) -> Result<ChangeRequestStatus, DeliveryError> {
        if fault == EffectFault::Refused {
            return Err(failed());
        }
        let order = &job.order;
        let (mut status, index) = self.request_status(job, request);
        if may_merge && let (ChangeRequestStatus::Open { head, stale }, Some(index)) = (&mut status, index) {
            let found = self.forge.head(&self.forge.requests[index]);
            if *head != request.head_commit && carries(&found, order) {
                *stale = Some(OutdatedReason::Unrecorded);
            }
            let merges = matches!(&order.strategy, DeliveryStrategy::PullRequest { settings, .. } if settings.merge == MergeMode::WhenGreen);
            if stale.is_none() && merges {
                status = self.merge(job, request, (index, found))?;
            }
        }
        if fault != EffectFault::None {
            return Err(failed());
        }
        Ok(match status {
            ChangeRequestStatus::Open { stale: Some(OutdatedReason::Unrecorded), .. } => status,
            ChangeRequestStatus::Open { head, stale: Some(_) } if head != request.head_commit => waits(),
            other => other,
        })
    }

    fn merge(
        &mut self,
        job: &Job,
        request: &ChangeRequest,
        (index, head): (usize, HeadCommit),
    ) -> Result<ChangeRequestStatus, DeliveryError> {
        if head.id != request.head_commit {
            return Ok(waits());
        }
        let environment = environment_of(&job.order);
        let version = version_of(&job.promotion.spec.revision);
        if head.version != version || self.files[environment] != head.base {
            let stale = Some(OutdatedReason::NotOwn);
            return Ok(ChangeRequestStatus::Open { head: head.id, stale });
        }
        job.order.fencing_token.check()?;
        self.check_merge(job);
        self.files.insert(environment, version);
        self.forge.end(index, RequestState::Merged);
        Ok(self.request_status(job, request).0)
    }

    /// Closes a change request as `change_request/withdraw.rs` does.
    fn withdraw_request(
        &mut self,
        job: &Job,
        request: &ChangeRequest,
        fault: EffectFault,
    ) -> Result<ChangeRequestStatus, DeliveryError> {
        if fault == EffectFault::Refused {
            return Err(failed());
        }
        let (status, index) = self.request_status(job, request);
        let (ChangeRequestStatus::Open { .. }, Some(index)) = (&status, index) else { return Ok(status) };
        let head = self.forge.head(&self.forge.requests[index]);
        if head.id != request.head_commit && is_of_another(job, &head) {
            return Ok(ChangeRequestStatus::HandedOver);
        }
        job.order.fencing_token.check()?;
        self.forge.end(index, RequestState::Closed);
        if fault == EffectFault::None { Ok(ChangeRequestStatus::Closed) } else { Err(failed()) }
    }

    /// Carries out the effect that closes a change request, if it is pending. Its answer is lost.
    pub(super) fn close_and_lose_the_answer(&mut self) {
        let closes = |effect: &Effect| matches!(effect, Effect::Start(job) if matches!(job.work, Work::Withdraw { .. }));
        if let Some(index) = self.pending.iter().position(closes) {
            self.carry_out(index, EffectFault::AnswerLost);
        }
    }

    /// A person merges an open change request.
    pub(super) fn merge_by_hand(&mut self, index: usize) {
        let Some(index) = self.forge.nth_open(index) else { return };
        let request = &self.forge.requests[index];
        let (environment, version) = (request.environment, self.forge.head(request).version);
        self.files.insert(environment, version);
        self.forge.end(index, RequestState::Merged);
    }

    /// A person closes an open change request.
    pub(super) fn close_by_hand(&mut self, index: usize) {
        let Some(index) = self.forge.nth_open(index) else { return };
        let request = &self.forge.requests[index];
        self.forge.ever_closed_by_people.insert(request.marker.0.clone());
        let head = self.forge.head(request);
        let stored = self.server.promotions.get(head.name());
        // Sluice has seen it open before.
        let known = self.state.record(&key(), head.name()).map(|record| record.status());
        let begins_to_close = known.is_some_and(|status| status.withdraws_request());
        // The record says that exactly this is open.
        let is_recorded = |status: &PromotionStatus| {
            let recorded = status.change_request.as_ref();
            !status.phase.has_ended()
                && recorded.is_some_and(|r| r.number == request.number && r.head_commit == head.id)
                && !begins_to_close
        };
        if let Some(object) = stored
            && object.status.as_ref().is_some_and(is_recorded)
            && request.marker == (head.promotion.clone(), head.round)
        {
            let closed = (object.uid(), head.round, object.spec.retry.clone());
            self.forge.closed_by_people.push(closed);
        }
        self.forge.end(index, RequestState::Closed);
    }

    /// Checks that nothing is proposed again that a person has closed, unless a person asked for another try.
    fn check_not_closed(&self, job: &Job) {
        let closed = self.forge.closed_by_people.iter().find(|(uid, round, retry)| {
            (uid, *round, retry) == (&job.promotion.uid(), job.order.round, &job.promotion.spec.retry)
        });
        let is_open = self.forge.open_from(&job.order.branch()).is_some();
        let request = job.promotion.status.as_ref().and_then(|status| status.change_request.as_ref());
        let state = request.map(|request| &request.state);
        // Superseded before Sluice knew that, it counts as closed by Sluice itself.
        let is_withdrawn = state == Some(&RecordedRequestState::Withdrawn);
        // A person closed it after the promotion was superseded, and the pipeline names another branch now.
        let is_elsewhere = request.is_some_and(|request| request.branch != job.order.branch());
        let is_found = || {
            let version = version_of(&job.promotion.spec.revision);
            job.order.retried && self.find_earlier(&job.order, version).is_some()
        };
        assert!(
            closed.is_none() || is_open || is_withdrawn || is_elsewhere || is_found(),
            "{} is proposed again after a person closed it, recorded as {state:?}",
            job.promotion.name_any()
        );
    }

    /// Checks that each promotion that is rejected has ended so, unless it was merged, and that a person has rejected it.
    pub(super) fn check_rejections(&self) {
        for (name, object) in &self.server.promotions {
            let promotion = format!("apps/{name}");
            let is_merged = |r: &SimulatedRequest| {
                r.state == RequestState::Merged && self.forge.head(r).promotion == promotion
            };
            let was_merged = self.forge.requests.iter().any(is_merged);
            let is_done = matches!(object.phase(), Phase::Rejected | Phase::Succeeded | Phase::Delivered);
            let rejected = is_rejected(&self.rejections, object);
            assert!(
                !rejected || was_merged || is_done,
                "P7: the rejection of {name} is lost: {}",
                self.summary()
            );
            let by_person = self.rejections.contains_key(&object.uid())
                || self.forge.ever_closed_by_people.contains(&promotion);
            let is_rejected = object.phase() == Phase::Rejected;
            assert!(!is_rejected || by_person, "P3: nobody rejected {name}: {}", self.summary());
        }
    }

    /// A superseded promotion whose change request a person has closed does not start again, not even for a moment.
    pub(super) fn check_closed_stay_ended(&self) {
        let mut phases: BTreeMap<String, Phase> = BTreeMap::new();
        for event in &self.server.log {
            let HubEvent::Promotion(object) = event else { continue };
            let name = object.name_any();
            let before = phases.insert(name.clone(), object.phase());
            let is_closed = self.forge.ever_closed_by_people.contains(&format!("apps/{name}"));
            let starts = before == Some(Phase::Superseded)
                && !matches!(object.phase(), Phase::Superseded | Phase::Rejected);
            assert!(!(is_closed && starts), "{name} starts again: {}", self.summary());
        }
    }

    fn was_recorded(&self, number: u64) -> bool {
        let mut log = self.server.log.iter();
        log.any(|event| matches!(event, HubEvent::Promotion(object) if recorded(object, number).is_some()))
    }

    /// People close the change requests that were never recorded, because the process that opened them has crashed.
    pub(super) fn close_unrecorded(&mut self) {
        for index in 0..self.forge.requests.len() {
            let request = &self.forge.requests[index];
            if request.state == RequestState::Open && !self.was_recorded(request.number) {
                self.forge.ever_closed_by_people.insert(request.marker.0.clone());
                self.forge.end(index, RequestState::Closed);
            }
        }
    }

    /// Checks that each open change request belongs to one promotion, and carries no rejected one. It may carry a superseded
    /// one until the promotion that has it is past its gates. A change request that was never recorded is left out: its
    /// process has crashed before.
    pub(super) fn check_requests(&self) {
        let open = self.forge.requests.iter().filter(|request| request.state == RequestState::Open);
        for request in open.filter(|request| self.was_recorded(request.number)) {
            let (number, head) = (request.number, self.forge.head(request));
            let has = |object: &&Arc<Promotion>| {
                recorded(object, number).is_some_and(|r| r.state == RecordedRequestState::Open)
            };
            let of: Vec<&Arc<Promotion>> = self.server.promotions.values().filter(has).collect();
            let [object] = &of[..] else { panic!("#{number} has {} records: {}", of.len(), self.summary()) };
            let place = object.spec.place();
            let is_next = |p: &Arc<Promotion>| p.phase().is_open() && p.spec.place() == place;
            let (phase, has_next) = (object.phase(), self.server.promotions.values().any(is_next));
            let may_be_taken_over = phase != Phase::Rejected && has_next;
            assert!(!phase.has_ended() || may_be_taken_over, "#{number} is of nobody: {}", self.summary());
            let carried = self.server.promotions.get(head.name());
            let is_rejected = carried.is_some_and(|carried| carried.phase() == Phase::Rejected);
            assert!(!is_rejected, "#{number} carries a rejected promotion: {}", self.summary());
            let is_own = head.name() == object.name_any();
            let status = object.status.as_ref();
            let is_shut = status.is_some_and(|status| status.gates.iter().any(|gate| !gate.open));
            let waits = phase == Phase::Pending && is_shut;
            assert!(phase.has_ended() || waits || is_own, "#{number} carries {head:?}: {}", self.summary());
        }
    }
}

/// The branch that an order commits to.
pub(super) fn branch_of(order: &Order) -> Option<&str> {
    match &order.strategy {
        DeliveryStrategy::Commit { branch, .. } => Some(branch),
        _ => None,
    }
}

/// The change request of this number, as a record has it.
fn recorded(object: &Promotion, number: u64) -> Option<RecordedChangeRequest> {
    let request = object.status.as_ref()?.change_request.clone();
    request.filter(|request| request.number == number)
}

fn waits() -> ChangeRequestStatus {
    ChangeRequestStatus::Waits { why: "others have pushed".into(), failed: false, queued: false }
}
