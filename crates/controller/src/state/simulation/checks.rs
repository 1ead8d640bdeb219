//! The checks of the simulation: of each effect when the state asks for it, and of everything at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use sluice_api::pipeline::{Health, Pipeline, PipelineStatus};
use sluice_api::promotion::{Phase, Promotion};

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, SECOND_DEV, version_of};
use super::people::is_rejected;
use super::server::loop_fields;
use crate::state::effect::{Effect, Job, Work};
use crate::state::fixtures::key;
use crate::state::status_queue::{SerializedStatus, StatusOwner, StatusWrite};
use crate::state::*;

/// How long a cluster that is used for the first time may take to answer, in seconds.
const ANSWER_TIME: u64 = 20;
/// The least pause after a creation that was answered with a conflict, in seconds.
const CREATION_PAUSE: u64 = 10;

impl ControllerSimulation {
    pub(super) fn check_write(&mut self, write: &StatusWrite) {
        assert!(write.uid.is_some(), "a status write could change another object of the same name");
        assert!(write.may_be_stored.len() <= 10, "statuses are remembered without a bound");
        if write.owner == StatusOwner::Pipeline(key()) {
            if self.connected.values().any(|since| self.elapsed < since + ANSWER_TIME) {
                self.check_grace_period(&write.status);
            }
            self.last_status = Some(write.status.clone());
        }
    }

    /// Checks that a target is shown as it was while its cluster may still answer.
    fn check_grace_period(&self, status: &SerializedStatus) {
        let health = |status: &SerializedStatus| {
            let status: PipelineStatus = serde_json::from_str(status.get()).unwrap();
            status.environments.get("prod").map(|prod| prod.health)
        };
        let (now, before) = (health(status), self.last_status.as_ref().and_then(health));
        let is_lost = now == Some(Health::Unknown) && before.is_some();
        // A status may be sent a while after it was composed.
        let is_back = self.eu_back.is_some_and(|since| self.elapsed < since + 2 * ANSWER_TIME);
        let was_lost = before == Some(Health::Unknown) || self.is_eu_lost || is_back;
        assert!(!is_lost || was_lost, "a cluster that may still answer counts as lost");
    }

    pub(super) fn check_creation(&self, promotion: &Promotion) {
        let name = promotion.name_any();
        assert!(!self.is_suspended_as_known(), "P7: {name} starts while the pipeline is suspended");
        let exists =
            |uid: &Option<String>| self.server.promotions.get(&name).is_some_and(|o| o.uid() == *uid);
        let refused = self.refused.get(&name).filter(|(_, uid)| exists(uid));
        let is_early = refused.is_some_and(|(at, _)| self.elapsed < at + CREATION_PAUSE);
        assert!(!is_early, "P5: the creation of {name}, which exists, is repeated without a pause");
        self.check_proven(promotion);
    }

    /// Checks P1 and P7 when a delivery takes effect.
    pub(super) fn check_delivery(&mut self, job: &Job) {
        let name = job.promotion.name_any();
        assert!(!self.is_suspended_as_known(), "P7: {name} takes effect after the suspension");
        let Work::Deliver(pipeline) = &job.work else { return };
        let of = |pipeline: &Pipeline| (pipeline.uid(), pipeline.metadata.generation);
        let is_current = self.known.as_ref().is_some_and(|known| of(known) == of(pipeline));
        assert!(is_current, "P7: {name} takes effect after its pipeline was edited or deleted");
        let rejected =
            self.rejected_as_known.get(&job.promotion.uid()).is_some_and(|(_, rejected)| *rejected);
        assert!(!rejected, "P7: {name} takes effect after its rejection");
        let is_new = self.delivered.insert((job.promotion.uid(), job.order.round));
        assert!(is_new || job.order.retried, "P1: {name} is delivered a second time");
    }

    /// The promotions whose status is being written, by name and uid.
    pub(super) fn writing(&self) -> BTreeMap<String, Option<String>> {
        let names = self.state.statuses.owners().filter_map(StatusOwner::promotion);
        names
            .filter_map(|name| Some((name.into(), self.state.record(&key(), name)?.object().uid())))
            .collect()
    }

