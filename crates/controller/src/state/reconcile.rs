//! One reconciliation of one pipeline, in five steps: load, observe, decide, act, record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_api::pipeline::{Observe, Target};
use sluice_core::decide::{Action, Decision, Facts, Note, decide};
use sluice_core::observed::{ObservedTarget, ObservedTargets};
use sluice_core::promotion::Promotion;

use super::State;
use super::effect::MetricUpdate;
use super::entries::may_retry_early;
use super::stored_time::TimeField;
use crate::act::backoff::max_pause;
use crate::hook::approval_rules;
use crate::observe::reported;
use crate::observe::target::{self, NoAnswerYet, ObservedMembers, TargetQuery};
use crate::pipeline_key::PipelineKey;
use crate::record::promotion::RecordChange;
use crate::record::tampered;
use crate::translate;
use sluice_core::fleet::ClusterKey;

/// How long a cluster that a pipeline refers to for the first time may take to answer before its targets count as
/// Unknown. Until then the status shows them as before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a pipeline waits for a cluster that is new to this process if its other clusters have answered.
const NEW_CLUSTER_WAIT: Duration = Duration::from_secs(2);

/// The most bytes of the states of all targets of a pipeline. Targets of one place share theirs, but the status is made of
/// copies, and its owner chooses the number of targets and of objects in each.
const MAX_OBSERVED_BYTES: usize = 48 << 20;

/// The facts that were loaded and observed before the decision.
pub(super) struct LoadedFacts {
    pub(super) observed: ObservedTargets,
    /// Targets, by environment, whose clusters have not answered since the start.
    pub(super) unanswered: BTreeSet<(String, String)>,
    pub(super) promotions: Vec<Promotion>,
    /// Records that differ from what Sluice wrote, by name, each with the reason. These promotions are ignored.
    pub(super) tampered: BTreeMap<String, String>,
}

/// Why a target is not observed.
const TOO_MUCH: &str = "the targets before it in this pipeline have more objects than Sluice reads for one pipeline: split the \
                        pipeline, or name fewer workloads";

/// The states of a pipeline's targets that were observed so far, one after the other.
#[derive(Default)]
struct ObservationProgress {
    observed: ObservedTargets,
    members: BTreeMap<ClusterKey, ObservedMembers>,
    /// Targets, by environment, whose clusters have not answered since the start.
    unanswered: BTreeSet<(String, String)>,
    /// Whether a target was read, or its cluster has had time to answer.
    any_answered: bool,
    /// Whether a cluster is so new that the decision waits for its answer.
    any_new: bool,
    /// When to observe the targets again.
    again_in: Option<Duration>,
    /// About how many bytes the states take.
    bytes: usize,
}

impl State {
    /// Loads, observes, decides, acts and records for one pipeline.
    pub(super) fn reconcile(&mut self, key: &PipelineKey) {
        let Some((promotions, tampered)) = self.load(key) else { return };
        let Some((observed, unanswered)) = self.observe(key) else { return };
        let facts = LoadedFacts { observed, unanswered, promotions, tampered };
        let Some(decision) = self.decide(key, &facts) else { return };
        self.act(key, &decision);
        self.record_outcome(key, &facts, &decision);
    }

    /// INTAKE: returns the promotions of the pipeline, and the records that differ from what Sluice wrote, by name.
    /// Returns `None` if the pipeline is gone.
    pub(super) fn load(&mut self, key: &PipelineKey) -> Option<(Vec<Promotion>, BTreeMap<String, String>)> {
        self.hand_over(key);
        self.log_differences(key);
        let entry = self.pipelines.get_mut(key)?;
        let waited = entry.enqueued.take();
        let is_edited = std::mem::take(&mut entry.edited);
        if let Some(since) = waited {
            self.count(MetricUpdate::Waited(self.now.instant.saturating_duration_since(since)));
        }
        if is_edited {
            self.retry_failed_now(key);
        }
        let (mut promotions, mut tampered) = (Vec::new(), BTreeMap::new());
        let entry = self.pipelines.get(key)?;
        for (name, record) in self.promotions.get(key).into_iter().flatten() {
            if !record.belongs_to(entry.object()) {
                continue;
            }
            match tampered::tampered(&entry.model, record.object()) {
                Some(why) => drop(tampered.insert(name.clone(), why)),
                None => promotions.extend(translate::promotion(entry.object(), record.object())),
            }
        }
        promotions.iter_mut().for_each(|promotion| self.complete(key, promotion));
        for (name, why) in &tampered {
            self.change(key, name, &RecordChange::Tampered(why.clone()));
        }
        Some((promotions, tampered))
    }

