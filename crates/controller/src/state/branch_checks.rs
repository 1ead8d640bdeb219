//! Reads branches without a delivery: whether the commit of a delivered promotion is still there, and whether an earlier try
//! has committed a promotion without a record of that.

use sluice_api::pipeline::Strategy;
use sluice_api::promotion::Phase;
use sluice_core::decide::Transition;
use sluice_delivery::{Delivered, DeliveryError};

use super::State;
use super::actions::{Prepared, StrategySource};
use super::effect::{MetricUpdate, Work};
use crate::act::{ActError, outcome, strategy};
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::RecordChange;

impl Prepared {
    /// The commit that delivered the promotion, if it is known to have been in the branch. The head of a change
    /// request is not known to be, because the merge may have squashed it.
    fn commit(&self) -> Option<String> {
        let status = self.promotion.status.as_ref()?;
        let is_head = |commit: &&String| {
            status.change_request.as_ref().is_some_and(|request| request.head_commit == **commit)
        };
        status.commit.as_ref().filter(|commit| !is_head(commit)).cloned()
    }
}

impl State {
    /// Checks whether the commit that delivered a promotion is still in its branch.
    pub(super) fn check_delivered(&mut self, key: &PipelineKey, name: &str) {
        let (promotion, now) = (key.promotion(name), self.now.instant);
        let due = self.schedule.lost_commit_check_due(&promotion, now);
        if due > now {
            return self.requeue_at(key, due);
        }
        let Some(prepared) = self.prepare(key, name, StrategySource::Environment) else { return };
        let Some(commit) = self.commit_to_check(key, &prepared) else { return };
        self.schedule.lost_commit_check_started(&promotion, now);
        let next = self.schedule.lost_commit_check_due(&promotion, now);
        self.requeue_at(key, next);
        self.launch(key, prepared, Work::CheckCommit(commit));
    }

    /// Checks the branch of a promotion whose timeout has passed, before the promotion fails.
    pub(super) fn check_last(&mut self, key: &PipelineKey, name: &str) {
        let promotion = key.promotion(name);
        let until = self.schedule.last_check_until(&promotion, self.now.instant);
        self.requeue_at(key, until);
        let Some(prepared) = self.prepare(key, name, StrategySource::Environment) else { return };
        match self.commit_to_check(key, &prepared) {
            Some(commit) => self.launch(key, prepared, Work::CheckCommit(commit)),
            None => {
                self.schedule.last_check_ended(&promotion);
                self.enqueue(key);
            }
        }
    }

    /// Returns the commit that a forced push may have removed. `None` if the pipeline names another strategy, repository or
    /// branch than the promotion was delivered to: the commit is not in that branch, and was not removed.
    fn commit_to_check(&self, key: &PipelineKey, prepared: &Prepared) -> Option<String> {
        let pipeline = self.pipelines.get(key)?.object();
        prepared.commit().filter(|_| !strategy::has_moved(pipeline, &prepared.promotion))
    }

    /// Handles the end of a check for a delivered commit. If the commit is gone, and the targets do not run it
    /// yet, starts the promotion again.
    pub(super) fn check_ended(
        &mut self,
        key: &PipelineKey,
        name: &str,
        result: Result<Option<String>, ActError>,
    ) {
        let phase = self.record(key, name).map(|record| record.phase());
        let waits = phase == Some(Phase::Delivered);
        let acts = self.pipelines.get(key).is_some_and(|entry| !entry.model.suspended);
        if !matches!(result, Err(ActError::Delivery(DeliveryError::Revoked))) {
            self.schedule.last_check_ended(&key.promotion(name));
        }
        match result {
            Ok(Some(commit)) if waits && acts => {
                let lost = RecordChange::Moved(Transition::of_lost(name.into(), &commit));
                self.schedule.forget(&key.promotion(name));
                self.count(MetricUpdate::Failed("CommitLost".into()));
                self.change(key, name, &lost);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(pipeline = %key, promotion = name, %error, "cannot check whether a commit is still in its branch");
            }
        }
    }