    /// Checks that no write of a promotion that is still known was dropped.
    pub(super) fn check_still_writing(&self, before: &BTreeMap<String, Option<String>>) {
        let after = self.writing();
        for (name, uid) in before {
            let is_known =
                self.state.record(&key(), name).is_some_and(|record| record.object().uid() == *uid);
            assert!(!is_known || after.contains_key(name), "a list drops the pending status write of {name}");
        }
    }

    /// Checks P1: a delivery that is recorded is not repeated. Another process that starts before the record has arrived
    /// delivers again, and finds the earlier commit.
    fn check_not_recorded(&self, job: &Job) {
        let name = job.promotion.name_any();
        let is_known = |o: &&Arc<Promotion>| o.uid() == job.promotion.uid() && !self.server.is_unreported(o);
        let stored = self.server.promotions.get(&name).filter(is_known);
        let is_recorded = stored
            .and_then(|object| object.status.as_ref())
            .is_some_and(|status| status.round == job.order.round && status.phase == Phase::Delivered);
        assert!(!is_recorded, "P1: {name} is delivered again");
    }

    /// Checks P2: the environment before was healthy with the revision.
    pub(super) fn check_proven(&self, promotion: &Promotion) {
        let place = ENVIRONMENTS.iter().position(|e| *e == promotion.spec.environment).unwrap();
        let (before, version) = (ENVIRONMENTS[place - 1], version_of(&promotion.spec.revision));
        let second = (self.has_requests && before == "dev").then_some(SECOND_DEV);
        for before in [before].into_iter().chain(second) {
            assert!(self.proven[before].contains(&version), "P2: {version} was never healthy in {before}");
        }
    }

    /// Checks P2 and P7 when Sluice merges a change request.
    pub(super) fn check_merge(&self, job: &Job) {
        let name = job.promotion.name_any();
        assert!(!self.is_suspended_as_known(), "P7: {name} is merged after the suspension");
        let rejected = self.rejected_as_known.get(&job.promotion.uid());
        assert!(rejected.is_none_or(|(_, rejected)| !rejected), "P7: {name} is merged after its rejection");
        let status = job.promotion.status.clone().unwrap_or_default();
        let approved = job.promotion.spec.approval_now(&status).is_some();
        assert!(approved || !self.is_manual_as_known(), "P7: {name} is merged without an approval");
        self.check_proven(&job.promotion);
    }

    pub(super) fn check_job(&mut self, job: &Job) {
        let other =
            self.pending.iter().any(|e| matches!(e, Effect::Start(other) if other.place == job.place));
        let unanswered =
            self.answers.iter().any(|i| matches!(i, Input::JobEnded(done) if done.place == job.place));
        assert!(!other && !unanswered, "P1: two side effects are in flight for {}", job.place);
        let name = job.promotion.name_any();
        assert!(self.server.created.contains(&name), "{name} is delivered and was never recorded");
        if !matches!(job.work, Work::Deliver(_)) {
            return;
        }
        assert!(!self.is_suspended_as_known(), "P7: {name} is delivered while the pipeline is suspended");
        self.check_not_recorded(job);
        self.check_proven(&job.promotion);
        let status = job.promotion.status.clone().unwrap_or_default();
        let approved = job.promotion.spec.approval_now(&status).is_some();
        assert!(approved || !self.is_manual_as_known(), "P7: {name} is delivered without an approval");
        if self.is_manual_as_known() {
            self.needed_approval.insert((job.promotion.uid(), job.order.round));
        }
    }

    /// Checks P6 while the cluster of prod cannot be reached: prod is Unknown, and staging runs what dev runs.
    pub(super) fn check_isolation(&self, is_automatic: bool) {
        let status = self.server.pipeline.as_ref().and_then(|p| p.status.clone()).unwrap_or_default();
        let health = |environment: &str| status.environments.get(environment).map(|e| e.health);
        assert_eq!(health("prod"), Some(Health::Unknown), "P6: {}", self.summary());
        assert_eq!(health("staging"), Some(Health::Ready), "P6: {}", self.summary());
        let versions = (self.fleet["staging"].version, self.fleet["dev"].version);
        assert!(!is_automatic || versions.0 == versions.1, "P6: {versions:?} {}", self.summary());
    }