    /// Retries the failed deliveries of a pipeline now, since its owner has edited it.
    fn retry_failed_now(&mut self, key: &PipelineKey) {
        let Some(entry) = self.pipelines.get(key) else { return };
        for (name, record) in self.promotions.get(key).into_iter().flatten() {
            if record.belongs_to(entry.object()) && may_retry_early(record.object()) {
                self.schedule.retry_now(&key.promotion(name), self.now.instant);
            }
        }
    }

    /// Adds facts to a promotion that its object does not have: times within their limits, and what the hook server
    /// wrote.
    fn complete(&mut self, key: &PipelineKey, promotion: &mut Promotion) {
        let Some(record) = self.promotions.get(key).and_then(|r| r.get(&promotion.name)) else { return };
        let (object, hook_fields) = (record.object(), &record.cached.hook_fields);
        let reason = object.status.as_ref().map_or("", |status| &status.reason);
        let (own, clocks) = (&key.promotion(&promotion.name), (self.now.wall, self.now.instant));
        let times = &mut self.stored_times;
        let next = promotion
            .next_attempt
            .map(|at| times.read(own, TimeField::NextAttempt, at, max_pause(reason), clocks))
            .map(|at| self.schedule.next_retry(own, at, clocks));
        let delivered =
            promotion.delivered.map(|at| times.read(own, TimeField::Delivered, at, Duration::ZERO, clocks));
        let pipeline = self.pipelines.get(key).map(|entry| entry.object());
        let report = hook_fields.report.as_ref().zip(pipeline);
        let report =
            report.and_then(|(report, pipeline)| translate::receiver_report(report, pipeline, object));
        promotion.next_attempt = next;
        (promotion.delivered, promotion.report) = (delivered, report);
        promotion.is_checked = self.schedule.is_last_check_over(own, self.now.instant);
        promotion.approved |= approval_rules::counts(object, hook_fields.key_approval.as_deref());
    }

    /// OBSERVE: returns what the targets show, and which of them have not answered yet. Returns `None` while it is too
    /// early to decide anything.
    fn observe(&mut self, key: &PipelineKey) -> Option<(ObservedTargets, BTreeSet<(String, String)>)> {
        let mut targets = ObservationProgress::default();
        let entry = self.pipelines.get(key)?;
        for (environment, model) in entry.object().spec.environments.iter().zip(&entry.model.environments) {
            for (spec, name) in environment.targets.iter().zip(&model.targets) {
                self.add_target(key, (&environment.name, name), spec, &mut targets);
            }
        }
        let ObservationProgress { observed, unanswered, any_answered, any_new, again_in, .. } = targets;
        if let Some(pause) = again_in {
            self.requeue_at(key, self.now.instant + pause.max(Duration::from_millis(100)));
        }
        (again_in.is_none() || (any_answered && !any_new)).then_some((observed, unanswered))
    }

    /// Adds what one target shows.
    fn add_target(
        &self,
        key: &PipelineKey,
        (environment, name): (&String, &String),
        spec: &Target,
        targets: &mut ObservationProgress,
    ) {
        let cluster = spec.cluster_key(&key.namespace);
        let result = match targets.bytes < MAX_OBSERVED_BYTES {
            true => {
                let known = targets.members.entry(cluster.clone()).or_default();
                self.observe_target(key, (environment, name), spec, (&cluster, known))
            }
            false => Ok(ObservedTarget::unreadable(TOO_MUCH)),
        };
        let age = self.used_for(&cluster);
        targets.any_answered |= result.is_ok() || age >= ANSWER_TIMEOUT;
        if result.is_err() && age < ANSWER_TIMEOUT {
            targets.unanswered.insert((environment.clone(), name.clone()));
            let pause = if age < NEW_CLUSTER_WAIT { NEW_CLUSTER_WAIT } else { ANSWER_TIMEOUT } - age;
            targets.again_in = Some(targets.again_in.map_or(pause, |soonest| soonest.min(pause)));
            targets.any_new |= age < NEW_CLUSTER_WAIT;
        }
        let shown = result.unwrap_or_else(|NoAnswerYet| {
            ObservedTarget::unreadable(format!("{cluster} has not answered yet"))
        });
        let tracks = self.pipelines.get(key).map_or(&[][..], |entry| &entry.model.tracks);
        let shown = shown.with_limited_revision(tracks);
        targets.bytes += shown.bytes();
        targets.observed.insert(environment, name, shown);
    }

