//! When a failed delivery is retried before its pause is over: its pipeline was edited, or the targets show
//! another revision or source than before. Either may be the fix.

use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_core::observed::ObservedTargets;
use sluice_core::pipeline::Pipeline;
use sluice_core::promotion::Promotion;

use super::State;
use super::entries::may_retry_early;
use crate::key::PipelineKey;

impl State {
    /// Retries failed deliveries of a pipeline soon, if its targets show other revisions or sources than when
    /// they failed.
    pub(super) fn retry_early(
        &mut self,
        key: &PipelineKey,
        observed: &ObservedTargets,
        promotions: &[Promotion],
    ) {
        let (Some(entry), Some(records)) = (self.pipelines.get(key), self.promotions.get(key)) else {
            return;
        };
        let waits = |name: &&str| records.get(*name).is_some_and(|record| may_retry_early(record.object()));
        let waiting: Vec<&str> = promotions.iter().map(|p| p.name.as_str()).filter(waits).collect();
        if waiting.is_empty() {
            return;
        }
        let targets_hash = targets_hash(&entry.model, observed);
        let mut is_sooner = false;
        for name in waiting {
            is_sooner |= self.backoff.targets_observed(name, targets_hash, self.now.instant);
        }
        if is_sooner {
            self.enqueue(key);
        }
    }
}

/// A hash of the revisions and sources that the targets of a pipeline show. Their health is left out: it may
/// change every second, and fixes no failure.
fn targets_hash(pipeline: &Pipeline, observed: &ObservedTargets) -> u64 {
    let mut hash = DefaultHasher::new();
    for environment in &pipeline.environments {
        let targets = environment.targets.iter();
        let readable = targets.filter_map(|t| Some((t, observed.target(&environment.name, t)?)));
        for (name, target) in readable.filter(|(_, target)| target.error.is_none()) {
            (&environment.name, name).hash(&mut hash);
            for member in &target.members {
                (&member.kind, &member.name, &member.facets).hash(&mut hash);
                member.source.as_ref().map(|source| (&source.url, &source.branch)).hash(&mut hash);
            }
        }
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::observed::ObservedTarget;

    use super::super::tests::{insert, key, record, state};
    use super::*;

    fn pipeline(generation: i64, observed: i64) -> sluice_api::Pipeline {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": generation,
                "resourceVersion": (10 + generation).to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]},
            "status": {"observedGeneration": observed}});
        serde_json::from_value(object).unwrap()
    }

    /// The name of the promotion of revision 1 into dev.
    fn name() -> String {
        let model = crate::translate::pipeline(&pipeline(1, 1));
        let facets = [("HelmRelease/a:chart".to_string(), "1".to_string())].into();
        let revision = sluice_core::Revision::from_strings(&facets).unwrap();
        sluice_core::promotion_name::promotion_name(&model, &model.environments[0], &revision, 0)
    }

    /// A promotion whose delivery failed, and which is retried in an hour.
    fn failed(state: &mut State, reason: &str) {
        let later = state.now.wall.checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": name(), "namespace": "apps"},
            "spec": {"pipeline": "podinfo", "environment": "dev", "revision": "1",
                "facets": {"HelmRelease/a:chart": "1"}},
            "status": {"phase": "Promoting", "reason": reason, "attempts": 3,
                "nextAttempt": sluice_core::Time::to_second(later)}});
        insert(state, record(serde_json::from_value(object).unwrap()));
    }

    /// Whether its retry is due.
    fn is_due(state: &mut State) -> bool {
        state.load(&key()).unwrap().0[0].next_attempt.unwrap() <= state.now.wall
    }

    #[test]
    fn an_edit_of_the_pipeline_ends_the_pause_also_if_no_process_ran_then() {
        for (observed, reason, due) in
            [(1, "NoMarker", false), (0, "NoMarker", true), (0, "RateLimited", false)]
        {
            let mut state = state();
            failed(&mut state, reason);
            state.put_pipeline(pipeline(1, observed));
            assert_eq!(is_due(&mut state), due, "before this process started: {observed} {reason}");
            state.put_pipeline(pipeline(2, observed));
            assert_eq!(is_due(&mut state), reason != "RateLimited", "now: {observed} {reason}");
        }
    }

    #[test]
    fn another_revision_at_a_target_ends_the_pause() {
        let mut state = state();
        failed(&mut state, "NoMarker");
        state.put_pipeline(pipeline(1, 1));
        let mut is_due_with = |version: &str| {
            let mut observed = ObservedTargets::default();
            let mut target = ObservedTarget::default();
            target.members.extend(super::super::reconcile::tests::runs(version).members);
            observed.insert("dev", "podinfo", target);
            let (promotions, _) = state.load(&key()).unwrap();
            state.retry_early(&key(), &observed, &promotions);
            is_due(&mut state)
        };
        assert!(!is_due_with("1.0.0"));
        assert!(!is_due_with("1.0.0"));
        assert!(is_due_with("1.1.0"));
    }
}
