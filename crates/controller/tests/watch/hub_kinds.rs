//! The hub is asked for the objects that start pipelines, with the definitions of Flux on a real API server.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluice_controller::ObserveScope;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_core::fleet::trigger_fact::TriggerFact;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, Kind, ObjectKey};
use sluice_testkit::{Cluster, ControlPlane};

use crate::run;
use crate::running_session::RunningSession;

fn object(api_version: &str, kind: &str, spec: &serde_json::Value) -> String {
    let group = if kind.starts_with("Image") { "image" } else { "notification" };
    json!({"apiVersion": format!("{group}.toolkit.fluxcd.io/{api_version}"), "kind": kind,
        "metadata": {"name": "podinfo", "namespace": "default"}, "spec": spec})
    .to_string()
}

/// Applies an object of each kind that only the hub is asked for.
async fn apply_one_of_each_kind(hub: &Cluster) -> Result<()> {
    let git = json!({"kind": "GitRepository", "name": "fleet"});
    let author = json!({"commit": {"author": {"email": "flux@example.com"}}});
    for yaml in [
        object(
            "v1",
            "ImagePolicy",
            &json!({"imageRepositoryRef": {"name": "podinfo"}, "policy": {"semver": {"range": "6.x"}}}),
        ),
        object(
            "v1",
            "ImageUpdateAutomation",
            &json!({"interval": "1h", "sourceRef": git, "git": author, "update": {"path": "./dev"}}),
        ),
        object(
            "v1",
            "Receiver",
            &json!({"type": "github", "secretRef": {"name": "token"}, "resources": [git]}),
        ),
        object(
            "v1beta3",
            "Provider",
            &json!({"type": "generic", "address": "https://sluice.example.com/promotion/apps/podinfo/dev"}),
        ),
        object("v1beta3", "Alert", &json!({"providerRef": {"name": "podinfo"}, "eventSources": [git]})),
    ] {
        hub.apply_yaml(&yaml).await?;
    }
    Ok(())
}

/// Returns what tells one kind from another in the facts of the object.
fn shown(fact: &Fact) -> Option<String> {
    let Fact::Trigger(fact) = fact else { return None };
    Some(match &**fact {
        TriggerFact::ImagePolicy { choice, .. } => choice.clone(),
        TriggerFact::ImageUpdateAutomation { path, .. } => path.clone(),
        TriggerFact::Receiver { sender, .. } => sender.clone(),
        TriggerFact::Alert { provider, suspended } => format!("{provider} {suspended}"),
        TriggerFact::Provider { hook, .. } => hook.clone()?.environment,
    })
}

#[test]
fn the_objects_that_start_pipelines_are_listed_and_followed_on_the_hub() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let hub = plane.cluster("hub").await?;
        hub.install_flux_crds().await?;
        apply_one_of_each_kind(&hub).await?;
        let memory = ObservedMemory::new(64 << 20);
        let mut session =
            RunningSession::start_with(hub.client().await?, ClusterKey::Local, ObserveScope::All, memory);

        let mut listed = BTreeMap::new();
        while listed.len() < Kind::SHOWN_ON_HUB.len() {
            let (kind, facts) = session
                .first(|event| match event {
                    ClusterEvent::Listed(kind, None, facts) if Kind::SHOWN_ON_HUB.contains(&kind) => {
                        Some((kind, facts))
                    }
                    _ => None,
                })
                .await?;
            let [(key, fact)] = &facts[..] else { anyhow::bail!("{kind:?}: {facts:?}") };
            ensure!((key.kind, key.name.as_str()) == (kind, "podinfo"), "{key:?}");
            listed.insert(format!("{kind:?}"), shown(fact).context("another fact")?);
        }
        insta::assert_debug_snapshot!(listed, @r#"
        {
            "Alert": "podinfo false",
            "ImagePolicy": "range 6.x",
            "ImageUpdateAutomation": "./dev",
            "Provider": "dev",
            "Receiver": "github",
        }
        "#);

        hub.apply_yaml(&object(
            "v1beta3",
            "Alert",
            &json!({"providerRef": {"name": "podinfo"}, "suspend": true,
            "eventSources": [{"kind": "GitRepository", "name": "fleet"}]}),
        ))
        .await?;
        let key = ObjectKey { kind: Kind::Alert, namespace: "default".into(), name: "podinfo".into() };
        let changed = session
            .first(|event| match event {
                ClusterEvent::Applied(of, fact) if of == key => Some(fact),
                _ => None,
            })
            .await?;
        ensure!(shown(&changed).as_deref() == Some("podinfo true"), "{changed:?}");
        Ok(())
    })
}
