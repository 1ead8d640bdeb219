//! Commit statuses: the progress of a promotion, reported on the commit that its merged change request left on the
//! base. They delay, fail and repeat no promotion. What is reported follows from the record alone, and nothing is
//! stored about it: after a restart, promotions that are in progress or ended lately are reported again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sluice_api::promotion::{Phase, Promotion, RecordedRequestState};
use sluice_delivery::PromotionProgress;

use super::State;
use super::actions::StrategySource;
use super::effect::{CommitStatusReport, Effect};
use super::entries::Reported;
use crate::act::strategy;
use crate::pipeline_key::PipelineKey;

/// How long after its end a promotion is still reported.
const ENDED_LATELY: SignedDuration = SignedDuration::from_mins(10);

impl State {
    /// Reports the progress of promotions that was not reported yet, if the strategy asks for it. Records that are
    /// not as Sluice wrote them are left out.
    pub(super) fn report_commit_statuses(&mut self, key: &PipelineKey, tampered: &BTreeMap<String, String>) {
        let (Some(entry), Some(records)) = (self.pipelines.get(key), self.promotions.get(key)) else {
            return;
        };
        let candidates = records.iter().filter(|(name, _)| !tampered.contains_key(*name));
        let due = candidates.filter_map(|(name, record)| {
            let (progress, description) = progress(record.object(), self.now.wall)?;
            let round = record.object().status.as_ref().map_or(0, |status| status.round);
            let is_reported =
                record.reported.as_ref().is_some_and(|r| (r.progress, r.round) == (progress, round));
            let is_due = !is_reported && strategy::may_report(entry.object(), record.object());
            is_due.then(|| (name.clone(), progress, description, round))
        });
        for (name, progress, description, round) in due.collect::<Vec<_>>() {
            let Some(prepared) = self.prepare(key, &name, StrategySource::Request) else { continue };
            let asked = prepared.strategy.pull_request.as_ref().is_some_and(|s| s.commit_statuses);
            let Some(request) = prepared.request().filter(|_| asked) else { continue };
            let reported = Reported { progress, round, fencing_token: prepared.order.fencing_token.clone() };
            let record = self.record_mut(key, &name);
            if let Some(before) = record.and_then(|record| record.reported.replace(reported)) {
                self.emit(Effect::Revoke(before.fencing_token));
            }
            self.emit(Effect::ReportCommitStatus(Box::new(CommitStatusReport {
                pipeline: key.clone(),
                promotion: name,
                order: prepared.order,
                secret: prepared.secret,
                request,
                progress,
                description,
            })));
        }
    }
}

