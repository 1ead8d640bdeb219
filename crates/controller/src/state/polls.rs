//! Polls of open change requests, and what follows from them.

use sluice_api::promotion::Phase;
use sluice_delivery::{ChangeRequestLook, ChangeRequestStatus, OutdatedReason};

use super::State;
use super::actions::StrategySource;
use super::effect::Work;
use crate::act::outcome;
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::RecordChange;

impl State {
    /// Polls a change request, if that is due.
    pub(super) fn follow(&mut self, key: &PipelineKey, name: &str, may_merge: bool) {
        if !may_merge {
            self.revoke_proposed_in_flight(key, name);
        }
        let (promotion, now) = (key.promotion(name), self.now.instant);
        // If it is not closed after all, a close by a person does not count as a rejection until Sluice has seen it open.
        let is_look = self.record(key, name).is_some_and(|record| record.status().withdraws_request());
        let due = match is_look {
            true => self.schedule.look_due(&promotion, now),
            false => self.schedule.poll_due(&promotion, now),
        };
        if due > now {
            return self.requeue_at(key, due);
        }
        let Some(mut prepared) = self.prepare(key, name, StrategySource::Request) else { return };
        let Some(request) = prepared.request() else { return };
        prepared.order.checks_settled = self.schedule.checks_settled(&promotion, &request.head_commit, now);
        prepared.order.reads_checks =
            may_merge && self.schedule.starts_check_read(&promotion, &request.head_commit, now);
        self.schedule.polled(&promotion, is_look, now);
        let next = self.schedule.poll_due(&promotion, now);
        self.requeue_at(key, next);
        self.launch(key, prepared, Work::Follow { request, may_merge });
    }

    /// Revokes the fencing token of a poll in flight that may merge, or of a rebuild: a gate has closed since it was started.
    fn revoke_proposed_in_flight(&mut self, key: &PipelineKey, name: &str) {
        let Some(object) = self.record(key, name).map(|record| record.object().clone()) else { return };
        let in_flight = self.in_flight.get(&(key.clone(), object.spec.place()));
        if in_flight.is_some_and(|effect| effect.needs_open_gates) {
            self.revoke_in_flight_of(key, &object);
        }
    }

    /// Rebuilds a change request on top of its base, since it cannot be merged as it is.
    fn rebuild(&mut self, key: &PipelineKey, name: &str, outdated: OutdatedReason) {
        let Some(mut prepared) = self.prepare(key, name, StrategySource::Environment) else { return };
        if prepared.promotion.status.as_ref().is_none_or(|status| status.phase != Phase::Proposed) {
            return;
        }
        prepared.order.rebuild = Some(outdated);
        tracing::info!(pipeline = %key, promotion = name, reason = %outdated, "rebuilding a change request");
        self.launch_delivery(key, prepared);
    }