    /// Returns what one target shows. `known` holds what other targets of the pipeline on its cluster have shown.
    fn observe_target(
        &self,
        key: &PipelineKey,
        (environment, name): (&String, &String),
        spec: &Target,
        (cluster, known): (&ClusterKey, &mut ObservedMembers),
    ) -> Result<ObservedTarget, NoAnswerYet> {
        if let Some(refused) = self.target_refusal(key, cluster, spec)? {
            return Ok(ObservedTarget::unreadable(refused));
        }
        let Some(entry) = self.pipelines.get(key) else { return Err(NoAnswerYet) };
        if spec.observe == Observe::Push {
            let reports = &entry.cached.hook_fields.reports;
            return Ok(reported::observe(entry.object(), environment, spec, name, reports));
        }
        let question = TargetQuery {
            pipeline: &key.name,
            app: entry.object().spec.app_ref.as_ref(),
            target: spec,
            cluster,
            tracks: &entry.model.tracks,
        };
        match (self.index.cluster(cluster), self.access(cluster)) {
            (None, Some(Err(why))) => Ok(ObservedTarget::unreadable(why)),
            (observed, _) => target::observe(&question, observed.as_deref(), known),
        }
    }

    /// DECIDE: returns the decision that follows from the loaded and observed facts.
    fn decide(&mut self, key: &PipelineKey, facts: &LoadedFacts) -> Option<Decision> {
        self.retry_early(key, &facts.observed, &facts.promotions);
        let now = self.now.wall;
        let entry = self.pipelines.get_mut(key)?;
        entry.evidence = entry.evidence.updated(&entry.model, &facts.observed, &facts.promotions, now);
        let mut decision = decide(Facts {
            pipeline: &entry.model,
            observed: &facts.observed,
            evidence: &entry.evidence,
            promotions: &facts.promotions,
            unguarded: self.approvals_unguarded.as_deref(),
            now,
        });
        keep_names_taken(&mut decision, &facts.tampered);
        self.note_unrecorded(key, &mut decision);
        Some(decision)
    }

    /// Adds a note to a decision for each promotion that it wants and that could not be recorded.
    fn note_unrecorded(&mut self, key: &PipelineKey, decision: &mut Decision) {
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let starts = decision.actions.iter().filter_map(|action| match action {
            Action::Start(intent) => Some((&intent.name, &intent.environment)),
            _ => None,
        });
        let records = self.promotions.get(key).into_iter().flatten().filter(|(_, record)| !record.is_stored);
        let being_created = records.map(|(name, record)| (name, &record.object().spec.environment));
        // The promotions that this pipeline still wants and whose record is not stored yet.
        let wanted: BTreeMap<&String, &String> = starts.chain(being_created).collect();
        entry.unrecorded.retain(|name, _| wanted.contains_key(name));
        let notes = entry.unrecorded.iter().filter_map(|(name, unrecorded)| {
            let note = Note { reason: "RecordFailed", message: unrecorded.why.clone() };
            Some(((*wanted.get(name)?).clone(), note))
        });
        let notes: Vec<(String, Note)> = notes.collect();
        decision.notes.extend(notes);
    }
}

