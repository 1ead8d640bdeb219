//! When a failed delivery is retried before its pause is over: its pipeline was edited, its Secret has changed, the
//! targets show another revision or source than before, or the branch that it writes to has a new commit. Each may
//! be the fix.

use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, Kind};
use sluice_core::observed::ObservedTargets;
use sluice_core::pipeline::Pipeline;
use sluice_core::promotion::Promotion;
use sluice_core::repository::{BranchId, Repository};

use super::State;
use super::effect::Effect;
use super::entries::may_retry_early;
use crate::act::strategy;
use crate::pipeline_key::PipelineKey;
use crate::secret::SecretVersion;

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
        let waits = |p: &&Promotion| records.get(&p.name).is_some_and(|r| may_retry_early(r.object()));
        let waiting: Vec<&Promotion> = promotions.iter().filter(waits).collect();
        let branches = waiting.iter().filter_map(|p| written_branch(&entry.model, &p.environment));
        self.waiting_branches.set(key, branches.map(Repository::id).collect());
        if waiting.is_empty() {
            return;
        }
        let targets_hash = targets_hash(&entry.model, observed);
        let mut is_sooner = false;
        for Promotion { name, .. } in waiting {
            is_sooner |= self.schedule.targets_observed(&key.promotion(name), targets_hash, self.now.instant);
            self.watch_secret(key, name);
        }
        if is_sooner {
            self.enqueue(key);
        }
    }

    /// Has the Secret of a failed delivery read again, if it is time for that.
    fn watch_secret(&mut self, key: &PipelineKey, name: &str) {
        let Some((entry, record)) = self.pipelines.get(key).zip(self.record(key, name)) else { return };
        let strategy = strategy::named(entry.object(), record.object());
        let Some(secret) = strategy.and_then(strategy::secret_name).map(String::from) else { return };
        let (promotion, now) = (key.promotion(name), self.now.instant);
        if self.schedule.secret_due(&promotion, now) <= now {
            self.schedule.secret_read_started(&promotion, now);
            self.emit(Effect::ReadSecretVersion(key.clone(), name.into(), secret));
        }
        let due = self.schedule.secret_due(&promotion, now);
        self.requeue_at(key, due);
    }

    /// Takes in the version of the Secret of a failed delivery.
    pub(super) fn secret_observed(&mut self, key: &PipelineKey, name: &str, version: SecretVersion) {
        let waits = self.record(key, name).is_some_and(|record| may_retry_early(record.object()));
        if waits && self.schedule.secret_observed(&key.promotion(name), version, self.now.instant) {
            self.enqueue(key);
        }
    }

    /// The branch of which an event of a cluster reports a new commit, if failed deliveries write to any branch.
    pub(super) fn moved_branch(&self, cluster: &ClusterKey, event: &ClusterEvent) -> Option<BranchId> {
        let ClusterEvent::Applied(key, Fact::Source(source)) = event else { return None };
        if self.waiting_branches.is_empty() || key.kind != Kind::GitRepository {
            return None;
        }
        let observed = self.index.cluster(cluster)?;
        let Some(Fact::Source(former)) = observed.object(key) else { return None };
        let is_new_commit = former.repository == source.repository && former.revision != source.revision;
        is_new_commit.then(|| source.repository.id())
    }

    /// Retries soon the failed deliveries to a branch that has a new commit. Only the hub, and clusters with targets of
    /// a pipeline, count for that pipeline.
    pub(super) fn branch_moved(&mut self, cluster: &ClusterKey, branch: &BranchId) {
        let users = self.users.get(cluster);
        let uses =
            |key: &PipelineKey| users.is_some_and(|users| users.values().any(|keys| keys.contains(key)));
        let waiting = self.waiting_branches.pipelines(branch);
        let waiting: Vec<PipelineKey> =
            waiting.filter(|key| *cluster == ClusterKey::Local || uses(key)).cloned().collect();
        for key in waiting {
            let Some(entry) = self.pipelines.get(&key) else { continue };
            for (name, record) in self.promotions.get(&key).into_iter().flatten() {
                let written = written_branch(&entry.model, &record.object().spec.environment);
                if may_retry_early(record.object()) && written.is_some_and(|written| written.id() == *branch)
                {
                    self.schedule.retry_soon(&key.promotion(name), self.now.instant);
                }
            }
            self.enqueue(&key);
        }
    }
}

