//! Statuses that are written late, against a real API server: over what people have edited they are
//! written, over what another replica has written they are not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use sluice_api::promotion::{Phase, Promotion, PromotionStatus};
use sluice_controller::intake::{Input, PipelineKey};
use sluice_controller::record::writer::{Basis, Found, StatusOf, Writer, Written, spell};
use sluice_delivery::{Permit, Term};
use sluice_testkit::ControlPlane;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

fn status(phase: Phase, message: &str) -> PromotionStatus {
    PromotionStatus { phase, message: message.into(), ..PromotionStatus::default() }
}

/// Writes a status, and waits until that has ended.
async fn write(
    writer: &mut Writer,
    ended: &mut UnboundedReceiver<Input>,
    (version, stood): (u64, &PromotionStatus),
    status: &PromotionStatus,
    permit: Permit,
) -> Result<Written> {
    let pipeline = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    let object = StatusOf::Promotion(pipeline, "podinfo-1".into());
    let basis = Basis { version, stood: Some(spell(stood)?), uid: None };
    writer.write(object.clone(), spell(status)?, basis, permit);
    match ended.recv().await.context("it ended")? {
        Input::Written(of, number, how) if of == object => {
            ensure!(writer.ended(&object, number, &how));
            Ok(how)
        }
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn the_end_of_a_write_that_was_forgotten_ends_no_other() -> Result<()> {
    // Nobody listens there.
    let mut config = Config::new("http://127.0.0.1:9".parse()?);
    config.default_retry = false;
    let (tell, mut ended) = unbounded_channel();
    let mut writer = Writer::new(Client::try_from(config)?, tell);
    let pipeline = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    let object = StatusOf::Promotion(pipeline, "podinfo-1".into());
    // A shard is lost while a status of it is written, and comes back.
    let over = Permit::within(Term::until(Duration::ZERO));
    writer.write(object.clone(), spell(&status(Phase::Promoting, "then"))?, Basis::default(), over);
    writer.forget(&object);
    let now = spell(&status(Phase::Promoting, "now"))?;
    writer.write(object.clone(), now, Basis::default(), Permit::default());
    let mut counted = Vec::new();
    for _ in 0..2 {
        let Input::Written(_, number, how) = ended.recv().await.context("it ended")? else {
            anyhow::bail!("something else ended")
        };
        counted.push((matches!(how, Written::Withheld), writer.ended(&object, number, &how)));
        ensure!(writer.is_writing(&object), "{how:?} has ended what is written now");
    }
    counted.sort_unstable();
    ensure!(counted == [(false, true), (true, false)], "{counted:?}");
    Ok(())
}

async fn promotion(client: &Client) -> Result<Api<Promotion>> {
    let api: Api<Promotion> = Api::namespaced(client.clone(), "default");
    let object: Promotion = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "podinfo-1"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1.1.0", "facets": {"chart": "1.1.0"}, "sequence": 1}
    }))?;
    api.create(&PostParams::default(), &object).await?;
    Ok(api)
}

#[tokio::test]
async fn a_late_status_is_written_over_an_edit_and_not_over_anothers() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let cluster = plane.cluster("late").await?;
    cluster.install_sluice_crds().await?;
    let client = cluster.client().await?;
    let api = promotion(&client).await?;
    let (tell, mut ended) = unbounded_channel();
    let (mut one, mut two) = (Writer::new(client.clone(), tell.clone()), Writer::new(client, tell));
    let begun = status(Phase::Promoting, "begun");
    let made: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;

    // A person approves in between: what the status was composed for stands as it did.
    let approved = json!({"spec": {"approval": {"by": "admin", "revision": "1.1.0"}}});
    api.patch("podinfo-1", &PatchParams::default(), &Patch::Merge(&approved)).await?;
    let none = PromotionStatus::default();
    let how = write(&mut one, &mut ended, (made, &none), &begun, Permit::default()).await?;
    let Written::Stands(first) = how else { anyhow::bail!("{how:?}") };
    ensure!(first > made && api.get("podinfo-1").await?.spec.approval.is_some());

    // Another replica takes over and goes on; the write of the first one comes late.
    let proposed = status(Phase::Proposed, "by the second");
    let how = write(&mut two, &mut ended, (first, &begun), &proposed, Permit::default()).await?;
    ensure!(matches!(how, Written::Stands(_)), "{how:?}");
    let failed = status(Phase::Failed, "by the first");
    let how = write(&mut one, &mut ended, (first, &begun), &failed, Permit::default()).await?;
    let Written::Overtaken(found) = how else { anyhow::bail!("{how:?}") };
    let Found::Promotion(found) = *found else { anyhow::bail!("{found:?}") };
    ensure!(found.status.as_ref() == Some(&proposed), "{found:?}");
    ensure!(api.get("podinfo-1").await?.status == Some(proposed.clone()));

    // An answer that was lost: it stands already, and is no other's.
    let how = write(&mut two, &mut ended, (first, &begun), &proposed, Permit::default()).await?;
    ensure!(matches!(how, Written::Stands(_)), "{how:?}");

    // Whose term is over writes nothing.
    let over = Permit::within(Term::until(sluice_delivery::since_boot()));
    let version: u64 = api.get("podinfo-1").await?.resource_version().context("a version")?.parse()?;
    let how = write(&mut two, &mut ended, (version, &proposed), &failed, over).await?;
    ensure!(matches!(how, Written::Withheld), "{how:?}");
    Ok(())
}

#[tokio::test]
async fn a_late_status_does_not_land_on_an_object_that_was_created_again() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let cluster = plane.cluster("again").await?;
    cluster.install_sluice_crds().await?;
    let client = cluster.client().await?;
    let api = promotion(&client).await?;
    let old = api.get("podinfo-1").await?;
    api.delete("podinfo-1", &DeleteParams::default()).await?;
    let api = promotion(&client).await?;
    let new = api.get("podinfo-1").await?;
    ensure!(old.uid() != new.uid());
    let (tell, mut ended) = unbounded_channel();
    let mut writer = Writer::new(client, tell);
    let pipeline = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    let object = StatusOf::Promotion(pipeline, "podinfo-1".into());
    // Whether or not the version of the old one is known.
    for version in [0, old.resource_version().context("a version")?.parse()?] {
        let basis = Basis { version, stood: None, uid: old.uid() };
        let delivered = spell(&status(Phase::Delivered, "of the old one"))?;
        writer.write(object.clone(), delivered, basis, Permit::default());
        let Some(Input::Written(_, number, how)) = ended.recv().await else { anyhow::bail!("it ended") };
        ensure!(matches!(how, Written::Gone), "at version {version}: {how:?}");
        ensure!(writer.ended(&object, number, &how) && !writer.is_writing(&object));
    }
    ensure!(api.get("podinfo-1").await?.status.is_none());
    // The new one is written as ever.
    let basis = Basis { version: 0, stood: None, uid: new.uid() };
    writer.write(
        object.clone(),
        spell(&status(Phase::Promoting, "of the new one"))?,
        basis,
        Permit::default(),
    );
    let Some(Input::Written(_, _, how)) = ended.recv().await else { anyhow::bail!("it ended") };
    ensure!(matches!(how, Written::Stands(_)), "{how:?}");
    Ok(())
}
