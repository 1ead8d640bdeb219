//! The names of the keys in the Secret that `promotion.strategy.secretRef` names. Each key is accepted for one purpose
//! only. Users write these names, so they belong to the API.

use crate::pipeline::ClusterRef;

/// The key that signs events of Flux.
pub const HMAC_KEY: &str = "hmac-key";
/// The key that signs calls of `/trigger`.
pub const TRIGGER_KEY: &str = "trigger-key";
/// The key that signs calls of `/approval`.
pub const APPROVAL_KEY: &str = "approval-key";
/// The key from which the tokens for `/callback` are made.
pub const CALLBACK_KEY: &str = "callback-key";
/// The key that a forge shows at `/forge`.
pub const FORGE_KEY: &str = "forge-key";
/// The key that signs reports about targets with `observe: Push`, before the name of the cluster.
const REPORT_KEY: &str = "report-key";

/// Returns the key of one cluster: `report-key.<name>`, or `report-key.<namespace>_<name>` if the cluster is in another
/// namespace than the Pipeline (`home`). Names of namespaces and clusters have no `_`, so no two clusters share a key.
pub fn report_key(cluster: &ClusterRef, home: &str) -> String {
    match cluster.namespace_or(home) {
        namespace if namespace == home => format!("{REPORT_KEY}.{}", cluster.name),
        namespace => format!("{REPORT_KEY}.{namespace}_{}", cluster.name),
    }
}

/// Returns the name of the old key that is still accepted while a key is rotated: `hmac-key-previous`,
/// `report-key-previous.<cluster>`.
pub fn previous(key: &str) -> String {
    match key.split_once('.') {
        Some((purpose, cluster)) => format!("{purpose}-previous.{cluster}"),
        None => format!("{key}-previous"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_clusters_and_no_two_purposes_share_a_key_name() {
        let cluster = |namespace: Option<&str>, name: &str| ClusterRef {
            api_version: None,
            kind: "GitopsCluster".into(),
            name: name.into(),
            namespace: namespace.map(String::from),
        };
        let own = report_key(&cluster(None, "edge-1"), "apps");
        assert_eq!(own, "report-key.edge-1");
        assert_eq!(report_key(&cluster(Some("apps"), "edge-1"), "apps"), own);
        assert_eq!(report_key(&cluster(Some("fleet"), "edge-1"), "apps"), "report-key.fleet_edge-1");
        assert_eq!(previous(&own), "report-key-previous.edge-1");
        assert_eq!(previous(HMAC_KEY), "hmac-key-previous");
        // Names that are similar to the name of another key.
        let clusters = [
            (None, "edge"),
            (None, "edge-previous"),
            (None, "fleet.edge"),
            (None, "fleet-edge"),
            (Some("fleet"), "edge"),
            (Some("fleet"), "edge-previous"),
        ];
        let mut names: Vec<String> =
            clusters.iter().map(|(namespace, name)| report_key(&cluster(*namespace, name), "apps")).collect();
        names.extend([HMAC_KEY, TRIGGER_KEY, APPROVAL_KEY, CALLBACK_KEY, FORGE_KEY].map(String::from));
        names.extend(names.clone().iter().map(|name| previous(name)));
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
