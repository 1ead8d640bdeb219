//! Handles the watch of Pipelines.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sluice_api::pipeline::{Observe, Pipeline as ApiPipeline, PipelineStatus, Target};

use super::State;
use super::cached::{Cached, CachedPipeline, PipelineHookFields};
use super::effect::Effect;
use super::entries::{PipelineEntry, may_retry_early};
use super::moved_targets::{forget_moved, forget_moved_since};
use super::status_pace::Damping;
use super::status_queue::StatusOwner;
use crate::hook::secret_condition::HookSecretProblem;
use crate::pipeline_key::PipelineKey;
use crate::predecessor;
use crate::resource_version::{version_of, went_back};
use crate::translate;
use crate::watch::stream::ObjectEvent;

impl State {
    /// Takes in an event of the watch of Pipelines.
    pub(super) fn pipeline_event(&mut self, event: ObjectEvent<ApiPipeline>) {
        match event {
            ObjectEvent::Listed(objects, version) => self.pipelines_listed(objects, version),
            ObjectEvent::Applied(object) => self.put_pipeline(object),
            ObjectEvent::Deleted(metadata) => self.forget_pipeline(&PipelineKey::named(&metadata)),
            // Its owner has replaced the older version, which must not be used any more.
            ObjectEvent::Unreadable(bad) => {
                self.forget_pipeline(&PipelineKey::named(&bad.metadata));
                self.note_unreadable::<ApiPipeline>(bad);
            }
            ObjectEvent::LeftOut(..) => {}
            ObjectEvent::Failed(error) => {
                tracing::warn!(%error, "cannot watch Pipelines: check that the CRDs are installed (sluice crds | kubectl apply -f -), and that the controller has get, list and watch on pipelines")
            }
        }
        self.update_changed_sessions();
    }