    /// Checks P9: each record says when it got into its phase, what it waits for or how it ended, and what was done.
    pub(super) fn check_stories(&self) {
        for (name, object) in &self.server.promotions {
            let status = object.status.clone().unwrap_or_default();
            let phase = status.phase;
            assert!(
                object.status.is_none() || status.times.contains_key(&phase.to_string()),
                "P9: {name}: {status:?}"
            );
            let is_done = matches!(phase, Phase::Delivered | Phase::Succeeded | Phase::Promoting);
            assert!(
                is_done || !status.message.is_empty(),
                "P9: {name} does not say why it is {phase}: {status:?}"
            );
            let is_retried = status.next_attempt.is_some();
            assert!(
                !is_retried || !status.reason.is_empty(),
                "P9: {name} does not say what failed: {status:?}"
            );
            let was_made = self.commits.iter().any(|(made, _)| made == name);
            let has_commit = status.commit.is_some();
            assert!(
                phase != Phase::Delivered || has_commit,
                "P9: {name} does not name its commit: {status:?}"
            );
            assert!(!has_commit || was_made, "P9: {name} names a commit that was not made");
            assert!(
                phase == Phase::Rejected || was_made || !is_rejected(&self.rejections, object),
                "P7: the rejection of {name} is lost: {:?} {status:?}",
                object.spec
            );
            // The commit may be that of a record of this name that was deleted.
            let delivery = (object.uid(), status.round);
            let is_own = self.delivered.contains(&delivery);
            let needs_approval = self.needed_approval.contains(&delivery) && has_commit && is_own;
            assert!(
                !needs_approval || status.approval.is_some(),
                "P9: {name} does not say who approved: {status:?}"
            );
        }
    }

    /// Checks that the state has in memory what the server has stored.
    pub(super) fn check_memory(&self) {
        let stored = self.server.pipeline.as_ref().unwrap();
        let entry = &self.state.pipelines[&key()];
        assert_eq!(entry.object().spec, stored.spec, "an edit is lost");
        assert_eq!(entry.cached.parts.status(), loop_fields(stored.status.clone()), "a status is lost");
        let records = self.state.promotions.get(&key());
        let known: BTreeMap<_, _> =
            records.into_iter().flatten().map(|(name, r)| (name.clone(), r.object().as_ref())).collect();
        assert_eq!(known.keys().collect::<Vec<_>>(), self.server.promotions.keys().collect::<Vec<_>>());
        for (name, object) in known {
            assert_eq!(object.spec, self.server.promotions[&name].spec, "an edit of {name} is lost");
            assert_eq!(object.status, self.server.promotions[&name].status, "a status of {name} is lost");
        }
    }

    /// Whether the newest Pipeline that the state has received is suspended.
    fn is_suspended_as_known(&self) -> bool {
        self.known.as_ref().is_some_and(|pipeline| pipeline.spec.suspend)
    }

    /// Whether every promotion needs an approval by the newest Pipeline that the state has received.
    fn is_manual_as_known(&self) -> bool {
        let pipeline = self.known.as_ref();
        pipeline.and_then(|p| p.spec.promotion.as_ref()).is_some_and(|promotion| promotion.manual)
    }

    /// Whether a person has rejected a promotion.
    pub(super) fn any_rejected(&self) -> bool {
        self.server.promotions.values().any(|object| object.spec.rejection.is_some())
    }

    /// What everything has come to, for the messages of failing tests.
    pub(super) fn summary(&self) -> String {
        let phase = |object: &Promotion| {
            let status = object.status.clone().unwrap_or_default();
            format!("{}: {:?} {} {}", object.name_any(), status.phase, status.reason, status.message)
        };
        let promotions: Vec<String> = self.server.promotions.values().map(|object| phase(object)).collect();
        let status =
            self.server.pipeline.as_ref().and_then(|pipeline| pipeline.status.clone()).unwrap_or_default();
        let conditions: Vec<String> = status.conditions.iter().map(|c| c.message.clone()).collect();
        format!("{:?} {promotions:#?} {conditions:?}", self.fleet)
    }
}
