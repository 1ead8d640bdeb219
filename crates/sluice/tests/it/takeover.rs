//! Pipelines that the predecessor has looked after, with the statuses that it wrote.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::place::{TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// How many pipelines the installation has.
const PIPELINES: usize = 5;

/// Returns a pipeline as the predecessor knows it, and its status: in the form that was captured, for this application.
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
                releases::create(place.leaf(environment), n, name, json!({})).await?;
                releases::runs(place.leaf(environment), n, name, "6.1.6", true).await?;
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