    fn pipelines_listed(&mut self, objects: Vec<ApiPipeline>, version: u64) {
        let listed: HashSet<PipelineKey> = objects.iter().map(|o| PipelineKey::named(&o.metadata)).collect();
        let gone: Vec<_> = self.pipelines.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.forget_pipeline(key));
        if went_back(&mut self.listed_at.0, version) {
            self.pipelines.values_mut().for_each(|entry| entry.cached.restored());
        }
        objects.into_iter().for_each(|object| self.put_pipeline(object));
        self.listed.0 = true;
        self.update_all_sessions();
        self.emit(Effect::PublishedAll);
    }

    pub(super) fn put_pipeline(&mut self, object: ApiPipeline) {
        let key = PipelineKey::named(&object.metadata);
        if object.metadata.deletion_timestamp.is_some() {
            return self.forget_pipeline(&key);
        }
        self.note_readable::<ApiPipeline>(&key);
        // This replica writes the status of the object, and the watch reports these writes late.
        let is_own = self.fencing_token(&key).is_some();
        let writing = self.statuses.is_writing(&StatusOwner::Pipeline(key.clone()));
        let Some(entry) = self.pipelines.get_mut(&key) else { return self.new_pipeline(key, object) };
        if entry.cached.is_other(&object) {
            // A late event of an object that was deleted and created again since changes nothing.
            if version_of(&object.metadata) >= entry.cached.read_at() {
                self.new_pipeline(key, object);
            }
            return;
        }
        let before = entry.object().clone();
        let (changes, hook) = entry.cached.take_in(object, is_own && writing);
        if changes.foreign_status && !is_own {
            entry.evidence = translate::evidence(Some(&entry.cached.parts.status()));
        }
        if changes.spec {
            entry.model = translate::pipeline(entry.object());
            forget_moved(&mut entry.evidence, &before, &entry.cached.parts.object);
            entry.edited = true;
            // Side effects in flight were started for the previous spec.
            self.revoke_in_flight(&key);
            self.remove_user(&key, &before);
            self.add_user(&key);
            if is_own {
                self.log_suspension(&key, before.spec.suspend);
            }
        }
        let is_called = changes.is_latest && self.take_pipeline_hook_fields(&key, hook);
        if changes.spec || changes.status || is_called {
            self.enqueue(&key);
        }
    }

    /// Logs that somebody has suspended or resumed a pipeline, which the object does not name.
    fn log_suspension(&self, key: &PipelineKey, was_suspended: bool) {
        match self.pipelines.get(key).map(|entry| entry.object().spec.suspend) {
            Some(true) if !was_suspended => {
                tracing::info!(pipeline = %key, "the pipeline was suspended: nothing is promoted until it is resumed");
            }
            Some(false) if was_suspended => tracing::info!(pipeline = %key, "the pipeline was resumed"),
            _ => {}
        }
    }

    /// Takes in the hook fields of the newest object that was read. Returns whether they have changed.
    fn take_pipeline_hook_fields(&mut self, key: &PipelineKey, hook: PipelineHookFields) -> bool {
        let Some(entry) = self.pipelines.get_mut(key).filter(|entry| entry.cached.hook_fields != hook) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.cached.hook_fields, hook);
        if before.forge_called != entry.cached.hook_fields.forge_called {
            for (name, record) in self.promotions.get(key).into_iter().flatten() {
                let promotion = key.promotion(name);
                self.schedule.poll_soon(&promotion, self.now.instant);
                if may_retry_early(record.object()) {
                    self.schedule.retry_soon(&promotion, self.now.instant);
                }
            }
        }
        true
    }

    fn new_pipeline(&mut self, key: PipelineKey, object: ApiPipeline) {
        if self.pipelines.contains_key(&key) {
            self.forget_pipeline(&key);
        }
        let cached = Cached::<CachedPipeline>::new(object);
        let (object, status) = (cached.parts.object.clone(), cached.parts.status());
        let mut evidence = translate::evidence(Some(&status));
        forget_moved_since(&mut evidence, &status, &object);
        let entry = PipelineEntry {
            model: translate::pipeline(&object),
            evidence,
            edited: is_edited_since(&object, &status),
            cached,
            is_reconciled: false,
            differs: None,
            sent: None,
            damping: Damping::default(),
            enqueued: None,
            rests_until: None,
            cluster_events: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            hook_secret: None,
        };
        self.pipelines.insert(key.clone(), entry);
        self.add_user(&key);
        self.enqueue(&key);
    }

    /// Logs what Sluice does differently for a Pipeline of the predecessor, when this process first reconciles it. So only
    /// the replica that acts for the Pipeline logs it, and a replica that takes over later finds Sluice's own status.
    pub(super) fn log_differences(&mut self, key: &PipelineKey) {
        let Some(entry) = self.pipelines.get_mut(key).filter(|entry| !entry.is_reconciled) else { return };
        entry.is_reconciled = true;
        if let Some(differences) = predecessor::differences(entry.object(), &entry.cached.parts.status()) {
            tracing::info!(pipeline = %key, differences, "taken over from pipeline-controller; see docs/coming-from-weave.md");
        }
    }

    /// Publishes a pipeline, and notes on which clusters it has targets.
    fn add_user(&mut self, key: &PipelineKey) {
        let Some(object) = self.pipelines.get(key).map(|entry| entry.object().clone()) else { return };
        for target in watched_targets(&object) {
            let cluster = target.cluster_key(&key.namespace);
            let users = self.users.entry(cluster.clone()).or_default();
            users.entry(target.namespace.clone()).or_default().insert(key.clone());
            self.changed_users.insert(cluster);
        }
        self.emit(Effect::Publish(key.clone(), object));
    }

    /// Forgets on which clusters a pipeline had targets.
    fn remove_user(&mut self, key: &PipelineKey, object: &ApiPipeline) {
        for target in watched_targets(object) {
            let cluster = target.cluster_key(&key.namespace);
            let Some(users) = self.users.get_mut(&cluster) else { continue };
            if let Some(pipelines) = users.get_mut(&target.namespace) {
                pipelines.remove(key);
                if pipelines.is_empty() {
                    users.remove(&target.namespace);
                }
            }
            if users.is_empty() {
                self.users.remove(&cluster);
            }
            self.changed_users.insert(cluster);
        }
    }

    pub(super) fn forget_pipeline(&mut self, key: &PipelineKey) {
        self.revoke_in_flight(key);
        if let Some(entry) = self.pipelines.remove(key) {
            self.remove_user(key, entry.object());
        }
        self.note_readable::<ApiPipeline>(key);
        self.statuses.forget(&StatusOwner::Pipeline(key.clone()));
        self.emit(Effect::Unpublish(key.clone()));
        self.queue.remove(key);
        self.timers.cancel(key);
        self.waiting_branches.set(key, BTreeSet::new());
    }

    /// Revokes the fencing tokens of all side effects in flight for a pipeline.
    pub(super) fn revoke_in_flight(&mut self, key: &PipelineKey) {
        let fencing_tokens = self
            .in_flight
            .iter()
            .filter(|((of, _), _)| of == key)
            .map(|(_, in_flight)| in_flight.fencing_token.clone());
        self.effects.extend(fencing_tokens.map(Effect::Revoke));
    }

    pub(super) fn hook_secret_read(&mut self, key: &PipelineKey, problem: Option<HookSecretProblem>) {
        if let Some(entry) = self.pipelines.get_mut(key) {
            entry.hook_secret = Some(problem);
            self.enqueue(key);
        }
    }
}

