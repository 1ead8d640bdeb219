//! Targets whose name means another place than before: what ran in the former place says nothing about the new one.

use std::collections::HashMap;

use sluice_api::Pipeline;
use sluice_api::pipeline::{ClusterRef, PipelineStatus};
use sluice_core::evidence::Evidence;

/// A target by the names of its environment and its own, with its namespace and cluster.
type Place<'a> = (&'a str, String, &'a str, Option<&'a ClusterRef>);

fn places(pipeline: &Pipeline) -> impl Iterator<Item = Place<'_>> {
    pipeline.spec.environments.iter().flat_map(|environment| {
        let named = environment.target_names().into_iter().zip(&environment.targets);
        named.map(|(name, target)| {
            (environment.name.as_str(), name, target.namespace.as_str(), target.cluster_ref.as_ref())
        })
    })
}

/// Forgets what the targets have run that an edit has moved.
pub(super) fn forget_moved(evidence: &mut Evidence, before: &Pipeline, after: &Pipeline) {
    let now: HashMap<_, _> = places(after)
        .map(|(environment, name, namespace, cluster)| ((environment, name), (namespace, cluster)))
        .collect();
    for (environment, name, namespace, cluster) in places(before) {
        let key = (environment, name);
        if now.get(&key).is_some_and(|now| *now != (namespace, cluster)) {
            evidence.forget(environment, &key.1);
        }
    }
}

/// Forgets what the targets have run that were moved since the status was stored. A short status does not name the cluster.
pub(super) fn forget_moved_since(evidence: &mut Evidence, status: &PipelineStatus, now: &Pipeline) {
    for (environment, name, namespace, cluster) in places(now) {
        let stored = status.environments.get(environment).into_iter().flat_map(|stored| &stored.targets);
        let mut stored = stored.filter(|target| target.name == name && !target.namespace.is_empty());
        if stored.any(|target| {
            let of_cluster = target.cluster_app_ref.as_ref().map(|app| app.cluster_ref.as_ref());
            target.namespace != namespace || of_cluster.is_some_and(|stored| stored != cluster)
        }) {
            evidence.forget(environment, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_core::revision::Revision;

    use super::*;

    fn pipeline(target: &Value) -> Pipeline {
        let target = [json!({"name": "us"}), target.clone()].iter().fold(json!({}), |mut all, part| {
            all.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            all
        });
        let spec = json!({"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [{"name": "prod", "targets": [target]}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "apps"}, "spec": spec})).unwrap()
    }

    #[test]
    fn what_ran_in_a_former_place_of_a_target_is_forgotten() {
        let on =
            |name: &str| json!({"namespace": "apps", "clusterRef": {"kind": "GitopsCluster", "name": name}});
        let eu = on("eu");
        for (target, is_kept) in [
            (eu.clone(), true),
            (on("us"), false),
            (json!({"namespace": "apps"}), false),
            (json!({"namespace": "other", "clusterRef": eu["clusterRef"]}), false),
        ] {
            let mut known = Evidence::default();
            let revision =
                Revision::from_strings(&[("HelmRelease/podinfo:chart".into(), "1.2.0".into())].into());
            known.insert_unproven("prod", "us", revision.unwrap());
            let (before, after) = (pipeline(&eu), pipeline(&target));
            let mut edited = known.clone();
            forget_moved(&mut edited, &before, &after);
            let app = json!({"apiVersion": "v2", "kind": "HelmRelease", "name": "podinfo", "clusterRef": eu["clusterRef"]});
            let stored = json!({"environments": {"prod": {"targets": [
                {"name": "us", "namespace": "apps", "clusterAppRef": app}]}}});
            let mut restarted = known.clone();
            forget_moved_since(&mut restarted, &serde_json::from_value(stored).unwrap(), &after);
            for evidence in [edited, restarted] {
                assert_eq!(evidence.unproven("prod", "us").is_some(), is_kept, "{target}");
            }
        }
    }
}
