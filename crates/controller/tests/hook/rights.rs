//! The rights of the controller that serves the hooks, at a real API server.

use anyhow::Result;
use serde_json::json;
use sluice_testkit::Cluster;

/// The user that the controller is for the API server.
pub(crate) const USER: &str = "sluice-controller";

/// Grants the controller all rights outside the core group, and in the core group these verbs for Secrets.
pub(crate) async fn grant(cluster: &Cluster, secret_verbs: &[&str]) -> Result<()> {
    let groups =
        ["pipelines.weave.works", "events.k8s.io", "admissionregistration.k8s.io", "gitops.weave.works"];
    let rbac = "rbac.authorization.k8s.io";
    let objects = json!([
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": USER}, "rules": [
            {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": secret_verbs}]},
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": USER},
            "subjects": [{"kind": "User", "name": USER, "apiGroup": rbac}],
            "roleRef": {"kind": "ClusterRole", "name": USER, "apiGroup": rbac}}]);
    let yaml: Vec<String> = objects.as_array().unwrap().iter().map(ToString::to_string).collect();
    cluster.apply_yaml(&yaml.join("\n---\n")).await.map(drop)
}
