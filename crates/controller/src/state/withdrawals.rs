//! Closes the open change requests of promotions that do not need them any more, unless another promotion uses them.

use kube::ResourceExt;
use sluice_api::promotion::{Phase, Promotion as ApiPromotion, RecordedRequestState};

use super::State;
use super::actions::StrategySource;
use super::effect::Work;
use super::entries::Record;
use super::status_queue::StatusOwner;
use crate::act::{ActError, strategy};
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::RecordChange;

/// The comment on a change request that Sluice closes, unless a person rejected its promotion.
const NOT_NEEDED: &str = "Sluice does not need this change any more: the branch or the environment has its revision, or a newer one.";

impl State {
    /// Starts to close the change request of a promotion. First Sluice looks whether a person has closed it. Then the record
    /// says that Sluice closes it. When that is stored, it is closed: after a crash, nobody takes it for rejected.
    pub(super) fn withdraw(&mut self, key: &PipelineKey, name: &str) {
        let (promotion, now) = (key.promotion(name), self.now.instant);
        if let Some(due) = self.schedule.withdrawal_due(&promotion, now) {
            return self.requeue_at(key, due);
        }
        let Some(mut prepared) = self.prepare(key, name, StrategySource::Request) else { return };
        let Some(request) = prepared.request() else { return };
        prepared.order.open_beside = self.open_beside(key, name);
        let Some(status) = prepared.promotion.status.as_ref() else { return };
        let work = if status.withdraws_request() {
            let is_stored = !self.statuses.is_writing(&StatusOwner::Promotion(key.clone(), name.into()));
            if !is_stored {
                return;
            }
            let is_rejected = status.phase == Phase::Rejected;
            let comment = if is_rejected { status.message.clone() } else { NOT_NEEDED.into() };
            Work::Withdraw { request, comment }
        } else {
            Work::FollowBeforeWithdrawal(request)
        };
        self.schedule.withdrawal_started(&promotion, now);
        self.launch(key, prepared, work);
    }

    /// Returns the other promotions that may already use the change request of a promotion, as `namespace/name`, although
    /// their records do not say so yet. These are the open promotions into the same environment (or target) whose delivery
    /// Sluice may have begun. Empty if the pipeline names another repository or branch now.
    fn open_beside(&self, key: &PipelineKey, name: &str) -> Vec<String> {
        let Some((entry, own)) = self.pipelines.get(key).zip(self.record(key, name)) else {
            return Vec::new();
        };
        if strategy::is_outdated(entry.object(), own.object()) {
            return Vec::new();
        }
        let place = own.object().spec.place();
        let open = self.records_into(key, &place).filter(|record| {
            !record.is_first_try && record.phase().is_open() && record.belongs_to(entry.object())
        });
        let names = open.map(|record| record.object().name_any()).filter(|other| other != name);
        names.map(|other| format!("{}/{other}", key.namespace)).collect()
    }

