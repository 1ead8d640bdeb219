//! Handles the watch of GitopsClusters, and the events of the clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use kube::ResourceExt;
use sluice_api::OBSERVE;
use sluice_api::pipeline::Target;

use super::effect::Effect;
use super::{Input, KnownCluster, State};
use crate::observe::ObserveScope;
use crate::observe::facts::metadata;
use crate::observe::target::NoAnswerYet;
use crate::pipeline_key::PipelineKey;
use crate::tenancy;
use crate::watch::cluster_session::KubeconfigSource;
use crate::watch::parsed_object::UnreadableObject;
use crate::watch::stream::ObjectEvent;
use sluice_core::dns_name;
use sluice_core::fleet::observed_cluster::{AffectedTargets, ClusterState};
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, ObjectKey};

/// The most GitopsClusters that are observed although no pipeline refers to them. Each takes a connection and a watch for
/// each kind.
const MAX_SHOWN_CLUSTERS: usize = 500;
/// The pause between the first and the second read of the objects that a Flux object owns. The pause doubles with each
/// further read.
const MIN_READ_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two such reads.
const MAX_READ_PAUSE: Duration = Duration::from_secs(60);
/// The number of reads after which the log says what is missing. These reads take about three seconds.
const LOGGED_READS: u32 = 6;

impl State {
    /// Handles an event of the watch of GitopsClusters. The event is `None` if the hub does not serve that kind.
    pub(super) fn gitops_cluster_event(&mut self, event: Option<ObjectEvent<sluice_api::GitopsCluster>>) {
        let key = |c: &sluice_api::GitopsCluster| (c.namespace().unwrap_or_default(), c.name_any());
        self.has_cluster_kind = event.is_some();
        let known = |c: sluice_api::GitopsCluster| {
            let allowed = metadata::allowed_namespaces(&c);
            let observe = match c.annotations().get(OBSERVE).map(String::as_str) {
                Some("targets") => ObserveScope::Targets,
                _ => ObserveScope::All,
            };
            (key(&c), KnownCluster { spec: c.spec, allowed, observe })
        };
        match event {
            None => self.set_clusters(HashMap::new()),
            Some(ObjectEvent::Listed(all, _)) => self.set_clusters(all.into_iter().map(known).collect()),
            Some(ObjectEvent::Applied(c)) => {
                let (key, now) = known(c);
                self.set_cluster(key, Some(now));
            }
            Some(
                ObjectEvent::Deleted(metadata) | ObjectEvent::Unreadable(UnreadableObject { metadata, .. }),
            ) => {
                let gone = PipelineKey::named(&metadata);
                self.set_cluster((gone.namespace, gone.name), None);
            }
            Some(ObjectEvent::LeftOut(..)) => {}
            Some(ObjectEvent::Failed(error)) => {
                tracing::warn!(%error, "cannot watch GitopsClusters: check that the controller has get, list and watch on gitopsclusters");
            }
        }
    }

    /// Replaces all clusters.
    fn set_clusters(&mut self, all: HashMap<(String, String), KnownCluster>) {
        self.clusters = Some(all);
        let users: BTreeSet<PipelineKey> = self
            .users
            .values()
            .flat_map(|users_by_namespace| users_by_namespace.values().flatten().cloned())
            .collect();
        users.iter().for_each(|pipeline| self.enqueue(pipeline));
        self.update_all_sessions();
    }