/// The progress of a promotion that was delivered by a merge, and a description; `None` if there is nothing to
/// report.
fn progress(promotion: &Promotion, now: Timestamp) -> Option<(PromotionProgress, String)> {
    let (spec, status) = (&promotion.spec, promotion.status.as_ref()?);
    let is_merged =
        status.change_request.as_ref().is_some_and(|request| request.state == RecordedRequestState::Merged);
    if !is_merged || !status.times.contains_key("Delivered") {
        return None;
    }
    let (place, revision) = (spec.place(), &spec.revision);
    if status.phase == Phase::Delivered {
        return Some((
            PromotionProgress::Pending,
            format!("waits until {place} runs {revision} and is healthy"),
        ));
    }
    let ended = **status.times.get(&status.phase.to_string())?;
    if !status.phase.has_ended() || now.duration_since(ended) > ENDED_LATELY {
        return None;
    }
    Some(match status.phase {
        Phase::Succeeded => (PromotionProgress::Success, format!("{place} runs {revision} and is healthy")),
        _ => (PromotionProgress::Failure, status.message.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{insert, key, record, state};
    use super::*;

    const NOW: &str = "2026-01-02T03:00:00Z";

    fn strategy(reports: bool) -> Value {
        json!({"type": "github", "url": "https://git.example.com/acme/fleet.git", "secretRef": {"name": "s"},
            "commitStatuses": reports})
    }

    /// A promotion in this phase since then, and its change request in this state.
    fn promotion(phase: &str, since: &str, request: &str, reports: bool) -> Promotion {
        let request = json!({"number": 1, "url": "https://git.example.com/1", "state": request,
            "branch": "sluice/apps/podinfo/prod", "headCommit": "c", "strategy": strategy(reports)});
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod", "namespace": "apps"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8",
                "facets": {"HelmRelease/a:chart": "6.1.8"}},
            "status": {"phase": phase, "message": "it crashes", "changeRequest": request,
                "times": {"Delivered": NOW, phase: since}}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_merged_promotion_is_reported_until_a_while_after_its_end() {
        let (late, now) = ("2026-01-02T02:00:00Z", NOW.parse().unwrap());
        let pending = Some((PromotionProgress::Pending, "waits until prod runs 6.1.8 and is healthy"));
        let failed = Some((PromotionProgress::Failure, "it crashes"));
        for (phase, since, request, expected) in [
            ("Delivered", NOW, "merged", pending),
            ("Delivered", late, "merged", pending),
            (
                "Succeeded",
                NOW,
                "merged",
                Some((PromotionProgress::Success, "prod runs 6.1.8 and is healthy")),
            ),
            ("Succeeded", late, "merged", None),
            ("Failed", NOW, "merged", failed),
            ("Superseded", NOW, "merged", failed),
            ("Cancelled", late, "merged", None),
            ("Proposed", NOW, "open", None),
            ("Succeeded", NOW, "withdrawn", None),
            ("Rejected", NOW, "closed", None),
            // The merge did not bring the revision: it is delivered again.
            ("Promoting", NOW, "merged", None),
        ] {
            let reported = progress(&promotion(phase, since, request, true), now);
            let reported = reported.as_ref().map(|(progress, description)| (*progress, description.as_str()));
            assert_eq!(reported, expected, "{phase} {since} {request}");
        }
        let mut missed = promotion("Superseded", NOW, "merged", true);
        missed.status.as_mut().unwrap().times.remove("Delivered");
        assert_eq!(progress(&missed, now), None);
    }

    /// Replaces the record, and returns the progress that is reported and whether an earlier report is revoked.
    fn reported(state: &mut State, object: Promotion) -> (Option<PromotionProgress>, bool) {
        let reported = state.record_mut(&key(), "podinfo-prod").and_then(|record| record.reported.take());
        insert(state, super::super::Record { reported, ..record(object) });
        state.now.wall = NOW.parse().unwrap();
        state.report_commit_statuses(&key(), &BTreeMap::new());
        let effects = std::mem::take(&mut state.effects);
        let is_revoked = effects.iter().any(|effect| matches!(effect, Effect::Revoke(_)));
        let progress = effects.iter().find_map(|effect| match effect {
            Effect::ReportCommitStatus(status) => Some(status.progress),
            _ => None,
        });
        (progress, is_revoked)
    }

    #[test]
    fn each_progress_is_reported_once_and_replaces_the_one_before() {
        for asked in [false, true] {
            let mut state = state();
            let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "1"},
                "spec": {"environments": [{"name": "prod", "targets": [{"namespace": "podinfo"}]}],
                    "promotion": {"strategy": {"pull-request": strategy(asked)}}}});
            state.put_pipeline(serde_json::from_value(pipeline).unwrap());
            state.effects.clear();
            let delivered = promotion("Delivered", NOW, "merged", asked);
            let pending = asked.then_some(PromotionProgress::Pending);
            assert_eq!(reported(&mut state, delivered.clone()), (pending, false));
            assert_eq!(reported(&mut state, delivered), (None, false));
            let succeeded = promotion("Succeeded", NOW, "merged", asked);
            assert_eq!(reported(&mut state, succeeded), (asked.then_some(PromotionProgress::Success), asked));
        }
    }
}
