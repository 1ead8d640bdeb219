//! A stored status that the schema of today does not allow: another definition of Pipelines has let it in.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::{Pipeline, PipelineStatus};
use sluice_controller::pipeline_key::PipelineKey;
use sluice_controller::record::unwritten_status::UnwrittenStatus;
use sluice_controller::state::status_queue::{Basis, StatusOwner, WriteOutcome, serialize_status};
use sluice_delivery::FencingToken;
use sluice_testkit::{ControlPlane, WAIT_TIMEOUT, eventually, install_crds};

use crate::writer::Writer;

#[tokio::test]
async fn the_status_of_an_object_that_the_schema_does_not_allow_is_replaced() -> Result<()> {
    let cluster = ControlPlane::start().await?.cluster("untyped").await?;
    let client = cluster.client().await?;
    let mut lenient = sluice_api::all_crds();
    let anything =
        json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    for version in lenient.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        version.schema = serde_json::from_value(anything.clone())?;
    }
    install_crds(&client, lenient).await?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &ApiResource::erase::<Pipeline>(&()));
    let pipeline = |name: &str, environments: serde_json::Value| {
        serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": name}, "spec": {"environments": environments},
        }))
    };
    let environment = |namespace: &str| json!({"name": "dev", "targets": [{"namespace": namespace}]});
    let other_types = json!({"conditions": 5, "environments": "none", "more": [1]});
    let all = [
        ("other-types", json!([environment("dev")]), other_types),
        ("twice", json!([environment("dev"), environment("prod")]), json!({"conditions": []})),
    ];
    for (name, environments, status) in &all {
        api.create(&PostParams::default(), &pipeline(name, environments.clone())?).await?;
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({"status": status}))).await?;
    }
    cluster.install_sluice_crds().await?;
    eventually(WAIT_TIMEOUT, async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        ensure!(
            api.create(&dry_run, &pipeline("other", json!(7))?).await.is_err(),
            "not the schema of today"
        );
        Ok(())
    })
    .await?;
    for (name, _, _) in all {
        let key = PipelineKey { namespace: "default".into(), name: name.into() };
        let owner = StatusOwner::Pipeline(key);
        let status = serde_json::from_value(json!({"observedGeneration": 1}))?;
        let basis = Basis { uid: api.get(name).await?.uid(), ..Basis::default() };
        let mut writer = Writer::new(client.clone());
        let outcome =
            writer.write(&owner, serialize_status(&status)?, basis, FencingToken::default()).await?;
        ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{name}: {outcome:?}");
        let written = Api::<Pipeline>::namespaced(client.clone(), "default").get(name).await?.status;
        ensure!(written.context("a status")? == status, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_status_with_a_field_that_older_crds_do_not_have_names_the_command_that_updates_them() -> Result<()>
{
    let cluster = ControlPlane::start().await?.cluster("older").await?;
    let client = cluster.client().await?;
    let mut older = serde_json::to_value(sluice_api::all_crds())?;
    for crd in older.as_array_mut().context("a list")? {
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = schema["properties"]["status"]["properties"].as_object_mut().context("fields")?;
        fields.remove("observedGeneration");
    }
    install_crds(&client, serde_json::from_value(older)?).await?;
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "default");
    let pipeline = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "one"},
        "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}]},
    });
    api.create(&PostParams::default(), &serde_json::from_value(pipeline)?).await?;
    let owner = StatusOwner::Pipeline(PipelineKey { namespace: "default".into(), name: "one".into() });
    let status: PipelineStatus = serde_json::from_value(json!({"observedGeneration": 1}))?;
    let basis = Basis { uid: api.get("one").await?.uid(), ..Basis::default() };
    let mut writer = Writer::new(client.clone());
    let outcome = writer.write(&owner, serialize_status(&status)?, basis, FencingToken::default()).await?;
    let WriteOutcome::Failed(error) = outcome else { anyhow::bail!("not failed: {outcome:?}") };
    let event = UnwrittenStatus::of(&error).context("no event")?;
    ensure!(event.reason == "CrdsOutdated", "{event:?}");
    for part in ["observedGeneration", "sluice crds | kubectl apply"] {
        ensure!(event.note.contains(part), "{event:?}");
    }
    Ok(())
}
