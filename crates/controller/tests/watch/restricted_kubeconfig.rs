//! The kubeconfig of a tenant on a shared cluster, at a real API server: its permissions decide what a session reads.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_controller::ObserveScope;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_core::fleet::{ClusterEvent, Kind};
use sluice_testkit::{ControlPlane, WAIT_TIMEOUT, connect, eventually};

use crate::run;
use crate::running_session::RunningSession;

/// A Deployment, and a role for Deployments in the namespace with a binding for the user.
fn objects(namespace: &str, user: Option<&str>) -> Vec<Value> {
    let metadata = json!({"name": "podinfo", "namespace": namespace});
    let labels = json!({"app": "podinfo"});
    let container = json!({"name": "podinfo", "image": "ghcr.io/stefanprodan/podinfo:6.1.8"});
    // Of Deployments that Flux did not make, a session for targets keeps nothing.
    let made_by_flux = json!({"kustomize.toolkit.fluxcd.io/name": "podinfo",
        "kustomize.toolkit.fluxcd.io/namespace": namespace});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "podinfo", "namespace": namespace, "labels": made_by_flux},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    let Some(user) = user else { return vec![deployment] };
    let group = "rbac.authorization.k8s.io";
    let rule =
        json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]});
    vec![
        deployment,
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "podinfo"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}]}),
    ]
}

#[test]
fn a_kubeconfig_for_one_namespace_shows_nothing_of_another() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("shared").await?;
        for (namespace, user) in [("team-a", Some("sluice-team-a")), ("team-b", None)] {
            cluster.namespace(namespace).await?;
            for object in objects(namespace, user) {
                cluster.apply_yaml(&object.to_string()).await?;
            }
        }
        let client = connect(&cluster.user("sluice-team-a", None)?).await?;
        let own: Api<Deployment> = Api::namespaced(client.clone(), "team-a");
        // The API server reads new permissions by a watch, a moment later.
        eventually(WAIT_TIMEOUT, || async { Ok(own.list(&ListParams::default()).await.map(drop)?) }).await?;
        for scope in [ObserveScope::Targets, ObserveScope::All] {
            let memory = ObservedMemory::new(1 << 20);
            let mut session = RunningSession::start(client.clone(), "shared", scope, memory);
            // A Pipeline of the tenant names the namespace of the other tenant, too.
            let both = BTreeSet::from(["team-a", "team-b"].map(String::from));
            session.namespaces.send_modify(|known| *known = both);
            let (mut listed, mut refused) = (Vec::new(), String::new());
            session
                .first(|event| {
                    match event {
                        ClusterEvent::Listed(Kind::Deployment, namespace, objects) => {
                            listed.extend(objects.into_iter().map(|(key, _)| key.namespace));
                            assert_eq!(namespace.as_deref(), Some("team-a"));
                        }
                        ClusterEvent::Unreadable(Kind::Deployment, Some(namespace), why)
                            if namespace == "team-b" =>
                        {
                            refused = why;
                        }
                        _ => {}
                    }
                    (!listed.is_empty() && !refused.is_empty()).then_some(())
                })
                .await?;
            ensure!(listed == ["team-a"], "{listed:?}");
            ensure!(refused.contains("deployments"), "{refused}");
        }
        Ok(())
    })
}
