//! One turn of one pipeline: the five verbs, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::pipeline::{Observe, PipelineStatus};
use sluice_core::decide::{Action, Decision, Facts, Note, decide};
use sluice_core::history;
use sluice_core::model::Promotion;
use sluice_core::world::{Target, World};
use sluice_delivery::Permit;

use crate::act::outcome::longest_pause;
use crate::act::retry;
use crate::engine::{Engine, Entry};
use crate::hook::approval;
use crate::hook::condition::{self, Problem};
use crate::intake::PipelineKey;
use crate::observe::reported;
use crate::observe::target::{self, NotYet, Question};
use crate::record::pace::{self, Pace};
use crate::record::promotion::Change;
use crate::record::stored_time::Field;
use crate::record::writer::{Basis, StatusOf, spell};
use crate::record::{status, tampered};
use crate::translate;

/// How long a cluster that a pipeline refers to for the first time may take to answer before its targets
/// count as Unknown; until then they are shown as they were.
const GRACE: Duration = Duration::from_secs(20);
/// How long a pipeline waits for a cluster that is new to this process when others have answered.
const HOLD: Duration = Duration::from_secs(2);

/// What a turn learned before it decided.
pub(crate) struct Learned {
    world: World,
    /// Targets, by environment, whose clusters have not answered since the start.
    unheard: BTreeSet<(String, String)>,
    promotions: Vec<Promotion>,
    /// Records that are not as Sluice wrote them, by name, and why. They count for nothing.
    tampered: BTreeMap<String, String>,
}

impl Engine {
    /// Takes in, observes, decides, acts and records for one pipeline.
    pub(crate) fn turn(&mut self, key: &PipelineKey, now: Timestamp) {
        self.hand_over(key, now);
        let Some((promotions, tampered)) = self.take_up(key, now) else { return };
        for (name, why) in &tampered {
            self.change(key, name, &Change::Tampered(why.clone()), now);
        }
        let Some((world, unheard)) = self.observe(key) else { return };
        self.hurry(key, &world, &promotions);
        let learned = Learned { world, unheard, promotions, tampered };
        let Some(decision) = self.decide(key, &learned, now) else { return };
        self.act(key, &decision, now);
        self.report(key, &learned.tampered, now);
        self.prune(key, &history::surplus(&learned.promotions, self.options.history_limit));
        self.record(key, &learned, &decision, now);
    }

    /// INTAKE: what was started for the pipeline, and the records that are not as Sluice wrote them, by name.
    /// `None` when the pipeline is gone.
    pub(crate) fn take_up(
        &mut self,
        key: &PipelineKey,
        now: Timestamp,
    ) -> Option<(Vec<Promotion>, BTreeMap<String, String>)> {
        let entry = self.pipelines.get_mut(key)?;
        if let Some(since) = entry.touched.take() {
            self.metrics.waited(since.elapsed());
        }
        let records = self.promotions.get(key).into_iter().flatten().map(|(_, record)| record);
        let own: Vec<_> = records.filter(|r| r.belongs_to(&entry.object)).collect();
        if std::mem::take(&mut entry.edited) {
            let failed = own.iter().filter(|r| retry::may_hurry(&r.object));
            failed.for_each(|r| self.polling.tries_now(&r.object.name_any(), Instant::now()));
        }
        let mut tampered = BTreeMap::new();
        let clocks = (now, Instant::now());
        let own = own.into_iter().filter_map(|r| {
            if let Some(why) = tampered::tampered(&entry.model, &r.object) {
                tampered.insert(r.object.name_any(), why);
                return None;
            }
            let said = r.said.as_ref().and_then(|said| translate::said(said, &r.object));
            let mut known = translate::promotion(&entry.object, &r.object)?;
            let times = &mut self.stored_times;
            let reason = r.object.status.as_ref().map_or("", |status| &status.reason);
            let mut read = |field, stored, longest| times.read(&known.name, field, stored, longest, clocks);
            let next = known.next_attempt.map(|at| read(Field::NextAttempt, at, longest_pause(reason)));
            let next = next.map(|at| self.polling.next_try(&known.name, at, clocks));
            let delivered = known.delivered.map(|at| read(Field::Delivered, at, Duration::ZERO));
            (known.next_attempt, known.delivered, known.said) = (next, delivered, said);
            known.approved |= approval::counts(&r.object, r.key_approval.as_deref());
            Some(known)
        });
        let own = own.collect();
        Some((own, tampered))
    }