    /// Replaces one cluster, or removes it.
    fn set_cluster(&mut self, (namespace, name): (String, String), now: Option<KnownCluster>) {
        let key = ClusterKey::Remote { namespace: namespace.clone(), name: name.clone() };
        let clusters = self.clusters.get_or_insert_default();
        let allowed = now.as_ref().and_then(|now| now.allowed.clone());
        let before = match now {
            Some(now) => clusters.insert((namespace, name), now),
            None => clusters.remove(&(namespace, name)),
        };
        if before.and_then(|before| before.allowed) != allowed {
            let users_by_namespace = self
                .users
                .get(&key)
                .into_iter()
                .flat_map(|users_by_namespace| users_by_namespace.values().flatten());
            let users: Vec<PipelineKey> = users_by_namespace.cloned().collect();
            users.iter().for_each(|pipeline| self.enqueue(pipeline));
        }
        let shown = self.shown_clusters();
        let changed = shown.symmetric_difference(&self.shown).cloned();
        let changed: BTreeSet<ClusterKey> = changed.chain([key]).collect();
        self.shown = shown;
        changed.iter().for_each(|key| self.update_session(key));
    }

    /// Returns why a pipeline may not have this target, or `None` if it may.
    ///
    /// # Errors
    /// When that is not known yet.
    pub(super) fn target_refusal(
        &self,
        pipeline: &PipelineKey,
        cluster: &ClusterKey,
        target: &Target,
    ) -> Result<Option<String>, NoAnswerYet> {
        let locked = self.settings.no_cross_namespace_refs;
        let from = pipeline.namespace.as_str();
        match cluster {
            ClusterKey::Local => {
                let hub = self.index.cluster(&ClusterKey::Local);
                tenancy::namespace_refusal(locked, &target.namespace, from, hub.as_deref())
            }
            ClusterKey::Remote { namespace, .. } if namespace == from => Ok(None),
            ClusterKey::Remote { .. } => {
                self.clusters.as_ref().ok_or(NoAnswerYet)?;
                let allowed = self.known_cluster(cluster).and_then(|known| known.allowed.as_ref());
                Ok(tenancy::cluster_refusal(locked, cluster, from, allowed))
            }
        }
    }

    /// Connects to or disconnects from all clusters, as [`State::update_session`] does.
    pub(super) fn update_all_sessions(&mut self) {
        self.changed_users.clear();
        self.shown = self.shown_clusters();
        let known = self.users.keys().chain(&self.observed).chain(&self.shown).chain(self.first_used.keys());
        let all: BTreeSet<ClusterKey> = known.cloned().collect();
        all.iter().for_each(|key| self.update_session(key));
    }

    /// Updates the sessions with the clusters whose users have changed. All other clusters are left out, because one
    /// edit of a Pipeline can name thousands.
    pub(super) fn update_changed_sessions(&mut self) {
        if self.listed.0 {
            std::mem::take(&mut self.changed_users).iter().for_each(|key| self.update_session(key));
        }
    }

    /// Connects to a cluster if a pipeline that may use the cluster has a target there, or if views show the cluster.
    /// Otherwise ends the session.
    fn update_session(&mut self, key: &ClusterKey) {
        if !self.listed.0 {
            return;
        }
        match self.users.contains_key(key) {
            true => drop(self.first_used.entry(key.clone()).or_insert(self.now.instant)),
            false => drop(self.first_used.remove(key)),
        }
        let namespaces = self.target_namespaces(key);
        if namespaces.is_empty() && !self.shown.contains(key) {
            if self.observed.remove(key) {
                self.index.forget(key);
                self.emit(Effect::Disconnect(key.clone()));
            }
            return;
        }
        match self.access(key) {
            None => {}
            Some(Ok(access)) => {
                self.observed.insert(key.clone());
                self.index.set_target_namespaces(key, namespaces.clone());
                self.emit(Effect::Connect(key.clone(), access, namespaces, self.observe_scope(key)));
            }
            // The cluster never existed. The status of the targets that name it says so.
            Some(Err(_)) if !self.observed.contains(key) && self.known_cluster(key).is_none() => {}
            Some(Err(why)) => {
                self.observed.insert(key.clone());
                self.emit(Effect::Disconnect(key.clone()));
                self.cluster_event(key, ClusterEvent::Lost(why));
            }
        }
    }

