//! `sluice status -w`: changed lines in a pipe, and a screen that is updated in place.

use anyhow::Result;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_cli::{Exit, Size};
use sluice_testkit::{WAIT_TIMEOUT, eventually};

use crate::hub::{CapturedOutput, Ran, TestNamespace, place, running, sluice_in_terminal, sluice_into};
use crate::watch::note_comes_and_goes;

/// Creates podinfo, whose promotion `p` into prod waits for an approval, and a promotion of another pipeline.
async fn waiting(name: &str) -> Result<TestNamespace> {
    let place = place(name).await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.5")).await?;
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    place.promotion("p", "prod", json!({"phase": "Pending", "gates": [gate]})).await?;
    Ok(place)
}

/// Writes the status of the promotion.
async fn report(place: &TestNamespace, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    place.promotions().patch_status("p", &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test]
async fn changed_environments_are_lines_in_a_pipe() -> Result<()> {
    let place = waiting("live-pipe").await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["status", "podinfo", "-n", &place.namespace, "-w"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        out.lines(3).await?;
        report(&place, json!({"phase": "Delivered", "gates": []})).await?;
        out.lines(4).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
        report(&place, json!({"phase": "Succeeded"})).await?;
        out.lines(5).await?;
        pipelines.delete("podinfo", &DeleteParams::default()).await?;
        Ok::<(), anyhow::Error>(())
    };
    let (exit, changed) = tokio::join!(watching, changing);
    changed?;
    let ran = Ran { exit, out: out.text(), err: err.text() };
    insta::assert_snapshot!(ran.steady(), @"
    ENVIRONMENT RUNS HEALTH SINCE INCOMING STATE WHY
    dev 6.1.8 Ready AGE - only observed dev is a first environment: people, CI or Flux change it, and Sluice only observes it.
    prod 6.1.5 Ready AGE 6.1.8 Pending needs a person 6.1.8 waits for approval
    prod 6.1.5 Ready AGE 6.1.8 Delivered moving 6.1.8 is delivered, and prod does not run it yet.
    prod 6.1.5 Ready AGE - only observed, differs prod runs 6.1.5, dev 6.1.8; Sluice only observes this pipeline.
    ");
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::NotFound, "✗ pipeline podinfo was deleted\n"));
    Ok(())
}

#[tokio::test]
async fn a_terminal_is_updated_in_place() -> Result<()> {
    let place = waiting("live-screen").await?;
    let arguments = ["status", "podinfo", "-n", &place.namespace, "-w"];
    let size = Size { width: 60, height: 20 };
    sluice_in_terminal((&place.kubeconfig, size), &arguments, async |out| {
        out.lines(8).await?;
        let first = out.text();
        assert!(first.contains("sluice approve p -n live-screen") && !first.contains('\u{1b}'), "{first}");
        report(&place, json!({"phase": "Delivered", "gates": []})).await?;
        eventually(WAIT_TIMEOUT, || async {
            anyhow::ensure!(out.text().contains("moving"), "{}", out.text());
            Ok(())
        })
        .await?;
        // The title and the line above the cause are not written again.
        let update = out.text()[first.len()..].to_owned();
        assert!(update.contains("\u{1b}[") && update.contains("prod"), "{update:?}");
        assert!(!update.contains("live-screen/podinfo"), "{update:?}");
        assert!(update.contains("\n\u{1b}[1B\u{1b}[2Kprod: 6.1.5"), "{update:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn documents_are_printed_as_they_change_and_a_missing_pipeline_is_named() -> Result<()> {
    let place = waiting("live-json").await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["status", "podinfo", "-n", &place.namespace, "-w", "-o", "json"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let documents = || {
        let text = out.text();
        let all: Vec<Value> =
            serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).collect();
        all
    };
    let changing = async {
        out.lines(10).await?;
        report(&place, json!({"phase": "Delivered", "gates": []})).await?;
        eventually(WAIT_TIMEOUT, || async {
            anyhow::ensure!(documents().len() == 2, "{}", out.text());
            Ok(())
        })
        .await
    };
    tokio::select! {
        exit = watching => panic!("ended on its own: {exit:?}"),
        changed = changing => changed?,
    }
    let situations: Vec<Value> =
        documents().iter().map(|document| document["view"]["environments"][1]["situation"].clone()).collect();
    assert_eq!(situations, ["Blocked", "Moving"]);

    let ran = place.sluice(&["status", "podinf", "-w"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    assert!(
        ran.err.contains("there is no pipeline podinf in namespace live-json; did you mean podinfo?"),
        "{ran:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_lost_connection_is_noted_and_the_view_continues() -> Result<()> {
    let mut place = waiting("live-cut").await?;
    let (proxy, _folder) = place.through_proxy().await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["status", "podinfo", "-n", &place.namespace, "-w"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        out.lines(3).await?;
        proxy.disconnect();
        report(&place, json!({"phase": "Delivered", "gates": []})).await?;
        out.lines(4).await
    };
    tokio::select! {
        exit = watching => panic!("ended on its own: {exit:?} {}", err.text()),
        changed = changing => changed?,
    }
    assert!(out.text().contains("moving"), "{}", out.text());
    Ok(())
}

#[tokio::test]
async fn the_note_about_an_interruption_goes_when_the_watches_continue() -> Result<()> {
    let mut place = waiting("live-note").await?;
    let (proxy, _folder) = place.through_proxy().await?;
    let arguments = ["status", "podinfo", "-n", &place.namespace, "-w"];
    let size = Size { width: 200, height: 20 };
    sluice_in_terminal((&place.kubeconfig, size), &arguments, async |out| {
        out.lines(8).await?;
        note_comes_and_goes(&proxy, out).await
    })
    .await?;
    Ok(())
}