    /// OBSERVE: what the targets show, and which of them have not been heard of. `None` while it is
    /// too early to say anything.
    fn observe(&mut self, key: &PipelineKey) -> Option<(World, BTreeSet<(String, String)>)> {
        let entry = self.pipelines.get(key)?;
        let (mut world, mut unheard, mut heard) = (World::default(), BTreeSet::new(), false);
        let mut next: Option<(Duration, bool)> = None;
        for (environment, model) in entry.object.spec.environments.iter().zip(&entry.model.environments) {
            for (spec, name) in environment.targets.iter().zip(&model.targets) {
                let cluster = translate::cluster_of(spec, &key.namespace);
                let question = Question {
                    pipeline: &key.name,
                    app: entry.object.spec.app_ref.as_ref(),
                    target: spec,
                    cluster: &cluster,
                    tracks: &entry.model.tracks,
                };
                let shown = match self.refuses(key, &cluster, spec) {
                    Err(not_yet) => Err(not_yet),
                    Ok(Some(refused)) => Ok(Target::unreadable(refused)),
                    Ok(None) if spec.observe == Observe::Push => {
                        let reports = &entry.told.reports;
                        Ok(reported::observe(&entry.object, &environment.name, spec, name, reports))
                    }
                    Ok(None) => target::observe(&question, self.index.cluster(&cluster)),
                };
                let age = self.used_for(&cluster);
                heard |= shown.is_ok() || age >= GRACE;
                let shown = shown.unwrap_or_else(|NotYet| {
                    if age < GRACE {
                        unheard.insert((environment.name.clone(), name.clone()));
                        let wait = if age < HOLD { HOLD } else { GRACE } - age;
                        let (soonest, held) = next.unwrap_or((wait, false));
                        next = Some((soonest.min(wait), held || age < HOLD));
                    }
                    Target::unreadable(format!("{cluster} has not answered yet"))
                });
                world.insert(&environment.name, name, shown);
            }
        }
        let Some((wait, held)) = next else { return Some((world, unheard)) };
        self.wake_at(key, Instant::now() + wait.max(Duration::from_millis(100)));
        (heard && !held).then_some((world, unheard))
    }

    /// DECIDE: what follows from all that is known.
    fn decide(&mut self, key: &PipelineKey, learned: &Learned, now: Timestamp) -> Option<Decision> {
        let entry = self.pipelines.get_mut(key)?;
        let counted = learned.promotions.iter().map(|p| p.arrival).max().unwrap_or(0);
        entry.evidence = entry.evidence.after(&entry.model, &learned.world, counted, now);
        let mut decision = decide(Facts {
            pipeline: &entry.model,
            world: &learned.world,
            evidence: &entry.evidence,
            promotions: &learned.promotions,
            unguarded: self.approvals_unguarded.as_deref(),
            now,
        });
        keep_names_taken(&mut decision, &learned.tampered);
        // Of those that are still wanted and do not stand by now, whoever has made them.
        let starts = decision.actions.iter().filter_map(|action| match action {
            Action::Start(intent) => Some((&intent.name, &intent.environment)),
            _ => None,
        });
        let records = self.promotions.get(key).into_iter().flatten().filter(|(_, record)| !record.stored);
        let made = records.map(|(name, record)| (name, &record.object.spec.environment));
        let wanted: BTreeMap<&String, &String> = starts.chain(made).collect();
        entry.unrecorded.retain(|name, _| wanted.contains_key(name));
        for (environment, message) in
            entry.unrecorded.iter().filter_map(|(n, why)| Some((wanted.get(n)?, &why.why)))
        {
            let note = Note { reason: "RecordFailed", message: message.clone() };
            decision.notes.insert((*environment).clone(), note);
        }
        Some(decision)
    }