/// The repository and branch that promotions into an environment write to.
fn written_branch<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a Repository> {
    let environment = pipeline.environments.iter().find(|e| e.name == environment)?;
    environment.policy.as_ref()?.writes_to.as_ref()
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
    use std::sync::Arc;
    use std::time::Instant;

    use serde_json::json;
    use sluice_core::fleet::ObjectKey;
    use sluice_core::observed::ObservedTarget;

    use super::super::Input;
    use super::super::fixtures::{at, insert, key, record, state, state_at};
    use super::*;
    use crate::observe::facts::source;
    use crate::watch::event_queue::EventQueue;

    fn pipeline(generation: i64, observed: i64) -> sluice_api::Pipeline {
        let commit = json!({"url": "https://git.example.com/acme/fleet.git", "branch": "main", "secretRef": {"name": "git"}});
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": generation,
                "resourceVersion": (10 + generation).to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}],
                "promotion": {"strategy": {"commit": commit}}},
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

    /// What the loop does for a pipeline whose dev runs this version.
    fn reconcile(state: &mut State, version: &str) {
        let mut observed = ObservedTargets::default();
        let mut target = ObservedTarget::default();
        target.members.extend(super::super::reconcile::tests::runs(version).members);
        observed.insert("dev", "podinfo", target);
        let (promotions, _) = state.load(&key()).unwrap();
        state.retry_early(&key(), &observed, &promotions);
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
            reconcile(&mut state, version);
            is_due(&mut state)
        };
        assert!(!is_due_with("1.0.0"));
        assert!(!is_due_with("1.0.0"));
        assert!(is_due_with("1.1.0"));
    }

    /// A cluster reports a GitRepository that has fetched a commit.
    fn fetched(state: &mut State, cluster: &ClusterKey, url: &str, branch: &str, commit: &str) {
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "flux-system"},
            "spec": {"url": url, "ref": {"branch": branch}},
            "status": {"artifact": {"revision": format!("{branch}@sha1:{commit}")}}});
        let fact = source::facts(Kind::GitRepository, &serde_json::from_value(object).unwrap());
        let (namespace, name) = ("flux-system".into(), "fleet".into());
        let key = ObjectKey { kind: Kind::GitRepository, namespace, name };
        let slot = Arc::new(EventQueue::default()).slot();
        let event = ClusterEvent::Applied(key, fact);
        state.observed.insert(cluster.clone());
        state.step(Input::Cluster(cluster.clone(), 1, event, slot), state.now);
    }

    #[test]
    fn a_new_commit_in_the_branch_that_is_written_to_ends_the_pause() {
        const SSH: &str = "ssh://git@git.example.com/acme/fleet";
        let foreign = ClusterKey::Remote { namespace: "other".into(), name: "eu".into() };
        for (cluster, url, branch, ends) in [
            (ClusterKey::Local, SSH, "main", true),
            (ClusterKey::Local, "https://git.example.com/acme/fleet.git", "main", true),
            (ClusterKey::Local, SSH, "next", false),
            (ClusterKey::Local, "https://git.example.com/acme/other", "main", false),
            (foreign, SSH, "main", false),
        ] {
            for (reason, is_waiting) in [("NoMarker", true), ("RateLimited", false)] {
                let mut state = state();
                failed(&mut state, reason);
                state.put_pipeline(pipeline(1, 1));
                reconcile(&mut state, "1.0.0");
                let mut is_due_at = |commit: &str| {
                    fetched(&mut state, &cluster, url, branch, commit);
                    is_due(&mut state)
                };
                assert!(!is_due_at("a"), "the first report is no change: {url}");
                assert!(!is_due_at("a"), "{url}");
                assert_eq!(is_due_at("b"), ends && is_waiting, "{cluster} {url} {branch} {reason}");
            }
        }
    }

    /// The Secrets whose version the state has asked for.
    fn read_secrets(state: &mut State) -> Vec<String> {
        let effects = std::mem::take(&mut state.effects).into_iter();
        let secrets = effects.filter_map(|effect| match effect {
            Effect::ReadSecretVersion(_, promotion, secret) if promotion == name() => Some(secret),
            _ => None,
        });
        secrets.collect()
    }

    #[test]
    fn a_changed_secret_ends_the_pause_of_a_delivery_that_used_the_former() {
        let start = Instant::now();
        let mut state = state_at(at(start, 0));
        failed(&mut state, "AuthenticationFailed");
        state.put_pipeline(pipeline(1, 1));
        reconcile(&mut state, "1.0.0");
        assert!(read_secrets(&mut state).is_empty(), "it was read by the delivery");
        let mut answers = Vec::new();
        for (seconds, version) in [(30, "5"), (60, "5"), (90, "6")] {
            // The timer of the pipeline fires when the Secret is to be read.
            assert_eq!(state.next_tick(), Some(at(start, seconds).instant));
            state.now = at(start, seconds);
            reconcile(&mut state, "1.0.0");
            assert_eq!(read_secrets(&mut state), ["git"], "{seconds}");
            let version = SecretVersion(Some(version.into()));
            state.step(Input::SecretVersion(key(), name(), version), at(start, seconds));
            answers.push(is_due(&mut state));
            state.timers.cancel(&key());
            reconcile(&mut state, "1.0.0");
        }
        assert_eq!(answers, [false, false, true]);
        assert!(read_secrets(&mut state).is_empty());
    }
}