/// Drops the start of a promotion if a tampered record already has its name. The API server would reject the new
/// record. Sluice keeps the tampered record, so that people can examine it.
fn keep_names_taken(decision: &mut Decision, tampered: &BTreeMap<String, String>) {
    let Decision { actions, notes, .. } = decision;
    actions.retain(|action| {
        let Action::Start(intent) = action else { return true };
        let Some(why) = tampered.get(&intent.name) else { return true };
        let message = format!("{} waits: {}: {why}", intent.revision, intent.name);
        notes.insert(intent.environment.clone(), Note { reason: tampered::TAMPERED, message });
        false
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use jiff::Timestamp;
    use kube::ResourceExt;
    use serde_json::json;
    use sluice_api::promotion::Phase;
    use sluice_core::fleet::{ClusterEvent, Fact, Kind, ObjectKey};
    use sluice_core::observed::{Health, Member};
    use sluice_core::revision::Facet;
    use sluice_core::tracks::DefaultFacet;

    use super::super::effect::Effect;
    use super::super::entries::{Record, Unrecorded};
    use super::super::fixtures::{at, key, pipeline, state, state_at};
    use super::super::simulation::{RunningVersion, helm_release};
    use super::super::{Input, fixtures};
    use super::*;
    use crate::watch::stream::ObjectEvent;

    pub(crate) fn runs(version: &str) -> ObservedTarget {
        let member = Member {
            kind: "HelmRelease".into(),
            name: "podinfo".into(),
            health: Health::Ready,
            message: String::new(),
            not_applied: None,
            since: None,
            version: version.into(),
            gave_up: BTreeMap::new(),
            facets: BTreeMap::from([(Facet::Chart, version.into())]),
            default_facet: DefaultFacet::Chart,
            source: None,
            workloads: Vec::new(),
        };
        ObservedTarget::of(vec![member.into()])
    }

    /// Facts in which dev runs 1.1.0, and prod runs the version `prod`.
    fn facts(prod: &str, (promotions, tampered): (Vec<Promotion>, BTreeMap<String, String>)) -> LoadedFacts {
        let mut observed = ObservedTargets::default();
        observed.insert("dev", "d", runs("1.1.0"));
        observed.insert("prod", "p", runs(prod));
        LoadedFacts { observed, unanswered: BTreeSet::new(), promotions, tampered }
    }

    type Tampering = fn(&mut serde_json::Value);

    /// Tampered records: their spec or owner does not match their name any more.
    const TAMPERED: [(&str, Tampering); 5] = [
        ("run", |object| {
            (object["spec"]["run"], object["status"]["phase"]) = (7.into(), "Cancelled".into());
        }),
        ("facets", |object| object["spec"]["facets"] = json!({"HelmRelease/podinfo:chart": "6.6.6"})),
        ("target", |object| object["spec"]["target"] = "p".into()),
        ("pipeline", |object| object["spec"]["pipeline"] = "other".into()),
        ("owner", |object| object["metadata"]["ownerReferences"][0]["uid"] = "other".into()),
    ];

    /// Answers each creation with `AlreadyExists`, and each read with the record as `tamper` has changed it.
    /// Returns how many creations there were.
    fn answer_tampered(state: &mut State, tamper: Tampering) -> usize {
        let (mut creations, mut pending) = (0, std::mem::take(&mut state.effects));
        let mut stored = json!(null);
        while let Some(effect) = pending.pop() {
            let (key, name, answer) = match effect {
                Effect::CreatePromotion(key, object, _) => {
                    creations += 1;
                    stored = serde_json::to_value(&*object).unwrap();
                    stored["metadata"]["resourceVersion"] = "9".into();
                    tamper(&mut stored);
                    (key, object.name_any(), None)
                }
                Effect::ReadPromotion(key, name) => {
                    (key, name, Some(serde_json::from_value(stored.clone()).unwrap()))
                }
                _ => continue,
            };
            let now = state.now;
            pending.extend(state.step(Input::PromotionCreated(key, name, Ok(answer)), now));
        }
        creations
    }

    #[test]
    fn a_tampered_record_is_not_created_again() {
        for (field, tamper) in TAMPERED {
            let mut state = state();
            state.put_pipeline(pipeline());
            let (mut noted, mut creations) = (None, 0);
            for _ in 0..50 {
                let loaded = state.load(&key()).unwrap();
                let decision = state.decide(&key(), &facts("1.0.0", loaded)).unwrap();
                noted = decision.notes.get("prod").map(|note| (note.reason, note.message.clone()));
                state.act(&key(), &decision);
                creations += answer_tampered(&mut state, tamper);
            }
            assert_eq!(creations, 1, "{field}");
            let (reason, message) = noted.unwrap_or_default();
            // A record that no longer belongs to the pipeline is not loaded. Its name is taken, so the new record is
            // not created.
            let is_taken = message.contains("exists, and was changed after Sluice created it");
            let deletes = format!("kubectl delete promotion -n {} ", key().namespace);
            assert!(message.contains(&deletes), "{field}: {message}");
            assert!(
                reason == "Tampered" || (reason == "RecordFailed" && is_taken),
                "{field}: {reason} {message}"
            );
        }
    }

    /// Returns the name of a record that the state has created, as somebody has changed it since, and the state.
    fn with_changed_record(tamper: Tampering) -> (State, String) {
        let mut state = state();
        state.put_pipeline(pipeline());
        let mut other = pipeline();
        (other.metadata.name, other.metadata.uid) = (Some("other".into()), Some("other".into()));
        state.put_pipeline(other);
        let loaded = state.load(&key()).unwrap();
        let decision = state.decide(&key(), &facts("1.0.0", loaded)).unwrap();
        state.act(&key(), &decision);
        let created = state.effects.iter().find_map(|effect| match effect {
            Effect::CreatePromotion(_, object, _) => Some(serde_json::to_value(object).unwrap()),
            _ => None,
        });
        let mut object = created.unwrap();
        object["metadata"]["resourceVersion"] = "9".into();
        let name = object["metadata"]["name"].as_str().unwrap().to_string();
        let stored: sluice_api::Promotion = serde_json::from_value(object.clone()).unwrap();
        state.created(&key(), &name, Ok(Some(Box::new(stored))));
        tamper(&mut object);
        object["metadata"]["resourceVersion"] = "10".into();
        state.promotion_event(ObjectEvent::Applied(serde_json::from_value(object).unwrap()));
        (state, name)
    }

    /// The cluster has neither the rules of the CRDs nor the policy. If no object is the owner, Kubernetes deletes the record.
    #[test]
    fn a_record_that_was_moved_to_another_pipeline_ends_as_tampered() {
        let other = PipelineKey { name: "other".into(), ..key() };
        let cases: [(&str, PipelineKey, Tampering); 3] = [
            ("spec", key(), |object| object["spec"]["pipeline"] = "other".into()),
            ("owner", other.clone(), |object| {
                let owner = &mut object["metadata"]["ownerReferences"][0];
                (owner["name"], owner["uid"]) = ("other".into(), "other".into());
            }),
            ("no owner", other, |object| {
                object["spec"]["pipeline"] = "other".into();
                object["metadata"]["ownerReferences"] = json!([]);
            }),
        ];
        for (field, belongs_to, tamper) in cases {
            let (mut state, name) = with_changed_record(tamper);
            [key(), belongs_to.clone()].iter().for_each(|key| drop(state.load(key)));
            let status = state.record(&belongs_to, &name).map(Record::status).unwrap_or_default();
            assert_eq!((status.phase, &*status.reason), (Phase::Failed, "Tampered"), "{field}");
        }
    }

    #[test]
    fn times_from_a_clock_that_is_a_day_ahead_are_limited_by_the_policy() {
        let mut state = state();
        state.put_pipeline(pipeline());
        let ahead = "2026-11-23T10:00:00Z";
        let facets = [("HelmRelease/podinfo:chart".to_string(), "1.1.0".to_string())].into();
        let revision = sluice_core::Revision::from_strings(&facets).unwrap();
        let model = translate::pipeline(&pipeline());
        let name = sluice_core::promotion_name::promotion_name(&model, &model.environments[1], &revision, 0);
        let stored = |reason: &str| -> sluice_api::Promotion {
            let status = json!({"phase": "Promoting", "reason": reason, "nextAttempt": ahead,
                "times": {"Delivered": ahead}});
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "apps", "resourceVersion": "5"},
                "status": status, "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1.1.0",
                "facets": {"HelmRelease/podinfo:chart": "1.1.0"}}}),
            )
            .unwrap()
        };
        let now: Timestamp = fixtures::WALL.parse().unwrap();
        for (reason, longest) in [("Unreachable", 600), ("RateLimited", 3600)] {
            state.promotions.clear();
            state.stored_times.forget(&key().promotion(&name));
            state.put_promotion(stored(reason));
            let read = state.load(&key()).unwrap().0.remove(0);
            let seconds = |at: Option<Timestamp>| at.unwrap().duration_since(now).as_secs();
            assert_eq!((seconds(read.next_attempt), seconds(read.delivered)), (longest, 0), "{reason}");
        }
    }

    #[test]
    fn the_grace_period_of_a_cluster_begins_when_it_is_first_used() {
        let start = Instant::now();
        let mut state = state_at(at(start, 0));
        let second = |seconds| at(start, seconds);
        // The hub is used from the start. An edit of the pipeline adds the other cluster later.
        state.step(Input::Pipelines(ObjectEvent::Listed(vec![pipeline()], 4)), second(0));
        let mut edited = pipeline();
        let cluster = serde_json::from_value(json!({"kind": "GitopsCluster", "name": "eu"})).unwrap();
        edited.spec.environments[1].targets[0].cluster_ref = Some(cluster);
        (edited.metadata.generation, edited.metadata.resource_version) = (Some(2), Some("5".into()));
        state.step(Input::Pipelines(ObjectEvent::Applied(edited)), second(100));
        let mut unanswered_at = |seconds| {
            state.now = second(seconds);
            state.observe(&key()).map(|(_, unanswered)| unanswered.len())
        };
        assert_eq!(unanswered_at(100), None, "the pipeline waits for the new cluster");
        assert_eq!(
            unanswered_at(100 + NEW_CLUSTER_WAIT.as_secs()),
            Some(1),
            "the new cluster may still answer"
        );
        assert_eq!(unanswered_at(100 + ANSWER_TIMEOUT.as_secs()), Some(0), "both count as unreadable");
    }

    /// Returns the states of 2048 targets that all have the 256 HelmReleases of one namespace, with this message.
    fn observe_many_targets(message: &str) -> Vec<ObservedTarget> {
        let mut state = state();
        let targets: Vec<_> =
            (0..128).map(|n| json!({"namespace": "podinfo", "name": format!("t{n}")})).collect();
        let environments: Vec<_> =
            (0..16).map(|n| json!({"name": format!("e{n}"), "targets": targets})).collect();
        let mut large = pipeline();
        large.spec.app_ref = None;
        large.spec.environments = serde_json::from_value(json!(environments)).unwrap();
        state.put_pipeline(large);
        state.cluster_event(&ClusterKey::Local, ClusterEvent::Connected);
        let release = |n: usize| {
            let (key, fact) = helm_release("podinfo", RunningVersion { version: 1, is_healthy: false });
            let Fact::Flux(mut flux) = fact else { panic!() };
            (flux.pipelines, flux.status.message) = (vec!["podinfo".into()], message.into());
            (ObjectKey { name: format!("r{n}"), ..key }, Fact::Flux(flux))
        };
        for kind in Kind::DECIDING {
            let event = match kind {
                Kind::HelmRelease => ClusterEvent::Listed(kind, None, (0..256).map(release).collect()),
                _ => ClusterEvent::Absent(kind),
            };
            state.cluster_event(&ClusterKey::Local, event);
        }
        let (observed, _) = state.observe(&key()).unwrap();
        (0..16)
            .flat_map(|e| (0..128).map(move |t| (format!("e{e}"), format!("t{t}"))))
            .map(|(environment, target)| observed.target(&environment, &target).unwrap().clone())
            .collect()
    }

    #[test]
    fn targets_of_one_place_are_observed_once() {
        let states = observe_many_targets("");
        let members: BTreeSet<_> = states.iter().flat_map(|state| &state.members).map(Arc::as_ptr).collect();
        assert_eq!(members.len(), 256);
    }

    #[test]
    fn the_states_of_all_targets_take_a_limited_part_of_the_memory() {
        let states = observe_many_targets(&"x".repeat(1_000));
        let read = states.iter().filter(|state| state.error.is_none()).count();
        assert!(read > 50 && states[..read].iter().all(|state| state.members.len() == 256), "{read}");
        assert!(states[read..].iter().all(|state| state.error.as_deref() == Some(TOO_MUCH)));
        let bytes: usize = states.iter().map(|state| state.bytes()).sum();
        assert!(bytes < MAX_OBSERVED_BYTES + (2 << 20), "{bytes}");
    }

    #[test]
    fn the_status_says_what_could_not_be_recorded_as_long_as_it_is_wanted() {
        let mut state = state();
        let key = key();
        state.put_pipeline(pipeline());
        let mut decide = |prod: &str, unrecorded: Option<&str>| {
            let entry = state.pipelines.get_mut(&key).unwrap();
            if let Some(name) = unrecorded {
                let refused = Unrecorded { why: "no room".into(), ..Unrecorded::new(state.now.instant) };
                entry.unrecorded.insert(name.into(), refused);
            }
            let decision = state.decide(&key, &facts(prod, Default::default())).unwrap();
            let started = decision.actions.iter().find_map(|action| match action {
                Action::Start(intent) => Some(intent.name.clone()),
                _ => None,
            });
            (started, decision.notes.get("prod").map(|note| (note.reason, note.message.clone())))
        };
        let (started, note) = decide("1.0.0", None);
        assert_eq!(note, None);
        let wanted = started.unwrap();
        for _ in 0..2 {
            let (_, note) = decide("1.0.0", Some(&wanted));
            assert_eq!(note, Some(("RecordFailed", "no room".into())));
        }
        // Someone has promoted the revision by hand. If the promotion is wanted again later, the earlier failure does
        // not count.
        assert_eq!(decide("1.1.0", None), (None, None));
        assert_eq!(decide("1.0.0", None), (Some(wanted), None));
    }
}
