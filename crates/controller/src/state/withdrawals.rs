//! Closes the open change requests of promotions that do not need them any more, unless another promotion uses them.

use kube::ResourceExt;
use sluice_api::promotion::{Phase, Promotion as ApiPromotion};

use super::State;
use super::actions::StrategySource;
use super::effect::Work;
use crate::act::{ActError, strategy};
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::RecordChange;

/// The comment on a change request that Sluice closes, unless a person rejected its promotion.
const NOT_NEEDED: &str =
    "Sluice does not need this change any more: the environment runs its revision, or a newer one.";

impl State {
    /// Starts to close the change request of a promotion.
    pub(super) fn withdraw(&mut self, key: &PipelineKey, name: &str) {
        let (promotion, now) = (key.promotion(name), self.now.instant);
        if let Some(due) = self.schedule.withdrawal_due(&promotion, now) {
            return self.requeue_at(key, due);
        }
        let Some(mut prepared) = self.prepare(key, name, StrategySource::Request) else { return };
        let Some(request) = prepared.request() else { return };
        prepared.order.open_beside = self.open_beside(key, name);
        self.schedule.withdrawal_started(&promotion, now);
        let status = prepared.promotion.status.as_ref();
        let rejected = status.filter(|s| s.phase == Phase::Rejected).map(|s| s.message.clone());
        let comment = rejected.unwrap_or_else(|| NOT_NEEDED.into());
        self.launch(key, prepared, Work::Withdraw { request, comment });
    }

    /// The other promotions that may use the change request of a promotion and record that later, as `namespace/name`:
    /// those into the same environment (or target) that are open, and that Sluice may have begun to deliver. None if the
    /// pipeline names another repository or branch now.
    fn open_beside(&self, key: &PipelineKey, name: &str) -> Vec<String> {
        let Some((entry, own)) = self.pipelines.get(key).zip(self.record(key, name)) else {
            return Vec::new();
        };
        if strategy::is_outdated(entry.object(), own.object()) {
            return Vec::new();
        }
        let records = self.promotions.get(key).into_iter().flatten();
        let open = records.filter(|(other, record)| {
            *other != name
                && !record.is_first_try
                && record.phase().is_open()
                && record.object().spec.place() == own.object().spec.place()
        });
        open.map(|(other, _)| format!("{}/{other}", key.namespace)).collect()
    }

    /// Whether Sluice leaves a change request to people. The pipeline names another repository or branch now, and
    /// Sluice has lost access to the old one or has failed to close the change request for a long time.
    pub(super) fn is_out_of_reach(&self, key: &PipelineKey, name: &str, error: &ActError) -> bool {
        let Some((entry, record)) = self.pipelines.get(key).zip(self.record(key, name)) else { return false };
        (error.is_lost_access() || self.schedule.has_withdrawal_stalled(&key.promotion(name)))
            && strategy::is_outdated(entry.object(), record.object())
    }

    /// Marks the records whose change request a later promotion uses.
    pub(super) fn hand_over(&mut self, key: &PipelineKey) {
        let Some(records) = self.promotions.get(key) else { return };
        let all: Vec<&ApiPromotion> = records.values().map(|record| record.object().as_ref()).collect();
        let handed_over = all.iter().filter(|promotion| strategy::is_handed_over(promotion, &all));
        let names: Vec<String> = handed_over.map(|promotion| promotion.name_any()).collect();
        names.iter().for_each(|name| self.change(key, name, &RecordChange::HandedOver));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_api::promotion::RecordedRequestState;
    use sluice_delivery::ChangeRequestStatus;

    use super::super::effect::{Effect, Job};
    use super::super::fixtures::{ended, insert, key, proposed, record};
    use super::*;
    use crate::act::JobOutcome;

    /// Adds a promotion of the pipeline.
    fn add(state: &mut State, name: &str, environment: &str, phase: &str) {
        let other = json!({"metadata": {"name": name, "namespace": "apps", "uid": name},
            "spec": {"pipeline": "podinfo", "environment": environment, "revision": "2", "facets": {}},
            "status": {"phase": phase}});
        insert(state, record(serde_json::from_value(other).unwrap()));
    }

    /// Starts to close the change request of `p`.
    fn withdraw(state: &mut State) -> Box<Job> {
        state.now.instant += Duration::from_secs(3600);
        state.effects.clear();
        state.withdraw(&key(), "p");
        match std::mem::take(&mut state.effects).pop() {
            Some(Effect::Start(job)) => job,
            other => panic!("{other:?}"),
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
