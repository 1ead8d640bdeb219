//! What commands print with `-o json` is as `docs/reference/json-schema.json` describes it.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_cli::json_schema;
use sluice_testkit::json_schema::differences;

use crate::hub::{TestNamespace, bare, place, running};
use crate::validate::checkout;

/// Creates a pipeline whose data has as many different fields as possible.
async fn fleet() -> Result<TestNamespace> {
    let place = place("documents").await?;
    let mut status = running("6.1.8", "6.1.5");
    status["environments"]["prod"]["targets"][0]["workloads"] = json!([
        {"kind": "HelmRelease", "name": "podinfo", "version": "6.1.5", "health": "Failed", "message": "timed out"},
        {"kind": "Deployment", "name": "podinfo", "version": "6.1.5", "health": "Ready", "images": ["podinfo:6.1.5"]},
    ]);
    status["environments"]["dev"]["targets"][0]["error"] = "cannot be read".into();
    place.pipeline("podinfo", status).await?;
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval", "until": "2026-11-21T08:00:00Z"});
    let request = json!({"number": 7, "url": "https://git.example.com/7", "state": "open", "branch": "b", "headCommit": "1eabc9a4"});
    let waiting = json!({"phase": "Pending", "gates": [gate], "changeRequest": request});
    place.promotion("podinfo-prod-2", "prod", waiting).await?;
    let done = json!({"phase": "Succeeded", "commit": "1eabc9a4d5e6f708"});
    place.promotion("podinfo-prod-1", "prod", done).await?;
    Ok(place)
}

/// Checks data against the description of its kind.
fn is_described(kind: &str, data: &Value) -> Result<()> {
    let schema = json_schema();
    let documents = schema["oneOf"].as_array().into_iter().flatten();
    let described = documents.filter(|document| document["title"] == kind).collect::<Vec<_>>();
    ensure!(described.len() == 1 && data["kind"] == kind, "{kind}: {described:?}: {data}");
    let mut found = Vec::new();
    differences(&schema, described[0], data, kind, &mut found);
    ensure!(found.is_empty(), "{kind}: {found:#?}\n{data}");
    Ok(())
}

/// With values that can be set, and others that cannot, and with a Pipeline that is not valid.
#[tokio::test]
async fn the_data_of_commands_without_a_cluster_is_described() -> Result<()> {
    let folder = checkout()?;
    let invalid = folder.path().join("invalid.yaml");
    std::fs::write(
        &invalid,
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {name: a}\nspec: {}\n",
    )?;
    let [checkout, invalid] = [folder.path(), &invalid].map(|path| path.to_string_lossy().into_owned());
    let pipelines = format!("{checkout}/pipelines");
    for (kind, command, has) in [
        ("Version", &["version"][..], "sluice"),
        ("Validation", &["validate", "-f", &pipelines, "--checkout", &checkout], "values"),
        ("Validation", &["validate", "-f", &invalid], "errors"),
    ] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        bare(&[command, &["-o", "json"]].concat(), &mut out, &mut err).await;
        let data: Value = serde_json::from_slice(&out)?;
        ensure!(data.to_string().contains(&format!("\"{has}\":")), "{data}");
        is_described(kind, &data)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_data_of_every_command_is_described() -> Result<()> {
    let place = fleet().await?;
    place.event("podinfo", "ClusterLost").await?;
    let commands: [(&str, &[&str]); 13] = [
        ("Charts", &["charts"]),
        ("Check", &["check"]),
        ("Clusters", &["clusters"]),
        ("Events", &["events", "podinfo"]),
        ("Events", &["events", "-A"]),
        ("Explanations", &["explain", "podinfo"]),
        ("History", &["history", "podinfo"]),
        ("Images", &["images"]),
        ("List", &["get", "targets", "podinfo"]),
        ("PipelineStatus", &["status", "podinfo"]),
        ("Story", &["explain", "podinfo-prod-2"]),
        ("Tree", &["tree", "podinfo"]),
        ("Triggers", &["triggers", "podinfo"]),
    ];
    for (kind, command) in commands {
        let ran = place.sluice(&[command, &["-o", "json"]].concat()).await;
        let data: Value = serde_json::from_str(&ran.out)?;
        ensure!(data["kind"] == kind, "{command:?}: {data}");
        let is_empty = |part: &str| data[part].as_array().is_some_and(Vec::is_empty);
        ensure!(!is_empty("view") && !is_empty("items"), "{command:?}: {data}");
        is_described(kind, &data)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_targets_of_one_pipeline_are_a_list_also_if_there_is_one_target() -> Result<()> {
    let place = place("one-target").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.5")).await?;
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let one = json!({"spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
    pipelines.patch("podinfo", &PatchParams::default(), &Patch::Merge(one)).await?;
    let status = json!({"status": {"environments": null}});
    pipelines.patch_status("podinfo", &PatchParams::default(), &Patch::Merge(status)).await?;
    let ran = place.sluice(&["get", "targets", "podinfo", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    ensure!(data["kind"] == "List" && data["items"][0]["environment"] == "dev", "{data}");
    ensure!(data["items"][1].is_null(), "{data}");
    Ok(())
}