    /// Returns the namespaces of a cluster that hold targets of pipelines which may use the cluster. A pipeline that
    /// may not use the cluster has no effect on its watches.
    fn target_namespaces(&self, key: &ClusterKey) -> BTreeSet<String> {
        let locked = self.settings.no_cross_namespace_refs;
        let allowed = self.known_cluster(key).and_then(|known| known.allowed.as_ref());
        let may_use = |pipeline: &PipelineKey| {
            tenancy::cluster_refusal(locked, key, &pipeline.namespace, allowed).is_none()
        };
        let users_by_namespace = self.users.get(key).into_iter().flatten();
        // An invalid name of a namespace would change the path of the request.
        let used = users_by_namespace
            .filter(|(namespace, pipelines)| dns_name::is_label(namespace) && pipelines.iter().any(may_use));
        used.map(|(namespace, _)| namespace.clone()).collect()
    }

    fn known_cluster(&self, key: &ClusterKey) -> Option<&KnownCluster> {
        let ClusterKey::Remote { namespace, name } = key else { return None };
        self.clusters.as_ref()?.get(&(namespace.clone(), name.clone()))
    }

    /// Returns the clusters that views show, whether or not a pipeline refers to them.
    fn shown_clusters(&self) -> BTreeSet<ClusterKey> {
        if self.settings.observe == ObserveScope::Targets {
            return BTreeSet::new();
        }
        let watch_namespace = self.settings.watch_namespace.as_ref();
        let mut names_by_namespace: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((namespace, name), known) in self.clusters.iter().flatten() {
            if known.observe == ObserveScope::All
                && watch_namespace.is_none_or(|watch_namespace| watch_namespace == namespace)
            {
                names_by_namespace.entry(namespace).or_default().insert(name);
            }
        }
        let numbered = names_by_namespace.into_iter().flat_map(|(namespace, names)| {
            names.into_iter().enumerate().map(move |(n, name)| (n, namespace, name))
        });
        let mut remote: Vec<(usize, &str, &str)> = numbered.collect();
        // The first clusters of all namespaces come before the second clusters of all namespaces, and so on. So a
        // namespace with thousands of GitopsClusters hides only its own.
        remote.sort_unstable();
        let remote = remote.into_iter().take(MAX_SHOWN_CLUSTERS);
        let remote = remote.map(|(_, namespace, name)| ClusterKey::Remote {
            namespace: namespace.into(),
            name: name.into(),
        });
        std::iter::once(ClusterKey::Local).chain(remote).collect()
    }

    /// Returns which objects are observed on a cluster.
    fn observe_scope(&self, key: &ClusterKey) -> ObserveScope {
        match self.known_cluster(key) {
            Some(known) if known.observe == ObserveScope::Targets => ObserveScope::Targets,
            _ => self.settings.observe,
        }
    }

    /// Returns where the kubeconfig of a cluster is, or why there is no kubeconfig. Returns `None` until the
    /// GitopsClusters are known.
    pub(super) fn access(&self, key: &ClusterKey) -> Option<Result<KubeconfigSource, String>> {
        let ClusterKey::Remote { namespace, name } = key else { return Some(Ok(KubeconfigSource::Local)) };
        if !self.has_cluster_kind {
            return Some(Err(
                "this cluster has no kind GitopsCluster (gitops.weave.works): apply deploy/gitopscluster.yaml, or leave clusterRef out"
                    .into(),
            ));
        }
        self.clusters.as_ref()?;
        let Some(known) = self.known_cluster(key) else {
            return Some(Err(format!(
                "there is no GitopsCluster {namespace}/{name}: create it, or correct the target's clusterRef"
            )));
        };
        Some(match known.spec.kubeconfig_secret() {
            Some(secret) if !dns_name::is_subdomain(&secret) => Err(format!(
                "GitopsCluster {namespace}/{name} has an invalid name for the Secret with its kubeconfig: correct \
                 spec.secretRef.name or spec.capiClusterRef.name"
            )),
            Some(secret) => Ok(KubeconfigSource::Secret { namespace: namespace.clone(), name: secret }),
            None => Err(format!(
                "GitopsCluster {namespace}/{name} does not name its kubeconfig: set spec.secretRef.name or \
                 spec.capiClusterRef.name"
            )),
        })
    }

