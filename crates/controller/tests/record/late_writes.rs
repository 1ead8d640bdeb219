//! Status writes that arrive late, against a real API server: they are stored after an edit of the spec, and
//! rejected after a status of another replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use sluice_api::pipeline::PipelineStatus;
use sluice_api::promotion::{GateStatus, Phase, PromotionStatus};
use sluice_api::{Pipeline, Promotion};
use sluice_controller::pipeline_key::PipelineKey;
use sluice_controller::state::status_queue::{
    Basis, StatusOwner, StoredObject, WriteOutcome, serialize_status,
};
use sluice_delivery::{FencingToken, LeaseTerm};
use tower::{ServiceExt, service_fn};

use crate::writer::Writer;
use crate::{hub, promotion};

fn status(phase: Phase, message: &str) -> PromotionStatus {
    PromotionStatus { phase, message: message.into(), ..PromotionStatus::default() }
}

fn owner() -> StatusOwner {
    let pipeline = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    StatusOwner::Promotion(pipeline, "podinfo-1".into())
}

/// The object at a version, with this status.
fn basis(version: u64, status: &PromotionStatus) -> Result<Basis> {
    Ok(Basis { version, status: Some(serialize_status(status)?), uid: None })
}

#[tokio::test]
async fn the_end_of_a_forgotten_write_does_not_count_for_a_newer_one() -> Result<()> {
    // No server listens there.
    let mut config = Config::new("http://127.0.0.1:9".parse()?);
    config.default_retry = false;
    let mut writer = Writer::new(Client::try_from(config)?);
    // A shard is lost while one of its statuses is written, and is gained again.
    let ended = FencingToken::within(LeaseTerm::until(Duration::ZERO));
    let then = serialize_status(&status(Phase::Promoting, "then"))?;
    writer.push(&owner(), then, Basis::default(), ended);
    writer.queue.forget(&owner());
    let now = serialize_status(&status(Phase::Promoting, "now"))?;
    writer.push(&owner(), now, Basis::default(), FencingToken::default());
    let mut counted = Vec::new();
    for _ in 0..2 {
        let (outcome, counts) = writer.ended(&owner()).await?;
        counted.push((matches!(outcome, WriteOutcome::Withheld), counts));
        ensure!(writer.queue.is_writing(&owner()), "{outcome:?} has ended the newer write");
    }
    counted.sort_unstable();
    ensure!(counted == [(false, true), (true, false)], "{counted:?}");
    Ok(())
}

