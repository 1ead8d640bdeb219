//! A status whose fields another manager owns, too: somebody who may only edit the object has written its `managedFields`.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::promotion::PromotionStatus;
use sluice_controller::pipeline_key::PipelineKey;
use sluice_controller::state::status_queue::{Basis, StatusOwner, WriteOutcome, serialize_status};
use sluice_delivery::FencingToken;

use crate::writer::Writer;
use crate::{hub, promotion};

/// An entry of `managedFields` that owns fields of the status, with these values in addition.
fn entry(more: Value) -> Value {
    let fields = json!({"f:status": {"f:commit": {}, "f:times": {".": {}, "f:Delivered": {}}}});
    let mut entry = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "fieldsType": "FieldsV1",
        "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"});
    if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
        entry.extend(more);
    }
    entry
}

#[tokio::test]
async fn a_field_that_an_editor_owns_too_leaves_a_status_with_its_next_write() -> Result<()> {
    let (_cluster, client) = hub("shared").await?;
    for (name, added) in [
        ("other-manager", json!([entry(json!({"manager": "eve", "operation": "Update"}))])),
        ("same-manager", json!([entry(json!({"manager": "sluice", "operation": "Apply"}))])),
        (
            "no-owner",
            json!([entry(json!({"manager": "eve", "operation": "Update", "fieldsV1": {"f:spec": {}}}))]),
        ),
        ("no-entry", json!([{}])),
    ] {
        let api = promotion(&client, name).await?;
        let uid = api.get(name).await?.uid();
        let key = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
        let owner = StatusOwner::Promotion(key, name.into());
        let mut writer = Writer::new(client.clone());
        let delivered: PromotionStatus = serde_json::from_value(json!({
            "phase": "Delivered", "commit": "c0ffee", "times": {"Delivered": "2026-01-01T00:00:00Z"}}))?;
        let basis = Basis { uid: uid.clone(), ..Basis::default() };
        let outcome =
            writer.write(&owner, serialize_status(&delivered)?, basis, FencingToken::default()).await?;
        ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{name}: {outcome:?}");
        let callback =
            json!({"status": {"callback": {"round": 0, "state": "failed", "at": "2026-01-01T00:00:00Z"}}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&callback)).await?;
        let called = api.get(name).await?.status.and_then(|status| status.callback);
        ensure!(called.is_some(), "{name}: no field of a hook call");

        // Other entries stay, except those of the last two.
        let mut entries = serde_json::to_value(api.get(name).await?.metadata.managed_fields)?;
        match (entries.as_array_mut(), added.as_array()) {
            (Some(entries), Some(added)) if name.ends_with("manager") => entries.extend(added.clone()),
            _ => entries = added,
        }
        let edit = json!({"metadata": {"managedFields": entries}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&edit)).await?;

        // A retry: what the earlier try has reached does not count any more.
        let retried: PromotionStatus = serde_json::from_value(json!({"phase": "Promoting", "retries": 1}))?;
        let basis = Basis { status: Some(serialize_status(&delivered)?), uid, ..Basis::default() };
        let outcome =
            writer.write(&owner, serialize_status(&retried)?, basis, FencingToken::default()).await?;
        let WriteOutcome::Stored(stored) = outcome else { anyhow::bail!("{name}: {outcome:?}") };
        let now = api.get(name).await?;
        ensure!(now.resource_version() == Some(stored.version.to_string()), "{name}: {stored:?}");
        let mut status = now.status.context("a status")?;
        ensure!(status.callback.take() == called, "{name}: the field of a hook call: {status:?}");
        ensure!(status == retried, "{name}: {status:?}");
    }
    Ok(())
}