    /// RECORD: the status, if it is another than before.
    fn record(&mut self, key: &PipelineKey, learned: &Learned, decision: &Decision, now: Timestamp) {
        if let Some(wake) = decision.wake {
            let pause = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            self.wake_at(key, Instant::now() + pause);
        }
        let being_recorded = self.promotions.get(key).into_iter().flatten().any(|(_, r)| !r.stored);
        let busy = being_recorded || self.under_way.keys().any(|(pipeline, _)| pipeline == key);
        let Some(permit) = self.shards.permit(key) else { return };
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let records = self.promotions.get(key).into_iter().flatten().map(|(_, record)| record);
        let own = records.filter(|r| r.belongs_to(&entry.object)).map(|r| r.object.as_ref());
        let records: Vec<_> = own.filter(|p| !learned.tampered.contains_key(&p.name_any())).collect();
        let (before, clock) = (entry.stands(), Instant::now());
        let lost = entry.lost_clusters(&self.index, &before.lost_clusters, clock);
        let status = status::compose(&status::Facts {
            object: &entry.object,
            before: &before,
            pipeline: &entry.model,
            world: &learned.world,
            unheard: &learned.unheard,
            reports: &entry.told.reports,
            hook_secret: hook_secret(entry, self.options.hook.is_some()),
            evidence: &entry.evidence,
            decision,
            promotions: &records,
            lost_clusters: lost.names,
            now,
        });
        if let Some(at) = lost.held_until {
            self.wake_at(key, at);
        }
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        if status == before {
            entry.differs = None;
            return;
        }
        let failed = pace::of_health_alone(&before, &status);
        let pace = Pace {
            differs: *entry.differs.get_or_insert(clock),
            sent: entry.sent,
            damped: failed.as_ref().and_then(|failed| entry.damping.until(failed, clock)),
            busy,
            health: pace::tells_of_health(&before, &status),
            delivered: pace::tells_of_delivery(&before, &status),
        };
        let due = pace.due();
        if due > clock {
            return self.wake_at(key, due);
        }
        failed.into_iter().for_each(|failed| entry.damping.sent(failed, clock));
        self.write(key, (&before, &status), clock, permit);
    }

    /// Writes a status, and sends the events that follow from the clusters it names.
    fn write(
        &mut self,
        key: &PipelineKey,
        (before, status): (&PipelineStatus, &PipelineStatus),
        clock: Instant,
        permit: Permit,
    ) {
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let spelled = match spell(status) {
            Ok(spelled) => spelled,
            Err(error) => return tracing::error!(pipeline = %key, %error, "cannot spell a status"),
        };
        let basis = Basis {
            version: entry.version,
            stood: entry.status.take(),
            uid: entry.object.metadata.uid.clone(),
        };
        (entry.status, entry.differs, entry.sent) = (Some(spelled.clone()), None, Some(clock));
        self.writer.write(StatusOf::Pipeline(key.clone()), spelled, basis, permit);
        let lost = (&before.lost_clusters[..], &status.lost_clusters[..]);
        entry.tell_of_clusters(&self.events, &self.index, lost, clock);
    }
}

/// What is wrong with the Secrets with hook keys of a pipeline; `None` while that is not known.
fn hook_secret(entry: &Entry, serves_hooks: bool) -> Option<Option<&Problem>> {
    if !serves_hooks || condition::named(&entry.object).is_empty() {
        return Some(None);
    }
    entry.hook_secret.as_ref().map(Option::as_ref)
}