#[tokio::test]
async fn a_first_status_keeps_what_a_hook_call_has_stored_before_it() -> Result<()> {
    let (_cluster, client) = hub("first").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let version = async || {
        let version = api.get("podinfo-1").await?.resource_version().context("a version")?;
        anyhow::Ok(version.parse::<u64>()?)
    };
    let made = version().await?;
    let report = json!({"status": {"callback": {"round": 0, "state": "done", "at": "2026-01-01T00:00:00Z"}}});
    api.patch_status("podinfo-1", &PatchParams::default(), &Patch::Merge(&report)).await?;
    // The call came after the version that the status was composed for; or at that version no status could be read.
    for (basis, phase) in [(made, Phase::Promoting), (version().await?, Phase::Delivered)] {
        let write = serialize_status(&status(phase, "first"))?;
        let basis = Basis { version: basis, ..Basis::default() };
        let outcome =
            Writer::new(client.clone()).write(&owner(), write, basis, FencingToken::default()).await?;
        ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{phase:?}: {outcome:?}");
        let mut stored = api.get("podinfo-1").await?.status.context("a status")?;
        ensure!(stored.callback.take().is_some() && stored == status(phase, "first"), "{stored:?}");
        // As if this had been the first one.
        let none = json!({"status": {"phase": null, "message": null}});
        api.patch_status("podinfo-1", &PatchParams::default(), &Patch::Merge(&none)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_late_status_is_written_after_an_edit_and_not_after_another_status() -> Result<()> {
    let (_cluster, client) = hub("late").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let (mut one, mut two) = (Writer::new(client.clone()), Writer::new(client));
    let begun = status(Phase::Promoting, "begun");
    let made: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;

    // A person approves in between: the status does not change.
    let approved = json!({"spec": {"approval": {"by": "admin", "revision": "1.1.0"}}});
    api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&approved)).await?;
    let none = PromotionStatus::default();
    let outcome =
        one.write(&owner(), serialize_status(&begun)?, basis(made, &none)?, FencingToken::default()).await?;
    let WriteOutcome::Stored(stored) = outcome else { anyhow::bail!("{outcome:?}") };
    let first = stored.version;
    ensure!(stored.is_over_edit && first > made && api.get("podinfo-1").await?.spec.approval.is_some());

    // Another replica takes over and writes; the write of the first one arrives late.
    let proposed = status(Phase::Proposed, "by the second");
    let outcome = two
        .write(&owner(), serialize_status(&proposed)?, basis(first, &begun)?, FencingToken::default())
        .await?;
    ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{outcome:?}");
    let failed = status(Phase::Failed, "by the first");
    let outcome = one
        .write(&owner(), serialize_status(&failed)?, basis(first, &begun)?, FencingToken::default())
        .await?;
    let WriteOutcome::Conflict(found) = outcome else { anyhow::bail!("{outcome:?}") };
    let StoredObject::Promotion(found) = *found else { anyhow::bail!("{found:?}") };
    ensure!(found.status.as_ref() == Some(&proposed), "{found:?}");
    ensure!(api.get("podinfo-1").await?.status == Some(proposed.clone()));

    // The answer was lost: the stored status is this replica's own.
    let outcome = two
        .write(&owner(), serialize_status(&proposed)?, basis(first, &begun)?, FencingToken::default())
        .await?;
    ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{outcome:?}");

    // After the end of the term nothing is written.
    let ended = FencingToken::within(LeaseTerm::until(sluice_delivery::since_boot()));
    let version: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;
    let outcome = two.write(&owner(), serialize_status(&failed)?, basis(version, &proposed)?, ended).await?;
    ensure!(matches!(outcome, WriteOutcome::Withheld), "{outcome:?}");
    Ok(())
}

/// Returns a client that changes a label of the promotion before each write of a status, and before one of them the status.
fn client_that_edits_before_each_status(client: Client, other_status: Option<(u32, Phase)>) -> Client {
    let writes = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (client, writes) = (client.clone(), writes.clone());
        async move {
            if request.method() == Method::PATCH {
                let api: Api<Promotion> = Api::namespaced(client.clone(), "default");
                let write = writes.fetch_add(1, Ordering::Relaxed);
                let old = api.get("podinfo-1").await?.resource_version();
                let label = json!({"metadata": {"labels": {"edited-at": old}}});
                api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&label)).await?;
                if let Some((_, phase)) = other_status.filter(|(number, _)| *number == write) {
                    let other = json!({"status": {"phase": phase}});
                    api.patch_status("podinfo-1", &PatchParams::default(), &Patch::Merge(&other)).await?;
                }
            }
            Ok::<_, tower::BoxError>(client.send(request).await?)
        }
    });
    Client::new(service.boxed(), "default")
}

#[tokio::test]
async fn edits_of_labels_do_not_keep_a_status_from_being_stored() -> Result<()> {
    let (_cluster, client) = hub("labels").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let editing = client_that_edits_before_each_status(client, None);
    let made: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;
    // The API server compares what it has stored with what it has answered: also characters that it may write in two ways.
    let begun = status(Phase::Promoting, "<begun> & \"so\u{2028}on\" \u{1f600} \u{7f}/");
    let delivered = status(Phase::Delivered, "done");
    for (before, after) in [(None, &begun), (Some(&begun), &delivered)] {
        let before = before.map(serialize_status).transpose()?;
        let basis = Basis { version: made, status: before, ..Basis::default() };
        let written = serialize_status(after)?;
        let outcome =
            Writer::new(editing.clone()).write(&owner(), written, basis, FencingToken::default()).await?;
        let stored = api.get("podinfo-1").await?.status;
        ensure!(
            matches!(&outcome, WriteOutcome::Stored(stored) if stored.is_over_edit),
            "{outcome:?}: {stored:?}"
        );
        ensure!(stored.as_ref() == Some(after), "{stored:?}");
    }
    Ok(())
}