    /// Reads the objects that a Flux object owns again, unless the check with this number has ended.
    pub(super) fn read_owned_again(&mut self, key: &ClusterKey, owner: &ObjectKey, number: u64) {
        let read = self.index.cluster(key).and_then(|cluster| cluster.read_of(owner, number));
        if let Some(read) = read {
            self.emit(Effect::ReadOwned(key.clone(), read));
        }
    }

    /// Plans the next read of the objects that a Flux object owns, unless the last read has ended the check with this
    /// number.
    fn plan_next_read(&mut self, key: &ClusterKey, owner: ObjectKey, number: u64) {
        let reads = self.index.cluster(key).and_then(|cluster| cluster.reads_of(&owner, number));
        let Some(reads) = reads else { return };
        if reads == LOGGED_READS {
            let observed = self.index.cluster(key);
            let why = observed.and_then(|cluster| match cluster.object(&owner) {
                Some(Fact::Flux(flux)) => cluster.why_not_yet(flux),
                _ => None,
            });
            tracing::warn!(cluster = %key, object = %owner, why, "a new revision does not count yet");
        }
        let pause = MIN_READ_PAUSE.saturating_mul(1 << reads.min(16)).min(MAX_READ_PAUSE);
        self.emit(Effect::Later(pause, Box::new(Input::ReadOwnedAgain(key.clone(), owner, number))));
    }

