//! Which environments of pipelines are on which cluster.

use std::collections::BTreeMap;

use sluice_api::Pipeline;

use super::cluster_name;

/// How many environments of a cluster are named. Each owner of a pipeline can name more.
const MAX_NAMED: usize = 3;

/// The environments on each cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterEnvironments {
    /// By cluster: the environments, each with the first place that a pipeline gives it.
    clusters: BTreeMap<String, BTreeMap<String, usize>>,
}

/// The environments of one cluster. They are ordered by how early revisions reach them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedEnvironments {
    /// The first place that a pipeline gives one of them.
    pub place: usize,
    /// Their names; empty if no pipeline has a target there.
    pub names: String,
}

impl ClusterEnvironments {
    /// Returns the environments that these pipelines have on each cluster.
    pub fn of<'a>(pipelines: impl IntoIterator<Item = &'a Pipeline>) -> Self {
        let mut found = ClusterEnvironments::default();
        for pipeline in pipelines {
            let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
            for (place, environment) in pipeline.spec.environments.iter().enumerate() {
                for target in &environment.targets {
                    let cluster = cluster_name(&target.cluster_key(home));
                    let on = found.clusters.entry(cluster).or_default();
                    let first = on.entry(environment.name.clone()).or_insert(place);
                    *first = place.min(*first);
                }
            }
        }
        found
    }

    /// Returns the environments on a cluster, which is named as in the rows of versions.
    pub fn on(&self, cluster: &str) -> NamedEnvironments {
        let Some(on) = self.clusters.get(cluster) else {
            return NamedEnvironments { place: usize::MAX, names: String::new() };
        };
        let mut ordered: Vec<(usize, &str)> =
            on.iter().map(|(name, place)| (*place, name.as_str())).collect();
        ordered.sort_unstable();
        let place = ordered.first().map_or(usize::MAX, |(place, _)| *place);
        let further = ordered.len().saturating_sub(MAX_NAMED);
        let named: Vec<&str> = ordered.iter().take(MAX_NAMED).map(|(_, name)| *name).collect();
        let more = if further > 0 { format!(" and {further} more") } else { String::new() };
        NamedEnvironments { place, names: named.join(", ") + &more }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline(environments: serde_json::Value) -> Pipeline {
        serde_json::from_value(json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "fleet"}, "spec": {"environments": environments}}))
        .unwrap()
    }

    #[test]
    fn environments_are_named_in_the_order_in_which_revisions_reach_them() {
        let on = |cluster: &str| json!([{"namespace": "apps", "clusterRef": {"kind": "GitopsCluster", "name": cluster}}]);
        let local = json!([{"namespace": "apps"}]);
        let names = ["e", "d", "c", "b", "a"];
        let many: Vec<_> = names.iter().map(|name| json!({"name": name, "targets": on("all")})).collect();
        let pipelines = [
            pipeline(json!([
                {"name": "test", "targets": local},
                {"name": "staging", "targets": on("eu")},
                {"name": "prod", "targets": on("eu")},
            ])),
            pipeline(json!([{"name": "prod", "targets": on("us")}])),
            pipeline(json!(many)),
        ];
        let found = ClusterEnvironments::of(&pipelines);
        let expected = [
            ("", 0, "test"),
            ("fleet/eu", 1, "staging, prod"),
            ("fleet/us", 0, "prod"),
            ("fleet/all", 0, "e, d, c and 2 more"),
            ("fleet/other", usize::MAX, ""),
        ];
        for (cluster, place, names) in expected {
            assert_eq!(found.on(cluster), NamedEnvironments { place, names: names.into() }, "{cluster}");
        }
    }
}