/// Returns a client that suspends the pipeline before each of the first writes of a status, and resumes it after them.
fn client_that_suspends_around_statuses(client: Client, first: u32) -> Client {
    let writes = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (client, writes) = (client.clone(), writes.clone());
        async move {
            let is_write = request.method() == Method::PATCH;
            if !is_write || writes.fetch_add(1, Ordering::Relaxed) >= first {
                return Ok::<_, tower::BoxError>(client.send(request).await?);
            }
            let api: Api<Pipeline> = Api::namespaced(client.clone(), "default");
            let set = async |suspend: bool| {
                let edit = json!({"spec": {"suspend": suspend}});
                api.patch("podinfo", &PatchParams::default(), &Patch::Merge(&edit)).await
            };
            set(true).await?;
            let answer = client.send(request).await?;
            set(false).await?;
            Ok(answer)
        }
    });
    Client::new(service.boxed(), "default")
}

#[tokio::test]
async fn a_spec_that_is_edited_back_after_each_write_does_not_keep_a_status_from_being_stored() -> Result<()>
{
    let (_cluster, client) = hub("back").await?;
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "default");
    let pipeline = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {"suspend": false, "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}]},
    });
    let made = api.create(&PostParams::default(), &serde_json::from_value(pipeline)?).await?;
    let key = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    let status: PipelineStatus = serde_json::from_value(json!({"observedGeneration": 1}))?;
    let basis = Basis { uid: made.uid(), ..Basis::default() };
    let mut writer = Writer::new(client_that_suspends_around_statuses(client, 5));
    let owner = StatusOwner::Pipeline(key);
    let outcome = writer.write(&owner, serialize_status(&status)?, basis, FencingToken::default()).await?;
    ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{outcome:?}");
    ensure!(api.get("podinfo").await?.status == Some(status));
    Ok(())
}