    /// Looks for a delivery that is not recorded, before a promotion ends. Nothing has tried to deliver a promotion before its
    /// first try. A side effect in flight is waited for, because it may deliver: without a limit if the targets run the revision,
    /// and for a limited time if a person has rejected the promotion, whose delivery is revoked.
    pub(super) fn find_delivery(&mut self, key: &PipelineKey, name: &str) {
        let Some(record) = self.record(key, name) else { return };
        let (object, is_first_try) = (record.object().clone(), record.is_first_try);
        let is_rejected = object.spec.rejection_now(&record.status()).is_some();
        let in_flight = self.in_flight.get(&(key.clone(), object.spec.place()));
        let may_deliver = in_flight.map(|in_flight| !in_flight.finds_delivery);
        let promotion = key.promotion(name);
        if is_first_try || is_rejected || may_deliver.is_none() {
            let until = self.schedule.last_check_until(&promotion, self.now.instant);
            self.requeue_at(key, until);
        }
        if is_first_try {
            self.schedule.last_check_ended(&promotion);
            self.enqueue(key);
        } else if is_rejected && may_deliver == Some(true) {
            self.revoke_in_flight_of(key, &object);
        } else if let Some(prepared) = self.prepare(key, name, StrategySource::Environment) {
            self.launch(key, prepared, Work::FindDelivery);
        }
    }