/// Whether an object was edited since its status was composed.
fn is_edited_since(object: &ApiPipeline, status: &PipelineStatus) -> bool {
    object.metadata.generation.is_some_and(|now| now != status.observed_generation)
}

/// Returns the targets of a pipeline that Sluice watches. Flux reports on the other targets.
pub(super) fn watched_targets(object: &ApiPipeline) -> impl Iterator<Item = &Target> {
    let targets = object.spec.environments.iter().flat_map(|environment| &environment.targets);
    targets.filter(|target| target.observe == Observe::Watch)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;
    use sluice_core::Time;
    use sluice_delivery::LeaseTerm;
    use sluice_testkit::CapturedLog;

    use super::super::fixtures::{at, settings, state};
    use super::super::{Input, State};
    use super::ObjectEvent;
    use crate::pipeline_key::PipelineKey;
    use crate::shard::{ShardChange, Shards, StoredState};
    use crate::state::status_queue::{StatusOwner, StoredObject, StoredVersion, serialize_status};

    #[test]
    fn an_older_event_does_not_replace_newer_reports() {
        let mut state = state();
        let mut runs_after = |version: u64, reported: &str| {
            let report = json!({"time": "2026-11-21T10:00:00Z", "health": "Ready", "revision": reported});
            let object = json!({
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": 1,
                    "resourceVersion": version.to_string()},
                "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]},
                "status": {"reports": {"dev/eu/HelmRelease/podinfo": report}}});
            state.put_pipeline(serde_json::from_value(object).unwrap());
            let entry = state.pipelines.values().next().unwrap();
            entry
                .cached
                .hook_fields
                .reports
                .values()
                .map(|report| report.revision.clone())
                .collect::<String>()
        };
        assert_eq!(runs_after(5, "6.1.8"), "6.1.8");
        // This replica gains the shard and reads the object; the watch reports the earlier version later.
        assert_eq!(runs_after(9, "6.1.9"), "6.1.9");
        assert_eq!(runs_after(7, "6.1.8"), "6.1.9");
        // The target really runs the earlier revision again.
        assert_eq!(runs_after(10, "6.1.8"), "6.1.8");
    }

    /// A Pipeline as the API server holds it at a version.
    fn stored(version: u64, generation: i64, suspend: bool) -> sluice_api::Pipeline {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": generation,
                "resourceVersion": version.to_string()},
            "spec": {"suspend": suspend, "environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_acknowledged_status_write_hides_no_edit_that_came_before_it() {
        let mut state = state();
        state.put_pipeline(stored(4, 1, false));
        let key = state.pipelines.keys().next().unwrap().clone();
        // The user suspends at version 9. The status write that was in flight conflicts, is sent again and
        // is acknowledged at version 10, before the watch delivers the edit.
        state
            .pipelines
            .get_mut(&key)
            .unwrap()
            .cached
            .written(StoredVersion { version: 10, is_over_edit: false });
        let log = CapturedLog::default();
        tracing::subscriber::with_default(log.clone(), || state.put_pipeline(stored(9, 2, true)));
        let suspended = "the pipeline was suspended: nothing is promoted until it is resumed";
        assert_eq!(log.take(), [format!("INFO message={suspended} pipeline={key} ")]);
        let entry = &state.pipelines[&key];
        assert!(entry.model.suspended, "the edit is lost");
        assert_eq!(entry.cached.status_at(), 10, "the status is still the one of version 10");
        // An older event, delivered late by a second watch, does not bring the old spec back.
        state.put_pipeline(stored(4, 1, false));
        assert!(state.pipelines[&key].model.suspended);
        tracing::subscriber::with_default(log.clone(), || state.put_pipeline(stored(11, 3, false)));
        assert_eq!(log.take(), [format!("INFO message=the pipeline was resumed pipeline={key} ")]);
    }

    /// A manual Pipeline whose status has one condition with this message.
    fn with_condition(name: &str, version: u64, message: &str) -> sluice_api::Pipeline {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": name, "namespace": "apps", "uid": name, "generation": 1,
                "resourceVersion": version.to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}],
                "promotion": {"manual": true,
                    "strategy": {"notification": {}, "secretRef": {"name": "keys"}}}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
                "message": message, "lastTransitionTime": "2023-11-20T10:00:00Z"}]}});
        serde_json::from_value(object).unwrap()
    }

    /// A replica that has listed all objects, and which shards it has.
    fn replica(shards: Shards, pipelines: Vec<sluice_api::Pipeline>) -> State {
        let mut state = State::new(settings(), shards, at(Instant::now(), 0));
        state.pipeline_event(ObjectEvent::Listed(pipelines, 5));
        state.promotion_event(ObjectEvent::Listed(Vec::new(), 5));
        state
    }

    /// Reconciles all pipelines that wait and that the replica acts for.
    fn reconcile_all(state: &mut State) {
        for _ in 0..10 {
            state.step(Input::Reconcile, state.now);
        }
    }

    /// The replica gains the only shard, and reads nothing new.
    fn gain(state: &mut State) {
        let term = LeaseTerm::unlimited();
        for input in [
            Input::Shard(ShardChange::Gained(0, term.clone())),
            Input::Tick,
            Input::Resynced(Box::new(StoredState { shards: vec![(0, term)], ..StoredState::default() })),
        ] {
            state.step(input, state.now);
        }
    }

    /// The log of a state while something happens to it.
    fn logged(state: &mut State, happens: impl FnOnce(&mut State)) -> Vec<String> {
        let log = CapturedLog::default();
        tracing::subscriber::with_default(log.clone(), || happens(state));
        log.take().into_iter().filter(|line| line.contains("taken over")).collect()
    }

    #[test]
    fn a_pipeline_of_the_predecessor_is_one_log_line_that_names_what_is_different() {
        let (of_predecessor, own) = ("All clusters checked", "all targets were read");
        let first = || vec![with_condition("old", 4, of_predecessor), with_condition("new", 5, own)];
        // A replica that does not act has read the same Pipelines.
        let mut standby = replica(Shards::none_of(1), first());
        assert_eq!(logged(&mut standby, reconcile_all), Vec::<String>::new());
        let mut acting = replica(Shards::none_of(1), first());
        let lines = logged(&mut acting, |state| {
            gain(state);
            reconcile_all(state);
            // The watch reports the Pipeline again before Sluice has written its own status.
            state.pipeline_event(ObjectEvent::Applied(with_condition("old", 6, of_predecessor)));
            reconcile_all(state);
            state.pipeline_event(ObjectEvent::Listed(vec![with_condition("old", 6, of_predecessor)], 7));
            reconcile_all(state);
            // pipeline-controller still runs, and its status replaces that of Sluice.
            let old = PipelineKey { namespace: "apps".into(), name: "old".into() };
            let stored = StoredObject::Pipeline(with_condition("old", 8, of_predecessor));
            let owner = StatusOwner::Pipeline(old);
            state.statuses.forget(&owner);
            state.status_conflict(&owner, stored);
            state.now.instant += Duration::from_secs(60);
            state.step(Input::Tick, state.now);
            reconcile_all(state);
        });
        let [line] = &lines[..] else { panic!("not one line: {lines:?}") };
        for part in ["INFO", "taken over from pipeline-controller", "pipeline=apps/old ", "approval-key"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        // The other replica takes over after the first one has written the status.
        standby.pipeline_event(ObjectEvent::Applied(with_condition("old", 10, own)));
        let taken_over = logged(&mut standby, |state| {
            gain(state);
            reconcile_all(state);
        });
        assert_eq!(taken_over, Vec::<String>::new());
        // After a restart its status is Sluice's own.
        let mut restarted = replica(Shards::all(), vec![with_condition("old", 8, own)]);
        assert_eq!(logged(&mut restarted, reconcile_all), Vec::<String>::new());
    }

    /// A change of a stored Pipeline: someone edits it, a hook call writes its fields, or this replica writes its
    /// status.
    #[derive(Clone, Copy, Debug)]
    enum StoredChange {
        Edit,
        Call,
        Status,
    }

    fn change() -> impl Strategy<Value = StoredChange> {
        prop_oneof![Just(StoredChange::Edit), Just(StoredChange::Call), Just(StoredChange::Status)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Acknowledgements overtake watch events, events come late, and objects are read in between. Once all
        /// events were delivered in order, every part of the object in memory equals the stored one.
        #[test]
        fn no_part_of_a_pipeline_is_lost_in_any_order_of_events_and_answers(
            changes in proptest::collection::vec((change(), 0usize..12), 1..20),
            stale in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _guard = runtime.enter();
            let mut state = state();
            // Every version of the object; and for each status write, after how many events its answer arrives,
            // its version and its number.
            let mut versions = vec![stored(1, 1, false)];
            let mut answers: Vec<(usize, usize, i64)> = Vec::new();
            let mut written = 0;
            for (n, (change, after)) in changes.iter().enumerate() {
                let mut next = versions[n].clone();
                next.metadata.resource_version = Some((n + 2).to_string());
                match change {
                    StoredChange::Edit => {
                        next.spec.suspend = !next.spec.suspend;
                        next.metadata.generation = next.metadata.generation.map(|g| g + 1);
                    }
                    StoredChange::Call => {
                        let call = Timestamp::from_second(n as i64).unwrap();
                        next.status.get_or_insert_default().forge_called = Some(Time::exact(call));
                    }
                    StoredChange::Status => {
                        written += 1;
                        next.status.get_or_insert_default().observed_generation = written;
                        // Answers come in the order of the writes, and may be ahead of every event.
                        let before = answers.last().map_or(0, |(at, ..)| *at);
                        answers.push(((n + 1).saturating_sub(*after).max(before), n + 2, written));
                    }
                }
                versions.push(next);
            }
            let last = versions.last().unwrap().clone();
            for (n, object) in versions.iter().enumerate() {
                state.put_pipeline(object.clone());
                for (_, version, written) in answers.iter().filter(|(at, ..)| *at == n) {
                    let entry = state.pipelines.values_mut().next().unwrap();
                    let status = sluice_api::PipelineStatus { observed_generation: *written, ..Default::default() };
                    entry.cached.parts.status = serialize_status(&status).ok();
                    let stored = StoredVersion { version: *version as u64, is_over_edit: false };
                    entry.cached.written(stored);
                }
            }
            // Reads that lag behind.
            stale.iter().for_each(|index| state.put_pipeline(index.get(&versions).clone()));
            let entry = state.pipelines.values().next().unwrap();
            prop_assert_eq!(entry.model.suspended, last.spec.suspend);
            prop_assert_eq!(entry.object().metadata.generation, last.metadata.generation);
            let status = last.status.unwrap_or_default();
            prop_assert_eq!(&entry.cached.hook_fields.forge_called, &status.forge_called);
            prop_assert_eq!(entry.cached.parts.status().observed_generation, status.observed_generation);
        }
    }
}