#[tokio::test]
async fn a_status_of_another_replica_is_kept_while_labels_are_edited() -> Result<()> {
    let (_cluster, client) = hub("labels-and-status").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let begun = serialize_status(&status(Phase::Promoting, "begun"))?;
    // The other replica writes before the first try, or between the reading after it and the next one.
    for number in [0, 1] {
        let none = json!({"status": null});
        let made = api.patch_status("podinfo-1", &PatchParams::default(), &Patch::Merge(&none)).await?;
        ensure!(made.status.is_none(), "{made:?}");
        let made = made.resource_version().context("a version")?.parse()?;
        let editing = client_that_edits_before_each_status(client.clone(), Some((number, Phase::Delivered)));
        let basis = Basis { version: made, ..Basis::default() };
        let outcome =
            Writer::new(editing).write(&owner(), begun.clone(), basis, FencingToken::default()).await?;
        ensure!(matches!(outcome, WriteOutcome::Conflict(_)), "{number}: {outcome:?}");
        let stored = api.get("podinfo-1").await?.status.context("a status")?;
        ensure!(stored.phase == Phase::Delivered, "{number}: {stored:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_late_status_does_not_land_on_an_object_that_was_created_again() -> Result<()> {
    let (_cluster, client) = hub("again").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let old = api.get("podinfo-1").await?;
    api.delete("podinfo-1", &DeleteParams::default()).await?;
    let api = promotion(&client, "podinfo-1").await?;
    let new = api.get("podinfo-1").await?;
    ensure!(old.uid() != new.uid());
    let mut writer = Writer::new(client);
    // With and without the version of the old object.
    for version in [0, old.resource_version().context("a version")?.parse()?] {
        let basis = Basis { version, status: None, uid: old.uid() };
        let delivered = serialize_status(&status(Phase::Delivered, "of the old one"))?;
        let outcome = writer.write(&owner(), delivered, basis, FencingToken::default()).await?;
        ensure!(matches!(outcome, WriteOutcome::Gone), "at version {version}: {outcome:?}");
        ensure!(!writer.queue.is_writing(&owner()));
    }
    ensure!(api.get("podinfo-1").await?.status.is_none());
    // The new object is written as usual.
    let basis = Basis { version: 0, status: None, uid: new.uid() };
    let promoting = serialize_status(&status(Phase::Promoting, "of the new one"))?;
    let outcome = writer.write(&owner(), promoting, basis, FencingToken::default()).await?;
    ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn the_next_try_is_not_stored_over_a_rejection_of_the_stored_one() -> Result<()> {
    let (_cluster, client) = hub("overruled").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let before = api.get("podinfo-1").await?;
    let rejected = json!({"spec": {"rejection": {"by": "admin", "revision": "1.1.0", "reason": "bad"}}});
    api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&rejected)).await?;
    let mut writer = Writer::new(client);
    let next = PromotionStatus { retries: 1, ..status(Phase::Pending, "another try") };
    // With and without the version from before the rejection.
    for version in [0, before.resource_version().context("a version")?.parse()?] {
        let basis = Basis { version, status: None, uid: before.uid() };
        let outcome =
            writer.write(&owner(), serialize_status(&next)?, basis, FencingToken::default()).await?;
        let WriteOutcome::Conflict(found) = outcome else { anyhow::bail!("at {version}: {outcome:?}") };
        let StoredObject::Promotion(found) = *found else { anyhow::bail!("{found:?}") };
        ensure!(found.spec.rejection.is_some() && found.status.is_none(), "{found:?}");
    }
    // The end of the rejected try is stored.
    let end = status(Phase::Rejected, "rejected by admin");
    let basis = Basis { version: 0, status: None, uid: before.uid() };
    let outcome = writer.write(&owner(), serialize_status(&end)?, basis, FencingToken::default()).await?;
    ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn the_success_of_a_delivery_is_stored_after_a_rejection_that_came_too_late() -> Result<()> {
    let (_cluster, client) = hub("too-late").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let made: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;
    let rejected = json!({"spec": {"rejection": {"by": "admin", "revision": "1.1.0", "reason": "no"}}});
    api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&rejected)).await?;
    let by_hand = status(Phase::Succeeded, "prod runs 1.1.0 and is healthy");
    let mut delivered = by_hand.clone();
    delivered.times.insert("Delivered".into(), "2026-01-01T00:00:00Z".parse()?);
    // It was not healthy in time, and was rejected then.
    let failed = PromotionStatus { phase: Phase::Failed, ..delivered.clone() };
    for (before, success, is_stored) in [
        (None, &by_hand, false),
        (Some(failed), &delivered, false),
        (Some(PromotionStatus::default()), &delivered, true),
    ] {
        if let Some(before) = &before {
            let times = match before.times.is_empty() {
                true => json!(null),
                false => json!(before.times),
            };
            let stored =
                json!({"status": {"phase": before.phase, "message": before.message, "times": times}});
            api.patch_status("podinfo-1", &PatchParams::default(), &Patch::Merge(&stored)).await?;
        }
        let basis = Basis {
            version: made,
            status: before.as_ref().map(serialize_status).transpose()?,
            ..Basis::default()
        };
        let write = serialize_status(success)?;
        let outcome =
            Writer::new(client.clone()).write(&owner(), write, basis, FencingToken::default()).await?;
        let is_as_expected = match &outcome {
            WriteOutcome::Stored(_) => is_stored,
            WriteOutcome::Conflict(_) => !is_stored,
            _ => false,
        };
        ensure!(is_as_expected, "{before:?} {success:?}: {outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_gate_is_not_stored_under_an_approval_that_was_given_without_it() -> Result<()> {
    let (_cluster, client) = hub("gate").await?;
    let api = promotion(&client, "podinfo-1").await?;
    let before = api.get("podinfo-1").await?;
    let approved = json!({"spec": {"approval": {"by": "admin", "revision": "1.1.0"}}});
    api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&approved)).await?;
    let mut writer = Writer::new(client);
    let made = before.resource_version().context("a version")?.parse()?;
    let gates = |name: &str| vec![GateStatus { name: name.into(), ..GateStatus::default() }];
    for (version, gate, is_stored) in
        [(made, "Downgrade", false), (0, "Downgrade", false), (made, "Approval", true)]
    {
        let waits = PromotionStatus { gates: gates(gate), ..status(Phase::Pending, "waits") };
        let basis = Basis { version, status: None, uid: before.uid() };
        let outcome =
            writer.write(&owner(), serialize_status(&waits)?, basis, FencingToken::default()).await?;
        let is_as_expected = match &outcome {
            WriteOutcome::Stored(stored) => is_stored && stored.is_over_edit,
            WriteOutcome::Conflict(_) => !is_stored,
            _ => false,
        };
        ensure!(is_as_expected, "{gate} at {version}: {outcome:?}");
    }
    Ok(())
}