    /// The records of the promotions into a place.
    pub(super) fn records_into<'a>(
        &'a self,
        key: &PipelineKey,
        place: &'a str,
    ) -> impl Iterator<Item = &'a Record> {
        let records = self.promotions.get(key).into_iter().flat_map(|records| records.values());
        records.filter(move |record| record.object().spec.place() == place)
    }

    /// Returns the addresses of the change requests that promotions into a place record.
    pub(super) fn recorded_requests(&self, key: &PipelineKey, place: &str) -> Vec<String> {
        self.records_into(key, place)
            .filter_map(|record| record.object().status.as_ref()?.change_request.as_ref())
            .map(|request| request.url.clone())
            .collect()
    }

    /// Returns the addresses of the open change requests that this pipeline closes when they are not needed.
    pub(super) fn recorded_open(&self, key: &PipelineKey, place: &str) -> Vec<String> {
        let Some(entry) = self.pipelines.get(key) else { return Vec::new() };
        let own = self.records_into(key, place).filter(|record| record.belongs_to(entry.object()));
        let open = own.filter_map(|record| record.object().status.as_ref()?.open_request());
        open.map(|request| request.url.clone()).collect()
    }

    /// Returns the addresses of the closed change requests that are not rejections. A change request that
    /// carries the promotion may have been closed for another promotion into the same place.
    pub(super) fn withdrawn_requests(&self, key: &PipelineKey, promotion: &ApiPromotion) -> Vec<String> {
        let status = promotion.status.clone().unwrap_or_default();
        let open = status.open_request();
        let place = promotion.spec.place();
        let all = self.records_into(key, &place).filter_map(|record| record.object().status.as_ref());
        let all = all.flat_map(|status| &status.withdrawn_requests);
        let others = all.filter(|url| open.is_none_or(|open| open.url != **url));
        // Records of earlier versions have only the state.
        let own = status.change_request.iter().filter(|r| r.state == RecordedRequestState::Withdrawn);
        others.chain(&status.withdrawn_requests).chain(own.map(|r| &r.url)).cloned().collect()
    }

    /// Whether Sluice leaves a change request to people. The pipeline names another repository or branch now, and
    /// Sluice has lost access to the old one or has failed to close the change request for a long time.
    pub(super) fn is_out_of_reach(&self, key: &PipelineKey, name: &str, error: &ActError) -> bool {
        let Some((entry, record)) = self.pipelines.get(key).zip(self.record(key, name)) else { return false };
        (error.is_lost_access() || self.schedule.has_withdrawal_stalled(&key.promotion(name)))
            && strategy::is_outdated(entry.object(), record.object())
    }

    /// Marks the records whose change request a later promotion uses. Those of an earlier pipeline of the same name count for
    /// nothing: nobody follows their change requests any more.
    pub(super) fn hand_over(&mut self, key: &PipelineKey) {
        let Some((entry, records)) = self.pipelines.get(key).zip(self.promotions.get(key)) else { return };
        let own = records.values().filter(|record| record.belongs_to(entry.object()));
        let all: Vec<&ApiPromotion> = own.map(|record| record.object().as_ref()).collect();
        let handed_over = all.iter().filter(|promotion| strategy::is_handed_over(promotion, &all));
        let names: Vec<String> = handed_over.map(|promotion| promotion.name_any()).collect();
        names.iter().for_each(|name| self.change(key, name, &RecordChange::HandedOver));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_delivery::ChangeRequestStatus;

    use super::super::effect::{Effect, Job};
    use super::super::fixtures::{ended, insert, key, proposed, record};
    use super::super::status_queue::{StoredVersion, WriteOutcome};
    use super::*;
    use crate::act::JobOutcome;

    /// Adds a promotion of the pipeline.
    fn add(state: &mut State, name: &str, environment: &str, phase: &str) {
        let other = json!({"metadata": {"name": name, "namespace": "apps", "uid": name},
            "spec": {"pipeline": "podinfo", "environment": environment, "revision": "2", "facets": {}},
            "status": {"phase": phase}});
        insert(state, record(serde_json::from_value(other).unwrap()));
    }

    /// Starts the next step of closing the change request of `p`.
    fn withdraw(state: &mut State) -> Box<Job> {
        try_withdraw(state).unwrap()
    }

    fn try_withdraw(state: &mut State) -> Option<Box<Job>> {
        state.now.instant += Duration::from_secs(3600);
        state.effects.clear();
        state.withdraw(&key(), "p");
        match std::mem::take(&mut state.effects).pop() {
            Some(Effect::Start(job)) => Some(job),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    /// The state of the change request of `p`, and the phase of `p`, after this answer.
    fn after(state: &mut State, job: &Job, answer: ChangeRequestStatus) -> (RecordedRequestState, Phase) {
        state.job_ended(ended(job, JobOutcome::Withdrawal(Ok(answer))));
        let status = state.record(&key(), "p").unwrap().status();
        (status.change_request.unwrap().state, status.phase)
    }

    fn open() -> ChangeRequestStatus {
        ChangeRequestStatus::Open { head: "c0ffee".into(), stale: None }
    }

    /// A crash at any point leaves a record that tells who has closed the change request.
    #[test]
    fn a_change_request_is_closed_when_the_record_that_says_so_is_stored() {
        let mut state = proposed();
        let look = withdraw(&mut state);
        assert!(matches!(look.work, Work::FollowBeforeWithdrawal(_)));
        assert_eq!(after(&mut state, &look, open()), (RecordedRequestState::Open, Phase::Proposed));
        let Some(Effect::WriteStatus(write)) =
            state.effects.iter().find(|effect| matches!(effect, Effect::WriteStatus(_)))
        else {
            panic!("{:?}", state.effects)
        };
        assert!(
            write.status.get().contains(r#""withdrawnRequests":["https://github.com/acme/fleet/pull/7"]"#)
        );
        let (owner, number) = (write.owner.clone(), write.number);
        assert!(try_withdraw(&mut state).is_none());
        let stored = StoredVersion { version: 9, is_over_edit: false };
        state.status_written(&owner, number, WriteOutcome::Stored(stored));
        let close = withdraw(&mut state);
        assert!(matches!(close.work, Work::Withdraw { .. }));
        assert_eq!(
            after(&mut state, &close, ChangeRequestStatus::Closed),
            (RecordedRequestState::Withdrawn, Phase::Proposed)
        );
    }

    #[test]
    fn a_change_request_that_a_person_closes_before_sluice_is_rejected() {
        let mut state = proposed();
        let look = withdraw(&mut state);
        assert_eq!(
            after(&mut state, &look, ChangeRequestStatus::Closed),
            (RecordedRequestState::Closed, Phase::Rejected)
        );
    }

    /// The owner takes an edit back while Sluice closes the change request, and the answer is lost.
    #[test]
    fn a_poll_does_not_take_a_change_request_that_sluice_has_closed_for_rejected() {
        let mut state = proposed();
        let look = withdraw(&mut state);
        after(&mut state, &look, open());
        let poll = JobOutcome::Follow(Ok(ChangeRequestStatus::Closed.into()));
        state.job_ended(ended(&look, poll));
        let status = state.record(&key(), "p").unwrap().status();
        assert_eq!(status.change_request.unwrap().state, RecordedRequestState::Withdrawn);
        assert_eq!(status.phase, Phase::Proposed);
    }

    /// Another promotion may have put its revision into the change request since.
    #[test]
    fn a_promotion_that_has_started_again_is_not_proposed_because_its_change_request_is_open() {
        for is_marked in [false, true] {
            let mut state = proposed();
            let look = withdraw(&mut state);
            let own = state.record(&key(), "p").unwrap();
            let mut object = own.object().as_ref().clone();
            let status = object.status.as_mut().unwrap();
            status.phase = Phase::Promoting;
            let url = status.change_request.as_ref().unwrap().url.clone();
            status.withdrawn_requests = Vec::from_iter(Some(url).filter(|_| is_marked));
            insert(&mut state, record(object));
            state.job_ended(ended(&look, JobOutcome::Follow(Ok(open().into()))));
            let status = state.record(&key(), "p").unwrap().status();
            assert_eq!((status.phase, status.withdrawn_requests), (Phase::Promoting, Vec::new()));
        }
    }

    /// The owner takes an edit back while Sluice looks whether a person has closed the change request.
    #[test]
    fn a_look_that_was_stopped_does_not_begin_to_close_the_change_request() {
        for is_stopped in [true, false] {
            let mut state = proposed();
            let look = withdraw(&mut state);
            if is_stopped {
                look.order.fencing_token.revoke();
            }
            after(&mut state, &look, open());
            let status = state.record(&key(), "p").unwrap().status();
            assert_eq!(status.withdrawn_requests.is_empty(), is_stopped);
        }
    }

    /// Only these may have pushed to the branch, and record that later.
    #[test]
    fn a_withdrawal_knows_which_other_promotions_are_open() {
        let mut state = proposed();
        for (name, environment, phase) in [
            ("q", "prod", "Rejected"),
            ("r", "staging", "Pending"),
            ("s", "prod", "Pending"),
            ("t", "prod", "Promoting"),
            ("u", "prod", "Pending"),
            ("v", "prod", "Delivered"),
        ] {
            add(&mut state, name, environment, phase);
        }
        state.record_mut(&key(), "u").unwrap().is_first_try = true;
        assert_eq!(withdraw(&mut state).order.open_beside, ["apps/s", "apps/t"]);
    }

    #[test]
    fn no_promotion_takes_over_a_change_request_of_another_repository() {
        let mut state = proposed();
        add(&mut state, "s", "prod", "Promoting");
        let own = state.record_mut(&key(), "p").unwrap();
        let mut object = own.object().as_ref().clone();
        let elsewhere =
            json!({"type": "github", "url": "https://github.com/acme/old", "secretRef": {"name": "git"}});
        let status = object.status.as_mut().unwrap();
        status.change_request.as_mut().unwrap().strategy = serde_json::from_value(elsewhere).unwrap();
        insert(&mut state, record(object));
        assert!(withdraw(&mut state).order.open_beside.is_empty());
    }

    /// The pipeline was deleted and created again, and its former promotions are not deleted yet. Otherwise its promotion would be
    /// delivered again and again.
    #[test]
    fn no_change_request_is_handed_over_to_a_promotion_of_an_earlier_pipeline() {
        let mut state = proposed();
        let mut earlier = state.record(&key(), "p").unwrap().object().as_ref().clone();
        earlier.metadata.name = Some("earlier".into());
        earlier.spec.sequence = 7;
        let owner = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": "podinfo", "uid": "gone"});
        earlier.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        insert(&mut state, record(earlier));
        state.hand_over(&key());
        let request = state.record(&key(), "p").unwrap().status().change_request.unwrap();
        assert_eq!(request.state, RecordedRequestState::Open);
    }

    /// The owner takes the edit back before Sluice closes the change request. A review is missing.
    #[test]
    fn a_person_rejects_a_change_request_that_a_poll_has_seen_open_again() {
        let mut state = proposed();
        let look = withdraw(&mut state);
        after(&mut state, &look, open());
        let waits = ChangeRequestStatus::Waits { why: "a review".into(), failed: false, queued: false };
        for (answer, phase) in [(waits, Phase::Proposed), (ChangeRequestStatus::Closed, Phase::Rejected)] {
            state.job_ended(ended(&look, JobOutcome::Follow(Ok(answer.into()))));
            assert_eq!(state.record(&key(), "p").unwrap().phase(), phase);
        }
    }

    /// The base branch has every value already, and the change request is still open.
    #[test]
    fn what_becomes_of_the_change_request_of_a_delivered_promotion_changes_no_phase_and_leaves_no_error() {
        let mut state = proposed();
        let own = state.record(&key(), "p").unwrap();
        let mut object = own.object().as_ref().clone();
        let status = object.status.as_mut().unwrap();
        (status.phase, status.reason, status.message) = (Phase::Delivered, "AlreadySet".into(), "set".into());
        insert(&mut state, record(object));
        let look = withdraw(&mut state);
        let trouble = RecordChange::Trouble { reason: "Unreachable", message: "no answer".into() };
        state.change(&key(), "p", &trouble);
        let status = state.record(&key(), "p").unwrap().status();
        assert_eq!((status.phase, &*status.reason), (Phase::Delivered, "AlreadySet"));
        assert!(status.message.starts_with("set; its change request is still open: "), "{}", status.message);
        let (request, phase) = after(&mut state, &look, ChangeRequestStatus::Closed);
        assert_eq!((request, phase), (RecordedRequestState::Closed, Phase::Delivered));
    }

    /// The promotion that has pushed to the branch is rejected before it records that. Then nobody else closes the change
    /// request.
    #[test]
    fn a_change_request_that_carries_another_promotion_is_closed_when_that_one_has_ended() {
        let mut state = proposed();
        add(&mut state, "s", "prod", "Promoting");
        let job = withdraw(&mut state);
        add(&mut state, "s", "prod", "Rejected");
        state.job_ended(ended(&job, JobOutcome::Withdrawal(Ok(ChangeRequestStatus::HandedOver))));
        let request = state.record(&key(), "p").unwrap().status().change_request.unwrap();
        assert_eq!(request.state, RecordedRequestState::Open);
        assert!(withdraw(&mut state).order.open_beside.is_empty());
    }
}
