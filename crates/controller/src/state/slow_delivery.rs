//! Deliveries that have begun and have no result for long: they wait for their turn, or for a server that does not answer.
//! Without a message the promotion would look as if nobody worked on it.

use std::time::Duration;

use kube::ResourceExt;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::{GATES_OPEN, Phase};
use sluice_core::decide::WAITING;

use super::State;
use super::entries::Record;
use crate::act::strategy;
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::{DELIVERY_SLOW, RecordChange};

/// How long a delivery runs before its promotion says what it waits for. Most take less than a second.
pub(super) const AFTER: Duration = Duration::from_secs(30);
/// The message of a promotion whose delivery took long, and was stopped or has not begun again.
const WAITS: &str = "it waits for its turn";

impl State {
    /// Notes in a promotion that its delivery takes long, or that of an earlier promotion which it waits for. The cause of an
    /// earlier failure says more, and stays.
    pub(super) fn report_slow_delivery(&mut self, key: &PipelineKey, name: &str) {
        let Some(record) = self.record(key, name) else { return };
        let (promotion, status) = (record.object(), record.status());
        let in_flight = self.in_flight.get(&(key.clone(), promotion.spec.place()));
        let Some(started) = in_flight.map(|in_flight| in_flight.started) else { return };
        // What it waited for before its delivery began is over.
        let is_silent =
            ["", WAITS].contains(&&*status.message) || [GATES_OPEN, WAITING].contains(&&*status.reason);
        if status.phase != Phase::Pending || !is_silent {
            return;
        }
        if self.now.instant < started + AFTER {
            return self.requeue_at(key, started + AFTER);
        }
        let Some(pipeline) = self.pipelines.get(key).map(|entry| entry.object()) else { return };
        let repository = strategy::named(pipeline, promotion).and_then(Strategy::repository);
        let server = match repository {
            Some(repository) => format!("the server of {}", repository.id()),
            None => "the receiver".into(),
        };
        let message = format!(
            "the delivery takes long (more than {} seconds): other deliveries are first, or {server} does not answer",
            AFTER.as_secs()
        );
        self.change(key, name, &RecordChange::Slow(message));
    }

    /// Notes that no delivery into a place takes long any more, after one has ended.
    pub(super) fn end_slow_delivery(&mut self, key: &PipelineKey, place: &str) {
        let is_slow = |record: &&Record| {
            let status = record.status();
            status.phase == Phase::Pending && status.reason == DELIVERY_SLOW
        };
        let slow = self.records_into(key, place).filter(is_slow);
        let names: Vec<String> = slow.map(|record| record.object().name_any()).collect();
        for name in names {
            self.change(key, &name, &RecordChange::Slow(WAITS.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::decide::{Action, Decision};
    use sluice_delivery::DeliveryError;

    use super::super::effect::{Effect, Job};
    use super::super::fixtures::{at, ended, insert, key, pipeline, record, state_at};
    use super::*;
    use crate::act::{ActError, JobOutcome};

    fn promotion(name: &str, status: &serde_json::Value) -> Record {
        let object = json!({"metadata": {"name": name, "namespace": "apps", "uid": name, "resourceVersion": "5"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}},
            "status": status});
        record(serde_json::from_value(object).unwrap())
    }

    /// Returns the delivery that the state has started.
    fn started(state: &mut State) -> Box<Job> {
        let started = state.effects.drain(..).find_map(|effect| match effect {
            Effect::Start(job) => Some(job),
            _ => None,
        });
        started.unwrap()
    }

    /// The pipeline was suspended, or does not want the delivery now.
    fn revoked() -> JobOutcome {
        JobOutcome::Delivery(Err(ActError::Delivery(DeliveryError::Revoked)))
    }

    #[test]
    fn a_promotion_waits_no_longer_for_the_delivery_of_one_that_was_deleted() {
        let start = std::time::Instant::now();
        let mut state = state_at(at(start, 0));
        state.put_pipeline(pipeline());
        for name in ["p", "newer"] {
            insert(&mut state, promotion(name, &json!({"phase": "Pending"})));
        }
        let deliver = Action::Deliver { promotion: "p".into() };
        state.act(&key(), &Decision { actions: vec![deliver], ..Decision::default() });
        let started = started(&mut state);
        state.now = at(start, AFTER.as_secs());
        state.report_slow_delivery(&key(), "newer");
        let reason = |state: &State| state.record(&key(), "newer").unwrap().status().reason;
        assert_eq!(reason(&state), DELIVERY_SLOW);
        state.promotions.get_mut(&key()).unwrap().remove("p");
        state.job_ended(ended(&started, revoked()));
        assert_eq!(state.record(&key(), "newer").unwrap().status().message, WAITS);
    }

    #[test]
    fn a_promotion_says_what_a_slow_delivery_waits_for() {
        let slow = "the delivery takes long (more than 30 seconds): other deliveries are first, or the server of \
                    git.example.com/acme/fleet main does not answer";
        let passed = json!({"phase": "Pending", "reason": GATES_OPEN, "message": "its gates are open"});
        let failed = json!({"phase": "Promoting", "reason": "Unreachable", "message": "no route to host"});
        let waited = json!({"phase": "Pending", "reason": WAITING, "message": "no target can be read"});
        for (status, seconds, message) in [
            (waited.clone(), 29, "no target can be read"),
            (waited, 30, slow),
            (json!({"phase": "Pending"}), 29, ""),
            (json!({"phase": "Pending"}), 30, slow),
            (passed.clone(), 29, "its gates are open"),
            (passed, 30, slow),
            (failed, 30, "no route to host"),
        ] {
            let start = std::time::Instant::now();
            let mut state = state_at(at(start, 0));
            state.put_pipeline(pipeline());
            insert(&mut state, promotion("p", &status));
            let deliver = Action::Deliver { promotion: "p".into() };
            let decision = Decision { actions: vec![deliver], ..Decision::default() };
            state.act(&key(), &decision);
            assert_eq!(state.timers.next(), Some(start + AFTER), "{status}");
            state.now = at(start, seconds);
            state.act(&key(), &decision);
            assert_eq!(state.record(&key(), "p").unwrap().status().message, message, "{status} {seconds}");
            // One that comes meanwhile waits for the same delivery.
            let mut newer = state.record(&key(), "p").unwrap().object().as_ref().clone();
            (newer.metadata.name, newer.status) = (Some("newer".into()), None);
            insert(&mut state, record(newer));
            state.report_slow_delivery(&key(), "newer");
            let shown = state.record(&key(), "newer").unwrap().status().message;
            assert_eq!(shown, if seconds < 30 { "" } else { slow }, "{status} {seconds}");
            let started = started(&mut state);
            state.job_ended(ended(&started, revoked()));
            for name in ["p", "newer"] {
                let shown = state.record(&key(), name).unwrap().status().message;
                assert_ne!(shown, slow, "{name} {status} {seconds}");
            }
        }
    }
}
