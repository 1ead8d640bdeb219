//! The objects of the demo, as a user writes them.

use anyhow::Result;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::versions::FIRST;

/// The namespace on the hub of the Pipeline, the GitopsClusters and their Secrets.
pub const NAMESPACE: &str = "apps";
/// The file with the version of dev.
pub const DEV_FILE: &str = "clusters/dev/podinfo.yaml";
/// The file with the version of prod.
pub const PROD_FILE: &str = "clusters/live/prod.yaml";

/// The user of Sluice on every cluster: the service account of `deploy/`.
pub const USER: &str = "system:serviceaccount:sluice-system:sluice";
/// The rights that `deploy/` grants to that user on the hub.
pub const HUB_RIGHTS: [&str; 4] = [
    include_str!("../../../deploy/namespace.yaml"),
    include_str!("../../../deploy/reader/every-cluster.yaml"),
    include_str!("../../../deploy/reader/hub.yaml"),
    include_str!("../../../deploy/rbac.yaml"),
];
/// The roles of people that `deploy/` has.
pub const PEOPLE: &str = include_str!("../../../deploy/people.yaml");
/// The service account that a visitor of the demo signs in as.
pub const VISITOR: &str = "jane";
/// The rights that `deploy/target` grants to that user on a cluster with targets.
pub const TARGET_RIGHTS: [&str; 2] = [
    include_str!("../../../deploy/reader/every-cluster.yaml"),
    include_str!("../../../deploy/target/account.yaml"),
];

/// The files of the repository: one HelmRelease for each environment. Those of staging and prod have a marker at the
/// version, which Sluice sets. With the fault, that of prod is missing.
pub fn repository(has_fault: bool) -> Vec<(&'static str, String)> {
    let of_prod = if has_fault { String::new() } else { marker("prod") };
    vec![
        (DEV_FILE, release("podinfo", "")),
        ("clusters/live/staging.yaml", release("podinfo-staging", &marker("staging"))),
        (PROD_FILE, release("podinfo-prod", &of_prod)),
    ]
}

/// Returns the number of HelmReleases in the repository for a cluster.
pub fn releases_on(cluster: &str) -> usize {
    repository(false).iter().filter(|(path, _)| path.starts_with(&format!("clusters/{cluster}/"))).count()
}

/// Returns the marker of an environment, as it stands after a version.
pub fn marker(environment: &str) -> String {
    format!(" # {{\"$promotion\": \"{NAMESPACE}:podinfo:{environment}\"}}")
}

fn release(namespace: &str, marker: &str) -> String {
    format!(
        "apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata:
  name: podinfo
  namespace: {namespace}
spec:
  interval: 1h
  url: https://stefanprodan.github.io/podinfo
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: podinfo
  namespace: {namespace}
spec:
  interval: 10m
  chart:
    spec:
      chart: podinfo
      version: {FIRST}{marker}
      sourceRef:
        kind: HelmRepository
        name: podinfo
"
    )
}

/// The objects that `flux bootstrap` creates on a cluster: the source and the Kustomization of its folder.
pub fn bootstrap(cluster: &str, url: &str, user: &str, password: &str) -> Result<String> {
    let secret = secret("fleet", "flux-system", &[("username", user), ("password", password)])?;
    Ok(format!(
        "{secret}---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: fleet, namespace: flux-system}}
spec:
  interval: 1m
  url: {url}
  ref: {{branch: main}}
  secretRef: {{name: fleet}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: fleet, namespace: flux-system}}
spec:
  interval: 10m
  path: ./clusters/{cluster}
  prune: true
  sourceRef: {{kind: GitRepository, name: fleet}}
"
    ))
}

/// The objects of a leaf cluster on the hub: a GitopsCluster, and the Secret with its kubeconfig.
pub fn cluster(name: &str, kubeconfig: &str) -> Result<String> {
    let secret = secret(&format!("{name}-kubeconfig"), NAMESPACE, &[("value", kubeconfig)])?;
    Ok(format!(
        "{secret}---
apiVersion: gitops.weave.works/v1alpha1
kind: GitopsCluster
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  secretRef: {{name: {name}-kubeconfig}}
"
    ))
}

/// The Secret with the git credentials of Sluice.
pub fn git_secret(user: &str, password: &str) -> Result<String> {
    secret("fleet-git", NAMESPACE, &[("username", user), ("password", password)])
}

/// Returns the rights of the visitor: to see and to edit what is in the namespace, and to approve promotions there.
pub fn visitor() -> String {
    let subject = json!([{"kind": "ServiceAccount", "name": VISITOR, "namespace": NAMESPACE}]);
    let binding = |kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{VISITOR}-{role}"), "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": subject})
    };
    let clusters = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "clusters", "namespace": NAMESPACE},
        "rules": [{"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"]}]});
    let (editor, approver) =
        (binding("ClusterRole", "sluice-editor"), binding("ClusterRole", "sluice-approver"));
    format!("{clusters}\n---\n{editor}\n---\n{approver}\n---\n{}\n", binding("Role", "clusters"))
}

fn secret(name: &str, namespace: &str, fields: &[(&str, &str)]) -> Result<String> {
    let data: BTreeMap<&str, Value> = fields
        .iter()
        .map(|(key, value)| Ok((*key, serde_json::to_value(ByteString(value.as_bytes().to_vec()))?)))
        .collect::<Result<_>>()?;
    let object = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace}, "data": data});
    Ok(format!("{object}\n"))
}

/// The Pipeline: staging automatically, prod after an approval.
pub fn pipeline(url: &str) -> String {
    let commit = format!("commit: {{url: '{url}', branch: main, secretRef: {{name: fleet-git}}}}");
    format!(
        "apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata:
  name: podinfo
  namespace: {NAMESPACE}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}
  environments:
  - name: dev
    targets:
    - namespace: podinfo
      clusterRef: {{kind: GitopsCluster, name: dev}}
  - name: staging
    targets:
    - namespace: podinfo-staging
      clusterRef: {{kind: GitopsCluster, name: live}}
  - name: prod
    targets:
    - namespace: podinfo-prod
      clusterRef: {{kind: GitopsCluster, name: live}}
    promotion:
      manual: true
      strategy:
        {commit}
  promotion:
    strategy:
      {commit}
"
    )
}