    /// Handles an event of a cluster, and queues the pipelines that it affects.
    pub(super) fn cluster_event(&mut self, key: &ClusterKey, event: ClusterEvent) {
        // Late events of a cluster that is not observed any more are ignored.
        if !self.observed.contains(key) {
            return;
        }
        let before = self.index.cluster(key).map(|cluster| cluster.state().clone());
        let answered = match &event {
            ClusterEvent::OwnedWasRead(owner, number, _) => Some((owner.clone(), *number)),
            _ => None,
        };
        let moved = self.moved_branch(key, &event);
        let affected = self.index.apply(key, event);
        if let Some(branch) = moved {
            self.branch_moved(key, &branch);
        }
        for read in self.index.take_reads(key) {
            self.emit(Effect::ReadOwned(key.clone(), read));
        }
        if let Some((owner, number)) = answered {
            self.plan_next_read(key, owner, number);
        }
        match self.index.cluster(key).map(|cluster| cluster.state().clone()) {
            now if now == before => {}
            Some(ClusterState::Lost(why)) => {
                tracing::warn!(cluster = %key, error = %why, "a cluster cannot be reached")
            }
            Some(ClusterState::Up) => tracing::info!(cluster = %key, "a cluster is connected"),
            Some(ClusterState::Connecting) | None => {}
        }
        let Some(users) = self.users.get(key) else { return };
        let pipelines: Vec<PipelineKey> = match affected {
            AffectedTargets::None => return,
            AffectedTargets::All => users.values().flatten().cloned().collect(),
            AffectedTargets::InNamespaces(namespaces) => {
                namespaces.iter().filter_map(|n| users.get(n)).flatten().cloned().collect()
            }
        };
        pipelines.iter().for_each(|pipeline| self.enqueue(pipeline));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_api::ALLOWED_NAMESPACES;
    use sluice_core::fleet::ClusterEvent;

    use super::super::StateSettings;
    use super::super::fixtures::{settings, state, state_with};
    use super::*;

    fn cluster(namespace: &str, name: &str, annotations: Value) -> sluice_api::GitopsCluster {
        let object = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
            "spec": {"secretRef": {"name": format!("{name}-kubeconfig")}}});
        serde_json::from_value(object).unwrap()
    }

    /// Gives the state these clusters, and the Pipeline `apps/podinfo`, which has a target on `apps/eu`. Returns what
    /// is observed on each connected cluster, in the order of the clusters.
    fn sessions(state: &mut State, clusters: Vec<sluice_api::GitopsCluster>) -> Vec<(String, ObserveScope)> {
        let target = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "4"},
            "spec": {"environments": [{"name": "dev", "targets": [target]}]}});
        state.put_pipeline(serde_json::from_value(pipeline).unwrap());
        state.listed.0 = true;
        state.gitops_cluster_event(Some(ObjectEvent::Listed(clusters, 9)));
        connected(state)
    }

    /// Takes the effects of the state, and returns the clusters to connect to, with what is observed on each.
    fn connected(state: &mut State) -> Vec<(String, ObserveScope)> {
        let effects = std::mem::take(&mut state.effects).into_iter();
        let sessions = effects.filter_map(|effect| match effect {
            Effect::Connect(key, _, _, observe) => Some((key.to_string(), observe)),
            _ => None,
        });
        sessions.collect()
    }

    fn fleet() -> Vec<sluice_api::GitopsCluster> {
        vec![
            cluster("apps", "eu", json!({OBSERVE: "targets"})),
            cluster("apps", "us", json!({})),
            cluster("fleet", "asia", json!({})),
            cluster("fleet", "test", json!({OBSERVE: "targets"})),
        ]
    }

    #[test]
    fn every_cluster_is_observed_unless_a_setting_or_its_annotation_limits_that() {
        let (all, targets) = (ObserveScope::All, ObserveScope::Targets);
        let eu = |scope| ("cluster apps/eu".to_string(), scope);
        let hub = ("the local cluster".to_string(), all);
        let (us, asia) = (("cluster apps/us".to_string(), all), ("cluster fleet/asia".to_string(), all));
        assert_eq!(sessions(&mut state(), fleet()), [hub.clone(), eu(targets), us.clone(), asia]);

        let mut state = state_with(StateSettings { watch_namespace: Some("apps".into()), ..settings() });
        assert_eq!(sessions(&mut state, fleet()), [hub, eu(targets), us]);

        let mut state = state_with(StateSettings { observe: targets, ..settings() });
        assert_eq!(sessions(&mut state, fleet()), [eu(targets)]);
    }

    #[test]
    fn a_namespace_with_thousands_of_clusters_hides_no_clusters_of_others() {
        let mut state = state();
        let many = (0..2 * MAX_SHOWN_CLUSTERS).map(|n| cluster("apps", &format!("c{n:04}"), json!({})));
        let clusters = many.chain([cluster("zoo", "last", json!({}))]).collect();
        let sessions = sessions(&mut state, clusters);
        assert!(sessions.contains(&("cluster zoo/last".into(), ObserveScope::All)), "{sessions:?}");
        // The limit does not count the hub. The cluster of the pipeline's target does not exist, so there is no
        // session.
        assert_eq!(sessions.len(), MAX_SHOWN_CLUSTERS + 1);
    }

    /// Returns a Pipeline with one target for each of these namespaces and clusters.
    fn pipeline(namespace: &str, version: u64, targets: &[(&str, String)]) -> sluice_api::Pipeline {
        let target = |(of, (namespace, cluster)): (usize, &(&str, String))| {
            let (home, name) = cluster.split_once('/').unwrap();
            let cluster = json!({"kind": "GitopsCluster", "namespace": home, "name": name});
            json!({"name": format!("t{of}"), "namespace": namespace, "clusterRef": cluster})
        };
        let targets: Vec<Value> = targets.iter().enumerate().map(target).collect();
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "app", "namespace": namespace, "uid": namespace, "generation": version,
                "resourceVersion": version.to_string()},
            "spec": {"environments": [{"name": "prod", "targets": targets}]}});
        serde_json::from_value(object).unwrap()
    }

    fn apply_edit(state: &mut State, pipeline: sluice_api::Pipeline) {
        state.pipeline_event(ObjectEvent::Applied(pipeline));
    }

    #[test]
    fn a_pipeline_that_may_not_use_a_cluster_does_not_change_how_it_is_watched() {
        for (locked, annotations) in [(true, json!({})), (false, json!({ALLOWED_NAMESPACES: "team-b"}))] {
            let mut state = state_with(StateSettings {
                no_cross_namespace_refs: locked,
                observe: ObserveScope::Targets,
                ..settings()
            });
            let prod = || "team-b/prod".to_string();
            state.pipeline_event(ObjectEvent::Listed(vec![pipeline("team-b", 1, &[("shop", prod())])], 2));
            let clusters = vec![cluster("team-b", "prod", annotations)];
            state.gitops_cluster_event(Some(ObjectEvent::Listed(clusters, 3)));
            let watched = |state: &mut State| -> Vec<BTreeSet<String>> {
                let effects = std::mem::take(&mut state.effects).into_iter();
                let namespaces = effects.filter_map(|effect| match effect {
                    Effect::Connect(_, _, namespaces, _) => Some(namespaces),
                    _ => None,
                });
                namespaces.collect()
            };
            let shop = BTreeSet::from(["shop".to_string()]);
            assert_eq!(watched(&mut state), std::slice::from_ref(&shop));
            for version in 4..9 {
                apply_edit(&mut state, pipeline("team-a", version, &[(&format!("x{version}"), prod())]));
                assert!(watched(&mut state).iter().all(|watched| *watched == shop));
            }
            // Once the pipeline may use the cluster, its namespace is watched, until the permission ends.
            let both = BTreeSet::from(["shop".to_string(), "x8".to_string()]);
            for (allowed, wanted) in [("team-a,team-b", both), ("team-b", shop)] {
                let now = cluster("team-b", "prod", json!({ALLOWED_NAMESPACES: allowed}));
                state.gitops_cluster_event(Some(ObjectEvent::Applied(now)));
                assert_eq!(watched(&mut state), [wanted]);
            }
        }
    }

    #[test]
    fn a_target_that_tenancy_forbids_is_not_observed() {
        let mut state = state_with(StateSettings { no_cross_namespace_refs: true, ..settings() });
        let home = ("team-a", "team-a/eu".to_string());
        let targets = [home, ("shop", "team-b/prod".to_string())];
        let mut pipeline = pipeline("team-a", 1, &targets);
        let on_the_hub = json!({"name": "hub", "namespace": "team-b"});
        pipeline.spec.environments[0].targets.push(serde_json::from_value(on_the_hub).unwrap());
        let key = PipelineKey { namespace: "team-a".into(), name: "app".into() };
        state.pipeline_event(ObjectEvent::Listed(vec![pipeline], 2));
        state.promotion_event(ObjectEvent::Listed(Vec::new(), 2));
        let clusters = vec![cluster("team-a", "eu", json!({})), cluster("team-b", "prod", json!({}))];
        state.gitops_cluster_event(Some(ObjectEvent::Listed(clusters, 3)));
        let used = state.users.keys().cloned().collect::<Vec<_>>();
        for cluster in used {
            state.cluster_event(&cluster, ClusterEvent::Connected);
            for kind in sluice_core::fleet::Kind::DECIDING {
                state.cluster_event(&cluster, ClusterEvent::Listed(kind, None, Vec::new()));
            }
        }
        state.effects.clear();
        state.reconcile(&key);
        let status = state.effects.iter().find_map(|effect| match effect {
            Effect::WriteStatus(write) => Some(serde_json::from_str::<Value>(write.status.get()).unwrap()),
            _ => None,
        });
        let status = status.unwrap();
        let targets = status["environments"]["prod"]["targets"].as_array().unwrap();
        let errors: Vec<&str> = targets.iter().map(|t| t["error"].as_str().unwrap_or_default()).collect();
        let [own, cluster, namespace] = errors[..] else { panic!("{status}") };
        assert!(!own.contains("--no-cross-namespace-refs"), "{own}");
        for refused in [cluster, namespace] {
            assert!(refused.contains("--no-cross-namespace-refs forbids"), "{refused}");
        }
    }

    #[test]
    fn clusters_that_do_not_exist_cost_only_the_pipelines_that_name_them() {
        let mut state = state_with(StateSettings { observe: ObserveScope::Targets, ..settings() });
        let missing: Vec<_> = (0..2048).map(|n| ("x", format!("team-a/c{n}"))).collect();
        let pipelines =
            vec![pipeline("team-a", 1, &missing), pipeline("team-b", 1, &[("y", "team-b/eu".into())])];
        state.pipeline_event(ObjectEvent::Listed(pipelines, 2));
        state.gitops_cluster_event(Some(ObjectEvent::Listed(vec![cluster("team-b", "eu", json!({}))], 3)));
        assert_eq!(connected(&mut state).len(), 1);
        let eu = ClusterKey::Remote { namespace: "team-b".into(), name: "eu".into() };
        assert_eq!(state.index.fleet().clusters(), [eu]);
        // An edit of a Pipeline updates only the sessions with its own clusters.
        apply_edit(&mut state, pipeline("team-b", 4, &[("z", "team-b/eu".into())]));
        let sessions =
            state.effects.iter().filter(|e| matches!(e, Effect::Connect(..) | Effect::Disconnect(..)));
        assert_eq!(sessions.count(), 1);
        // A deleted cluster counts as lost as long as a pipeline uses it.
        let gone = cluster("team-b", "eu", json!({})).metadata;
        state.gitops_cluster_event(Some(ObjectEvent::Deleted(gone)));
        let lost = state
            .index
            .fleet()
            .clusters()
            .iter()
            .find_map(|key| state.index.fleet().read(key, |cluster| cluster.state().clone()));
        assert!(
            matches!(&lost, Some(ClusterState::Lost(why)) if why.contains("there is no GitopsCluster")),
            "{lost:?}"
        );
    }

    #[test]
    fn the_session_of_a_shown_cluster_ends_with_its_object_and_late_events_are_ignored() {
        let asia = ClusterKey::Remote { namespace: "fleet".into(), name: "asia".into() };
        let mut state = state();
        sessions(&mut state, fleet());
        state.cluster_event(&asia, ClusterEvent::Connected);
        assert!(state.index.fleet().clusters().contains(&asia));
        let gone = cluster("fleet", "asia", json!({})).metadata;
        state.gitops_cluster_event(Some(ObjectEvent::Deleted(gone)));
        let ended = |effect: &Effect| matches!(effect, Effect::Disconnect(key) if *key == asia);
        assert!(state.effects.iter().any(ended));
        state.cluster_event(&asia, ClusterEvent::Connected);
        assert!(!state.index.fleet().clusters().contains(&asia));
    }

    #[test]
    fn a_shown_cluster_without_a_kubeconfig_is_lost_with_a_reason() {
        let mut state = state();
        let mut asia = cluster("fleet", "asia", json!({}));
        asia.spec.secret_ref = None;
        sessions(&mut state, vec![asia]);
        let key = ClusterKey::Remote { namespace: "fleet".into(), name: "asia".into() };
        let lost = state.index.fleet().read(&key, |cluster| cluster.state().clone());
        assert!(matches!(lost, Some(ClusterState::Lost(why)) if why.contains("spec.secretRef.name")));

        let mut eu = cluster("fleet", "asia", json!({}));
        eu.spec.secret_ref.as_mut().unwrap().name = "x,type=Opaque".into();
        state.gitops_cluster_event(Some(ObjectEvent::Applied(eu)));
        let lost = state.index.fleet().read(&key, |cluster| cluster.state().clone());
        assert!(
            matches!(lost, Some(ClusterState::Lost(why)) if why.contains("has an invalid name for the Secret"))
        );
    }
}
