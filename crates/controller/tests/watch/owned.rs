//! A session reads what a Flux object owns directly from the API server.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_controller::ObserveScope;
use sluice_controller::watch::limit::ObservedMemory;
use sluice_core::fleet::fact::Owned;
use sluice_core::fleet::owned_check::FoundObject;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, Kind, ObjectKey};
use sluice_testkit::ControlPlane;

use crate::run;
use crate::running_session::RunningSession;

fn key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: "default".into(), name: name.into() }
}

/// Returns a Deployment whose labels name a Kustomization as owner.
fn deployment(name: &str, owner: &str) -> Result<Deployment> {
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "default"});
    let pod = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": pod});
    Ok(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?)
}

#[test]
fn the_current_generations_of_owned_objects_are_read() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("owned").await?;
        let client = cluster.client().await?;
        let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
        for (name, owner) in [("web", "shop"), ("worker", "shop"), ("other", "blog")] {
            api.create(&PostParams::default(), &deployment(name, owner)?).await?;
        }
        let mut session =
            RunningSession::start(client, "owned", ObserveScope::Targets, ObservedMemory::new(64 << 20));
        session
            .first(|event| matches!(event, ClusterEvent::Listed(Kind::Deployment, ..)).then_some(()))
            .await?;
        let read = async |session: &mut RunningSession, number| -> Result<Vec<FoundObject>> {
            session.owned_reads.add(OwnedRead {
                owner: key(Kind::Kustomization, "shop"),
                owned: Owned::Inventory(
                    ["web", "worker", "other"].map(|name| key(Kind::Deployment, name)).into_iter().collect(),
                ),
                scopes: BTreeSet::from([(Kind::Deployment, "default".to_string())]),
                number,
            });
            let answer = session.first(|event| match event {
                ClusterEvent::OwnedWasRead(_, of, found) if of == number => Some(found),
                _ => None,
            });
            answer.await?.map_err(anyhow::Error::msg)
        };
        let before = read(&mut session, 1).await?;
        let names: Vec<&str> = before.iter().map(|(key, _)| key.name.as_str()).collect();
        ensure!(names == ["web", "worker"], "{before:?}");
        ensure!(before.iter().all(|(_, version)| version.generation == 1), "{before:?}");
        let change = Patch::Merge(json!({"spec": {"replicas": 3}}));
        api.patch("web", &PatchParams::default(), &change).await?;
        let after = read(&mut session, 2).await?;
        let web = after.iter().find(|(key, _)| key.name == "web").context("web is gone")?;
        ensure!(web.1.generation == 2 && web.1.uid == before[0].1.uid, "{after:?}");
        Ok(())
    })
}
