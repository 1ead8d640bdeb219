//! Pipelines that were stored before Sluice came: with the statuses that the predecessor wrote, and in a form that the
//! rules of today reject.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_testkit::{ControlPlane, eventually, install_crds};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// How many pipelines the installation has.
const PIPELINES: usize = 20;

/// Returns a pipeline as the predecessor reads it, and its status: in the form that was captured, for this application.
fn pipeline(namespace: &str, name: &str) -> Result<(Value, Value)> {
    let captured = include_str!("../../../api/tests/data/predecessor-level-mode.json");
    let captured = captured.replace("\"podinfo\"", &format!("{name:?}"));
    let mut object: Value = serde_json::from_str(&captured)?;
    let status = json!({"status": object["status"].take()});
    let target = |cluster: &str| {
        let cluster = json!({"kind": "GitopsCluster", "name": cluster, "namespace": namespace});
        json!([{"namespace": namespace, "clusterRef": cluster}])
    };
    let spec = json!({
        "appRef": object["spec"]["appRef"],
        "environments": [{"name": "dev", "targets": target("dev")}, {"name": "prod", "targets": target("prod")}],
        "promotion": {"strategy": {"notification": {}}},
    });
    let metadata = json!({"name": name, "namespace": namespace});
    let object =
        json!({"apiVersion": object["apiVersion"], "kind": "Pipeline", "metadata": metadata, "spec": spec});
    Ok((object, status))
}

#[test]
fn pipelines_with_the_statuses_of_the_predecessor_get_new_ones_and_are_promoted() -> Result<()> {
    run(async {
        let place = TestNamespace::new("takeover").await?;
        let n = place.namespace.as_str();
        let names: Vec<String> = (0..PIPELINES).map(|i| format!("app-{i}")).collect();
        for name in &names {
            let (object, status) = pipeline(n, name)?;
            place.apply(&object.to_string()).await?;
            place.pipelines().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            let stored = place.pipelines().get(name).await?.status.context("no status of the predecessor")?;
            ensure!(stored.environments["dev"].targets[0].name.is_empty(), "{stored:?}");
            for environment in ["dev", "prod"] {
                releases::create_running(place.leaf(environment), n, name, "6.1.6").await?;
            }
        }
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        for name in &names {
            let replaced = place.until(name, "the status is that of Sluice", |p| {
                let status = p.status.clone().unwrap_or_default();
                let named = status.environments.values().flat_map(|e| &e.targets).all(|t| !t.name.is_empty());
                let old = status.conditions.iter().any(|c| c.message == "All clusters checked");
                named && !old && revision(p, "dev") == "6.1.6" && revision(p, "prod") == "6.1.6"
            });
            replaced.await.with_context(|| controller.tail())?;
            releases::runs(place.leaf("dev"), n, name, "6.1.8", true).await?;
        }
        for name in &names {
            place
                .until_promotions(name, "prod", &["6.1.8 Delivered"])
                .await
                .with_context(|| controller.tail())?;
            releases::runs(place.leaf("prod"), n, name, "6.1.8", true).await?;
        }
        for name in &names {
            place.until_promotions(name, "prod", &["6.1.8 Succeeded"]).await?;
        }
        Ok(())
    })
}

/// Returns the definition of Pipelines without its rules, as it was when the Pipeline of a test was stored.
fn lenient_definition() -> CustomResourceDefinition {
    let mut definition = Pipeline::crd();
    let any = JSONSchemaProps {
        type_: Some("object".into()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    definition.spec.versions[0].schema = Some(CustomResourceValidation { open_api_v3_schema: Some(any) });
    definition
}

#[test]
fn a_stored_pipeline_with_an_empty_strategy_gets_a_condition() -> Result<()> {
    run(async {
        // An own cluster: others need the rules.
        let plane = ControlPlane::start().await?;
        let hub = plane.cluster("stored-before").await?;
        hub.install_flux_crds().await?;
        hub.namespace("apps").await?;
        let client = hub.client().await?;
        install_crds(&client, vec![lenient_definition()]).await?;
        let target = json!([{"namespace": "apps"}]);
        let object = |name: &str| {
            serde_json::from_value::<DynamicObject>(json!({
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": name},
                "spec": {
                    "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app"},
                    "environments": [{"name": "dev", "targets": target}, {"name": "prod", "targets": target}],
                    "promotion": {"strategy": {}},
                },
            }))
        };
        let kind = ApiResource::erase::<Pipeline>(&());
        let stored: Api<DynamicObject> = Api::namespaced_with(client.clone(), "apps", &kind);
        stored.create(&PostParams::default(), &object("app")?).await?;
        hub.install_sluice_crds().await?;
        eventually(SOON, || async {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let created = stored.create(&dry, &object("new")?).await;
            ensure!(created.is_err(), "the rules of today do not count yet");
            Ok(())
        })
        .await?;
        releases::create(&hub, "apps", "app", json!({})).await?;
        releases::runs(&hub, "apps", "app", "1.0.0", true).await?;

        let controller = Controller::start(&hub, "apps", &[])?;
        let pipelines: Api<Pipeline> = Api::namespaced(client, "apps");
        eventually(SOON, || async {
            let status = pipelines.get("app").await?.status.context("no status yet")?;
            for (type_, value) in [("Stalled", "True"), ("Ready", "False")] {
                let found = status.conditions.iter().find(|c| c.type_ == type_);
                let found = found.with_context(|| format!("no {type_}: {status:?}"))?;
                ensure!(
                    (found.status.as_str(), found.reason.as_str()) == (value, "StrategyRefused"),
                    "{found:?}"
                );
                ensure!(found.message.contains("promotion.strategy is empty: write one of"), "{found:?}");
            }
            ensure!(status.environments["dev"].revision.as_deref() == Some("1.0.0"), "{status:?}");
            Ok(())
        })
        .await
        .with_context(|| controller.tail())
    })
}