    /// Handles the end of a look for a delivery. Returns how the record changes if one was found, unless the promotion has got
    /// into another phase since the look was started.
    pub(super) fn find_ended(
        &mut self,
        key: &PipelineKey,
        name: &str,
        strategy: &Strategy,
        result: Result<Option<Delivered>, ActError>,
    ) -> Option<RecordChange> {
        if !matches!(result, Err(ActError::Delivery(DeliveryError::Revoked))) {
            self.schedule.last_check_ended(&key.promotion(name));
        }
        match result {
            Ok(found) => {
                let phase = self.record(key, name)?.phase();
                let waits = matches!(phase, Phase::Pending | Phase::Promoting);
                found.filter(|_| waits).map(|delivered| outcome::delivered(delivered, strategy))
            }
            Err(error) => {
                tracing::warn!(pipeline = %key, promotion = name, %error, "cannot look whether an earlier try has delivered the promotion; its record may lack the delivery");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::effect::Effect;
    use super::super::fixtures::{ended, insert, key, pipeline, record, state};
    use super::*;
    use crate::act::JobOutcome;

    type Answer = Result<Option<String>, ActError>;

    /// Its targets do not run it, and its timeout has passed.
    #[test]
    fn a_promotion_waits_for_the_last_check_of_its_branch_for_a_limited_time() {
        let answers: [(Option<Answer>, bool, Phase); 4] = [
            (Some(Ok(None)), true, Phase::Delivered),
            (Some(Ok(Some("c0ffee".into()))), false, Phase::Pending),
            (Some(Err(ActError::Internal("a panic".into()))), true, Phase::Delivered),
            (None, false, Phase::Delivered),
        ];
        for (answer, is_over, phase) in answers {
            let context = format!("{answer:?}");
            let mut state = state();
            state.put_pipeline(pipeline());
            let delivered = json!({"metadata": {"name": "p", "namespace": "apps", "uid": "p", "resourceVersion": "5"},
                "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}},
                "status": {"phase": "Delivered", "commit": "c0ffee"}});
            insert(&mut state, record(serde_json::from_value(delivered).unwrap()));
            state.effects.clear();
            for _ in 0..3 {
                state.check_last(&key(), "p");
            }
            let started = std::mem::take(&mut state.effects);
            let [Effect::Start(job)] = &started[..] else { panic!("{started:?}") };
            assert!(matches!(&job.work, Work::CheckCommit(commit) if commit == "c0ffee"));
            let is_waiting = answer.is_none();
            if let Some(answer) = answer {
                state.job_ended(ended(job, JobOutcome::Check(answer)));
            }
            let now = state.now.instant;
            let over = |seconds| {
                state.schedule.is_last_check_over(&key().promotion("p"), now + Duration::from_secs(seconds))
            };
            assert_eq!(
                (over(0), over(119), over(120)),
                (is_over, is_over, is_over || is_waiting),
                "{context}"
            );
            assert_eq!(state.record(&key(), "p").unwrap().phase(), phase, "{context}");
        }
    }

    /// A promotion that a process has tried to commit, and its record does not say so.
    fn tried() -> State {
        let mut state = state();
        state.put_pipeline(pipeline());
        let pending = json!({"metadata": {"name": "p", "namespace": "apps", "uid": "p", "resourceVersion": "5"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}},
            "status": {"phase": "Pending"}});
        insert(&mut state, record(serde_json::from_value(pending).unwrap()));
        state.effects.clear();
        state
    }

    #[test]
    fn a_delivery_is_looked_for_once_and_recorded_if_it_is_found() {
        let found = || Delivered::Committed { commit: "c0ffee".into() };
        let failed = || Err(ActError::Internal("a panic".into()));
        let revoked = || Err(ActError::Delivery(DeliveryError::Revoked));
        for (answer, phase, is_over) in [
            (Ok(Some(found())), Phase::Delivered, false),
            (Ok(None), Phase::Pending, true),
            (failed(), Phase::Pending, true),
            (revoked(), Phase::Pending, false),
        ] {
            let context = format!("{answer:?}");
            let mut state = tried();
            state.find_delivery(&key(), "p");
            state.find_delivery(&key(), "p");
            let started = std::mem::take(&mut state.effects);
            let [Effect::Start(job)] = &started[..] else { panic!("{started:?}") };
            assert!(matches!(job.work, Work::FindDelivery), "{context}");
            state.job_ended(ended(job, JobOutcome::Find(answer)));
            let is_checked = state.schedule.is_last_check_over(&key().promotion("p"), state.now.instant);
            let status = state.record(&key(), "p").unwrap().status();
            assert_eq!((status.phase, is_checked), (phase, is_over), "{context}");
            assert_eq!(status.commit.is_some(), phase == Phase::Delivered, "{context}");
        }
    }

    #[test]
    fn nothing_is_looked_for_before_the_first_try_or_while_a_delivery_is_in_flight() {
        let mut state = tried();
        state.record_mut(&key(), "p").unwrap().is_first_try = true;
        state.find_delivery(&key(), "p");
        assert!(state.effects.is_empty(), "{:?}", state.effects);
        assert!(state.schedule.is_last_check_over(&key().promotion("p"), state.now.instant));
        // The delivery may still arrive, so the look comes after it.
        state.deliver(&key(), "p");
        let started = std::mem::take(&mut state.effects);
        let [Effect::Start(delivery)] = &started[..] else { panic!("{started:?}") };
        state.find_delivery(&key(), "p");
        assert!(state.effects.is_empty(), "{:?}", state.effects);
        state.job_ended(ended(
            delivery,
            JobOutcome::Delivery(Err(ActError::Delivery(DeliveryError::Revoked))),
        ));
        state.effects.clear();
        state.find_delivery(&key(), "p");
        assert!(matches!(&state.effects[..], [Effect::Start(job)] if matches!(job.work, Work::FindDelivery)));
        // Before the first try, what is in flight is of another promotion.
        state.schedule.forget_last_check(&key().promotion("p"));
        state.record_mut(&key(), "p").unwrap().is_first_try = true;
        state.find_delivery(&key(), "p");
        assert!(state.schedule.is_last_check_over(&key().promotion("p"), state.now.instant));
    }
}