    /// Handles the end of a poll of an open change request. Rebuilds the change request if it cannot be merged as it is, or
    /// returns how the record changes. Like a merge, a rebuild needs open gates, and a poll that was not stopped.
    pub(super) fn poll_ended(
        &mut self,
        key: &PipelineKey,
        name: &str,
        look: ChangeRequestLook,
        may_rebuild: bool,
    ) -> Option<RecordChange> {
        let now = self.now.instant;
        let recorded = self.record(key, name).map(|record| record.status()).unwrap_or_default();
        if let Some(checks) = &look.checks {
            self.schedule.checks_read(&key.promotion(name), checks);
        }
        match &look.status {
            ChangeRequestStatus::Waits { .. } => {
                self.schedule.is_rebuild_due(&key.promotion(name), false, now);
            }
            ChangeRequestStatus::Open { stale, .. } => {
                let is_due =
                    self.schedule.is_rebuild_due(&key.promotion(name), stale.is_some() && may_rebuild, now);
                if let Some(outdated) = stale.filter(|_| is_due) {
                    self.rebuild(key, name, outdated);
                    return None;
                }
            }
            _ => {}
        }
        outcome::looked(look, &recorded, self.now.wall)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_delivery::ReportedChecks;

    use super::super::effect::Effect;
    use super::super::fixtures::{ended, key, proposed};
    use super::*;
    use crate::act::JobOutcome;

    /// Follows the change request, and returns the effects. Half a minute passes.
    fn follow(state: &mut State, may_merge: bool) -> Vec<Effect> {
        state.effects.clear();
        state.follow(&key(), "p", may_merge);
        state.now.instant += Duration::from_secs(30);
        std::mem::take(&mut state.effects)
    }

    /// Until it is seen open, a close by a person would not count as a rejection.
    #[test]
    fn a_change_request_that_is_not_closed_after_all_is_polled_soon() {
        let mut state = proposed();
        state.change(&key(), "p", &RecordChange::WithdrawalBegins);
        for _ in 0..3 {
            state.effects.clear();
            state.follow(&key(), "p", true);
            state.now.instant += Duration::from_secs(1);
        }
        assert!(matches!(&state.effects[..], [Effect::Start(_)]), "{:?}", state.effects);
    }

    /// A gate has closed while Sluice waited for the forge.
    #[test]
    fn a_poll_that_may_merge_is_stopped_when_the_merge_is_not_allowed_any_more() {
        let mut state = proposed();
        assert!(follow(&mut state, true).is_empty(), "the first poll is not due");
        let started = follow(&mut state, true);
        assert!(
            matches!(&started[..], [Effect::Start(job)] if matches!(job.work, Work::Follow { may_merge: true, .. })),
            "{started:?}"
        );
        assert!(follow(&mut state, true).is_empty());
        assert!(matches!(follow(&mut state, false)[..], [Effect::Revoke(_)]));
    }

    /// Nothing but the page needs them.
    #[test]
    fn only_some_polls_read_the_checks_and_their_list_is_recorded() {
        for (may_merge, expected) in [(true, [true, true, false, true, false]), (false, [false; 5])] {
            let mut state = proposed();
            follow(&mut state, may_merge);
            let mut asked = Vec::new();
            for _ in expected {
                let started = follow(&mut state, may_merge);
                let [Effect::Start(job)] = &started[..] else { panic!("{started:?}") };
                asked.push(job.order.reads_checks);
                let status = ChangeRequestStatus::Open { head: "c0ffee".into(), stale: None };
                let checks =
                    ReportedChecks { head: "c0ffee".into(), pending: 1, ..ReportedChecks::default() };
                let checks = Some(checks).filter(|_| job.order.reads_checks);
                state.job_ended(ended(job, JobOutcome::Follow(Ok(ChangeRequestLook { status, checks }))));
            }
            assert_eq!(asked, expected, "{may_merge}");
            let recorded = state.record(&key(), "p").unwrap().status().change_request.unwrap().checks;
            assert_eq!(recorded.map(|checks| checks.pending), may_merge.then_some(1));
        }
    }

    /// The next decision may come a minute later.
    #[test]
    fn no_change_request_is_rebuilt_after_a_rejection_or_while_a_gate_is_closed() {
        for (may_merge, is_rejected, expected) in
            [(true, false, true), (true, true, false), (false, false, false)]
        {
            let mut state = proposed();
            follow(&mut state, may_merge);
            for poll in 0..2 {
                let started = follow(&mut state, may_merge);
                let [Effect::Start(job)] = &started[..] else { panic!("{started:?}") };
                if poll == 1 && is_rejected {
                    reject(&mut state);
                }
                let stale = Some(OutdatedReason::Conflicts);
                let conflicts = ChangeRequestStatus::Open { head: "c0ffee".into(), stale };
                state.job_ended(ended(job, JobOutcome::Follow(Ok(conflicts.into()))));
            }
            let rebuilding = state.effects.iter().find_map(|effect| match effect {
                Effect::Start(job) => Some(job),
                _ => None,
            });
            let is_rebuilt = rebuilding.is_some();
            if let Some(job) = rebuilding {
                let status = job.promotion.status.as_ref().unwrap();
                assert_eq!(job.order.recorded, [status.change_request.as_ref().unwrap().url.as_str()]);
            }
            assert_eq!(is_rebuilt, expected, "{may_merge} {is_rejected}");
            let is_stopped = matches!(follow(&mut state, false)[..], [Effect::Revoke(_)]);
            assert_eq!(is_stopped, is_rebuilt, "a rebuild stops when a gate closes");
        }
    }

    /// Somebody rejects the promotion. The side effect in flight is stopped.
    fn reject(state: &mut State) {
        let mut rejected = state.record(&key(), "p").unwrap().object().as_ref().clone();
        rejected.metadata.resource_version = Some("6".into());
        let rejection = json!({"by": "jane", "reason": "no", "revision": "1"});
        rejected.spec.rejection = serde_json::from_value(rejection).unwrap();
        state.put_promotion(rejected);
        for effect in std::mem::take(&mut state.effects) {
            if let Effect::Revoke(fencing_token) = effect {
                fencing_token.revoke();
            }
        }
    }
}
