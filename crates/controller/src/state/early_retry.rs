//! When a failed delivery is tried again before its pause is over: its pipeline was edited, or the targets show
//! something else than before. Either may be the correction of what it failed by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use sluice_api::promotion::{Phase as ApiPhase, Promotion as ApiPromotion};
use sluice_core::model::{Pipeline, Promotion};
use sluice_core::world::World;

use crate::engine::Engine;
use crate::intake::PipelineKey;

/// Whether a promotion waits for another try that may come sooner. A forge that asked for a pause gets it.
pub(crate) fn may_hurry(object: &ApiPromotion) -> bool {
    object.status.as_ref().is_some_and(|status| {
        status.phase == ApiPhase::Promoting && status.next_attempt.is_some() && status.reason != "RateLimited"
    })
}

impl Engine {
    /// Has failed deliveries of a pipeline tried again soon, if its targets show other revisions or sources than
    /// when they failed.
    pub(crate) fn hurry(&mut self, key: &PipelineKey, world: &World, promotions: &[Promotion]) {
        let (Some(entry), Some(records)) = (self.pipelines.get(key), self.promotions.get(key)) else {
            return;
        };
        let may_hurry = |name: &str| records.get(name).is_some_and(|record| may_hurry(&record.object));
        let waiting: Vec<&str> =
            promotions.iter().map(|p| p.name.as_str()).filter(|name| may_hurry(name)).collect();
        if waiting.is_empty() {
            return;
        }
        let (shown, now) = (shown(&entry.model, world), Instant::now());
        let mut sooner = false;
        for name in waiting {
            sooner |= self.polling.saw(name, shown, now);
        }
        if sooner {
            self.touch(key);
        }
    }
}

/// The revisions and sources that the targets of a pipeline show, as a hash. How they do is left out: it may
/// change every second, and corrects nothing.
fn shown(pipeline: &Pipeline, world: &World) -> u64 {
    let mut hash = DefaultHasher::new();
    for environment in &pipeline.environments {
        let targets = environment.targets.iter();
        let readable = targets.filter_map(|t| Some((t, world.target(&environment.name, t)?)));
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
    use std::sync::Arc;

    use serde_json::json;
    use sluice_core::world::Target;
    use sluice_delivery::clock;
    use sluice_testkit::Scratch;

    use super::*;
    use crate::engine::Record;
    use crate::engine::tests::engine;

    fn key() -> PipelineKey {
        PipelineKey { namespace: "apps".into(), name: "podinfo".into() }
    }

    fn pipeline(generation: i64, observed: i64) -> sluice_api::Pipeline {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": generation,
                "resourceVersion": (10 + generation).to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]},
            "status": {"observedGeneration": observed}});
        serde_json::from_value(object).unwrap()
    }

    /// The name that the promotion of revision 1 into dev has.
    fn name() -> String {
        let model = crate::translate::pipeline(&pipeline(1, 1));
        let facets = [("HelmRelease/a:chart".to_string(), "1".to_string())].into();
        let revision = sluice_core::Revision::from_strings(&facets).unwrap();
        sluice_core::model::promotion_name(&model, &model.environments[0], &revision, 0)
    }

    /// A promotion whose delivery failed, and which is tried again in an hour.
    fn failed(engine: &mut Engine, reason: &str) {
        let later = clock::now().checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": name(), "namespace": "apps"},
            "spec": {"pipeline": "podinfo", "environment": "dev", "revision": "1",
                "facets": {"HelmRelease/a:chart": "1"}},
            "status": {"phase": "Promoting", "reason": reason, "attempts": 3,
                "nextAttempt": crate::translate::time(later)}});
        let object = Arc::new(serde_json::from_value(object).unwrap());
        let record = Record {
            object,
            stored: true,
            said: None,
            key_approval: None,
            first: false,
            read_at: 1,
            version: 1,
            reported: None,
        };
        engine.promotions.entry(key()).or_default().insert(name(), record);
    }

    /// Whether it is due at the next look.
    fn is_due(engine: &mut Engine) -> bool {
        let now = clock::now();
        engine.take_up(&key(), now).unwrap().0[0].next_attempt.unwrap() <= now
    }

    #[tokio::test]
    async fn an_edit_of_the_pipeline_ends_the_pause_also_one_that_nobody_saw() {
        let scratch = Scratch::new("edited").unwrap();
        for (observed, reason, due) in
            [(1, "NoMarker", false), (0, "NoMarker", true), (0, "RateLimited", false)]
        {
            let mut engine = engine(&scratch);
            failed(&mut engine, reason);
            engine.put_pipeline(pipeline(1, observed));
            assert_eq!(is_due(&mut engine), due, "before this process started: {observed} {reason}");
            engine.put_pipeline(pipeline(2, observed));
            assert_eq!(is_due(&mut engine), reason != "RateLimited", "now: {observed} {reason}");
        }
    }

    #[tokio::test]
    async fn another_revision_at_a_target_ends_the_pause() {
        let scratch = Scratch::new("shown").unwrap();
        let mut engine = engine(&scratch);
        failed(&mut engine, "NoMarker");
        engine.put_pipeline(pipeline(1, 1));
        let mut see = |version: &str| {
            let mut world = World::default();
            let mut target = Target::default();
            target.members.extend(crate::turn::tests::runs(version).members);
            world.insert("dev", "podinfo", target);
            let now = clock::now();
            let (promotions, _) = engine.take_up(&key(), now).unwrap();
            engine.hurry(&key(), &world, &promotions);
            is_due(&mut engine)
        };
        assert!(!see("1.0.0"));
        assert!(!see("1.0.0"));
        assert!(see("1.1.0"));
    }
}