/// Does not record a promotion anew whose name is taken by a record that is not as Sluice wrote it: the API
/// server would refuse it, and that record is evidence.
fn keep_names_taken(decision: &mut Decision, tampered: &BTreeMap<String, String>) {
    let Decision { actions, notes, .. } = decision;
    actions.retain(|action| {
        let Action::Start(intent) = action else { return true };
        let Some(why) = tampered.get(&intent.name) else { return true };
        let message = format!("{} waits: {}: {why}", intent.revision, intent.name);
        notes.insert(intent.environment.clone(), Note { reason: "Tampered", message });
        false
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use serde_json::json;
    use sluice_core::revision::Facet;
    use sluice_core::world::{Health, Member, Natural};
    use sluice_delivery::clock;
    use sluice_testkit::Scratch;

    use super::*;
    use crate::engine::tests::{engine, engine_of};
    use crate::engine::{Record, Unrecorded};
    use crate::observe::facts::ClusterKey;

    pub(crate) fn runs(version: &str) -> Target {
        let member = Member {
            kind: "HelmRelease".into(),
            name: "podinfo".into(),
            health: Health::Ready,
            message: String::new(),
            since: None,
            version: version.into(),
            gave_up: BTreeMap::new(),
            facets: BTreeMap::from([(Facet::Chart, version.into())]),
            natural: Natural::Chart,
            source: None,
            made: Vec::new(),
        };
        Target { error: None, members: vec![member] }
    }

    fn key() -> PipelineKey {
        PipelineKey { namespace: "apps".into(), name: "podinfo".into() }
    }

    /// A pipeline of dev and prod that commits.
    fn pipeline() -> sluice_api::Pipeline {
        let key = key();
        let target = |name: &str| json!([{"namespace": format!("podinfo-{name}"), "name": name}]);
        let strategy = json!({"commit": {"url": "https://git.example.com/acme/fleet.git", "branch": "main"}});
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": "u", "resourceVersion": "4"},
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "dev", "targets": target("d")}, {"name": "prod", "targets": target("p")}],
                "promotion": {"strategy": strategy}}});
        serde_json::from_value(object).unwrap()
    }

    /// dev runs 1.1.0, and prod this.
    fn learned(prod: &str, (promotions, tampered): (Vec<Promotion>, BTreeMap<String, String>)) -> Learned {
        let mut world = World::default();
        world.insert("dev", "d", runs("1.1.0"));
        world.insert("prod", "p", runs(prod));
        Learned { world, unheard: BTreeSet::new(), promotions, tampered }
    }

    /// A hub that counts the Promotions that are created. Each is there already, as `stored` makes it.
    fn hub_with(
        stored: impl Fn(&mut serde_json::Value) + Clone + Send + 'static,
    ) -> (kube::Client, Arc<AtomicUsize>) {
        let creates = Arc::new(AtomicUsize::new(0));
        let count = creates.clone();
        let object: Arc<Mutex<serde_json::Value>> = Arc::default();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (count, object, stored) = (count.clone(), object.clone(), stored.clone());
            async move {
                let (parts, body) = request.into_parts();
                let (code, answer) = match parts.method {
                    http::Method::POST => {
                        count.fetch_add(1, Ordering::Relaxed);
                        let sent = body.collect_bytes().await?;
                        let mut sent: serde_json::Value = serde_json::from_slice(&sent)?;
                        sent["metadata"]["resourceVersion"] = "9".into();
                        stored(&mut sent);
                        *object.lock().unwrap() = sent;
                        let taken = json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists",
                            "code": 409, "message": "it exists"});
                        (409, taken)
                    }
                    _ => (200, object.lock().unwrap().clone()),
                };
                let answer = kube::client::Body::from(answer.to_string().into_bytes());
                http::Response::builder().status(code).body(answer).map_err(tower::BoxError::from)
            }
        });
        (kube::Client::new(service, "apps"), creates)
    }

    type Forge = fn(&mut serde_json::Value);

    /// Records that somebody has changed: they are not about what their name says any more.
    const FORGED: [(&str, Forge); 5] = [
        ("run", |object| {
            (object["spec"]["run"], object["status"]["phase"]) = (7.into(), "Cancelled".into());
        }),
        ("facets", |object| object["spec"]["facets"] = json!({"HelmRelease/podinfo:chart": "6.6.6"})),
        ("target", |object| object["spec"]["target"] = "p".into()),
        ("pipeline", |object| object["spec"]["pipeline"] = "other".into()),
        ("owner", |object| object["metadata"]["ownerReferences"][0]["uid"] = "other".into()),
    ];

    #[tokio::test]
    async fn a_record_that_was_changed_is_not_created_again_and_again() {
        for (field, forge) in FORGED {
            let scratch = Scratch::new("forged").unwrap();
            let (hub, creates) = hub_with(forge);
            let (mut engine, mut inputs) = engine_of(&scratch, hub);
            engine.put_pipeline(pipeline());
            let mut noted = None;
            for _ in 0..50 {
                let now = clock::now();
                let taken_up = engine.take_up(&key(), now).unwrap();
                let decision = engine.decide(&key(), &learned("1.0.0", taken_up), now).unwrap();
                noted = decision.notes.get("prod").map(|note| (note.reason, note.message.clone()));
                engine.act(&key(), &decision, now);
                while engine.promotions.values().flatten().any(|(_, record)| !record.stored) {
                    engine.take_in(inputs.recv().await.unwrap());
                }
            }
            assert_eq!(creates.load(Ordering::Relaxed), 1, "{field}");
            let (reason, message) = noted.unwrap_or_default();
            // What no longer belongs to the pipeline at all is not even looked at: its name is taken.
            let is_taken = message.contains("exists, and was changed after Sluice created it");
            assert!(
                reason == "Tampered" || (reason == "RecordFailed" && is_taken),
                "{field}: {reason} {message}"
            );
        }
    }

    #[tokio::test]
    async fn the_pause_before_a_promotion_is_recorded_again_grows_and_has_an_end() {
        let scratch = Scratch::new("pauses").unwrap();
        let mut engine = engine(&scratch);
        engine.put_pipeline(pipeline());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let refused = Err(crate::silence::silent(crate::silence::PATIENCE));
            let object: sluice_api::Promotion = serde_json::from_value(json!({"metadata": {"name": "a"},
                "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1.1.0", "facets": {}}}))
            .unwrap();
            let guess = Record::being_made(Arc::new(object));
            engine.promotions.entry(key()).or_default().insert("a".into(), guess);
            engine.created(&key(), "a", refused);
            pauses.push(engine.pipelines[&key()].unrecorded["a"].pause.as_secs());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[tokio::test]
    async fn times_from_a_clock_that_is_a_day_ahead_are_limited_by_the_policy() {
        let scratch = Scratch::new("ahead").unwrap();
        let mut engine = engine(&scratch);
        engine.put_pipeline(pipeline());
        let ahead = "2026-11-23T10:00:00Z";
        let facets = [("HelmRelease/podinfo:chart".to_string(), "1.1.0".to_string())].into();
        let revision = sluice_core::Revision::from_strings(&facets).unwrap();
        let model = translate::pipeline(&pipeline());
        let name = sluice_core::model::promotion_name(&model, &model.environments[1], &revision, 0);
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
        let now: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        for (reason, longest) in [("Unreachable", 600), ("RateLimited", 3600)] {
            engine.promotions.clear();
            engine.stored_times.forget(&name);
            engine.put_promotion(stored(reason));
            let read = engine.take_up(&key(), now).unwrap().0.remove(0);
            let seconds = |at: Option<Timestamp>| at.unwrap().duration_since(now).as_secs();
            assert_eq!((seconds(read.next_attempt), seconds(read.delivered)), (longest, 0), "{reason}");
        }
    }

    #[tokio::test]
    async fn the_grace_period_of_a_cluster_begins_when_it_is_first_used() {
        let scratch = Scratch::new("grace").unwrap();
        let mut engine = engine(&scratch);
        let mut pipeline = pipeline();
        let cluster = serde_json::from_value(json!({"kind": "GitopsCluster", "name": "eu"})).unwrap();
        pipeline.spec.environments[1].targets[0].cluster_ref = Some(cluster);
        engine.put_pipeline(pipeline);
        // The hub was asked long ago. The other cluster is new.
        let old = Instant::now().checked_sub(GRACE).unwrap();
        let eu = ClusterKey::Remote { namespace: "apps".into(), name: "eu".into() };
        engine.first_used.extend([(ClusterKey::Local, old), (eu.clone(), Instant::now())]);
        let silent = |of: Option<(World, BTreeSet<(String, String)>)>| of.map(|(_, unheard)| unheard.len());
        assert_eq!(silent(engine.observe(&key())), None, "it is held for a moment");
        let a_moment_ago = Instant::now().checked_sub(HOLD).unwrap();
        engine.first_used.insert(eu.clone(), a_moment_ago);
        assert_eq!(silent(engine.observe(&key())), Some(1), "nobody expects an answer of it yet");
        engine.first_used.insert(eu, old);
        assert_eq!(silent(engine.observe(&key())), Some(0), "both count as unreadable");
    }

    #[tokio::test]
    async fn what_could_not_be_recorded_is_told_of_while_it_is_wanted() {
        let scratch = Scratch::new("unrecorded").unwrap();
        let mut engine = engine(&scratch);
        let key = key();
        engine.put_pipeline(pipeline());
        let now = clock::now();
        let mut decide = |prod: &str, unrecorded: Option<&str>| {
            let entry = engine.pipelines.get_mut(&key).unwrap();
            if let Some(name) = unrecorded {
                let refused = Unrecorded { why: "no room".into(), ..Unrecorded::new(Instant::now()) };
                entry.unrecorded.insert(name.into(), refused);
            }
            let decision = engine.decide(&key, &learned(prod, Default::default()), now).unwrap();
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
        // Somebody has brought it there by hand. When it is wanted again, that is another story.
        assert_eq!(decide("1.1.0", None), (None, None));
        assert_eq!(decide("1.0.0", None), (Some(wanted), None));
    }
}
