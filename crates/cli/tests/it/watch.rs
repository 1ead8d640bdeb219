//! `sluice get -w`: changed rows in a pipe, and a table that is updated in place.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use sluice_cli::{Exit, Size};
use sluice_testkit::fault_injection::TcpProxy;
use sluice_testkit::{WAIT_TIMEOUT, eventually};

use crate::hub::{CapturedOutput, Ran, place, servers, sluice_as, sluice_in_terminal, sluice_into};

#[tokio::test]
async fn only_changed_rows_are_printed() -> Result<()> {
    let place = place("watch").await?;
    place.promotion("a", "dev", json!({"phase": "Succeeded"})).await?;
    place.promotion("b", "prod", json!({"phase": "Pending"})).await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["get", "promotions", "-n", "watch", "-w"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        let api = place.promotions();
        let status = |status| Patch::Merge(json!({"status": status}));
        out.lines(3).await?;
        api.patch_status("b", &PatchParams::default(), &status(json!({"phase": "Proposed"}))).await?;
        out.lines(4).await?;
        // A field that is not in the table changes no row.
        api.patch_status("b", &PatchParams::default(), &status(json!({"message": "waits for the merge"})))
            .await?;
        api.delete("a", &DeleteParams::default()).await?;
        err.lines(1).await
    };
    tokio::select! {
        exit = watching => panic!("ended on its own: {exit:?}"),
        changed = changing => changed?,
    }
    let ran = Ran { exit: Exit::Ok, out: out.text(), err: err.text() };
    insta::assert_snapshot!(ran.steady(), @"
    NAME PIPELINE ENVIRONMENT REVISION PHASE AGE
    a podinfo dev 6.1.8 Succeeded AGE
    b podinfo prod 6.1.8 Pending AGE
    b podinfo prod 6.1.8 Proposed AGE
    ");
    assert_eq!(ran.err, "► watch/a was deleted\n");
    Ok(())
}

#[tokio::test]
async fn a_permission_that_was_withdrawn_ends_the_watch() -> Result<()> {
    let mut place = place("watch-refused").await?;
    place.promotion("a", "dev", json!({"phase": "Succeeded"})).await?;
    let (hub, name) = (&servers().await?.hub, "watch-refused");
    let rule = json!({"apiGroups": ["pipelines.weave.works"], "resources": ["promotions"], "verbs": ["list", "watch"]});
    let api_group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": format!("{api_group}/v1"), "kind": "Role", "metadata": {"name": name, "namespace": name},
            "rules": [rule]}),
        json!({"apiVersion": format!("{api_group}/v1"), "kind": "RoleBinding", "metadata": {"name": name, "namespace": name},
            "roleRef": {"apiGroup": api_group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": api_group, "kind": "User", "name": name}]}),
    ] {
        hub.apply_yaml(&object.to_string()).await?;
    }
    let (proxy, _folder) = place.through_proxy().await?;
    let through = format!("https://127.0.0.1:{}", proxy.port());
    std::fs::write(&place.kubeconfig, hub.user(name, None)?.replace(&hub.url(), &through))?;
    let arguments = ["get", "promotions", "-n", name, "-w"];
    // The API server reads new permissions by a watch, a moment later.
    eventually(WAIT_TIMEOUT, || async {
        let ran = sluice_as(&place.kubeconfig, &arguments[..4]).await;
        anyhow::ensure!(ran.exit == Exit::Ok, "{ran:?}");
        Ok(())
    })
    .await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let withdrawing = async {
        out.lines(2).await?;
        let bindings: Api<RoleBinding> = Api::namespaced(place.client.clone(), name);
        bindings.delete(name, &DeleteParams::default()).await?;
        eventually(WAIT_TIMEOUT, || async {
            let ran = sluice_as(&place.kubeconfig, &arguments[..4]).await;
            anyhow::ensure!(ran.exit == Exit::Cluster, "{ran:?}");
            Ok(())
        })
        .await?;
        proxy.disconnect();
        Ok::<(), anyhow::Error>(())
    };
    let both = async { tokio::join!(watching, withdrawing) };
    let (exit, withdrawn) = tokio::time::timeout(WAIT_TIMEOUT, both).await?;
    withdrawn?;
    assert_eq!(exit, Exit::Cluster, "{}", err.text());
    assert!(err.text().contains("✗ not allowed: "), "{}", err.text());
    Ok(())
}

/// Returns the rows of a terminal after this text. It handles what a screen that is updated in place writes, if
/// no line is longer than the terminal is wide.
pub fn rows_after(text: &str) -> Vec<String> {
    let (mut rows, mut row) = (vec![String::new()], 0);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\u{1b}[") {
            let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_default();
            let n: usize = sequence[..end].parse().unwrap_or(1);
            match &sequence[end..=end] {
                "A" => row -= n,
                "B" => row += n,
                "K" => rows[row].clear(),
                "J" => rows.truncate(row),
                other => panic!("{other}"),
            }
            rest = &sequence[end + 1..];
        } else {
            rest = &rest[c.len_utf8()..];
            match c {
                '\n' => row += 1,
                c => rows[row].push(c),
            }
        }
        rows.resize(rows.len().max(row + 1), String::new());
    }
    rows.truncate(row);
    rows
}

/// Closes the connections of a screen until its last row is a note, and waits until the note is gone. Nothing changes in
/// the cluster.
pub async fn note_comes_and_goes(proxy: &TcpProxy, out: &CapturedOutput) -> Result<()> {
    let has_note = || rows_after(&out.text()).iter().any(|row| row.contains("trying again"));
    let before = rows_after(&out.text());
    let interrupted = async {
        while !has_note() {
            proxy.disconnect();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, interrupted).await?;
    eventually(WAIT_TIMEOUT, || async {
        let rows = rows_after(&out.text());
        anyhow::ensure!(rows.len() == before.len() && !has_note(), "{rows:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_note_about_an_interruption_goes_when_the_watch_continues() -> Result<()> {
    let mut place = place("watch-note").await?;
    place.promotion("a", "dev", json!({"phase": "Succeeded"})).await?;
    let (proxy, _folder) = place.through_proxy().await?;
    let arguments = ["get", "promotions", "-n", "watch-note", "-w"];
    let size = Size { width: 80, height: 20 };
    sluice_in_terminal((&place.kubeconfig, size), &arguments, async |out| {
        out.lines(2).await?;
        note_comes_and_goes(&proxy, out).await
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_table_in_a_terminal_is_updated_in_place() -> Result<()> {
    let place = place("watch-screen").await?;
    for name in ["a", "b", "c", "d", "e"] {
        place.promotion(name, "dev", json!({"phase": "Succeeded"})).await?;
    }
    let arguments = ["get", "promotions", "-n", "watch-screen", "-w"];
    let size = Size { width: 80, height: 6 };
    let shows = async |out: &CapturedOutput, expected: [&str; 5]| {
        eventually(WAIT_TIMEOUT, || async {
            let rows = rows_after(&out.text());
            let words = |n: usize| -> Vec<&str> { rows[n].split_whitespace().collect() };
            anyhow::ensure!(rows.len() <= 5, "{rows:?}");
            for (n, expected) in (0..rows.len()).zip(expected) {
                let shown = words(n);
                let is_same = expected.split(' ').all(|word| shown.contains(&word));
                anyhow::ensure!(is_same, "{expected}: {rows:?}");
            }
            Ok(())
        })
        .await
    };
    let err = sluice_in_terminal((&place.kubeconfig, size), &arguments, async |out| {
        let api = place.promotions();
        let phase = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
        out.lines(5).await?;
        shows(out, ["NAME PHASE", "a Succeeded", "b Succeeded", "c Succeeded", "… 2 more rows:"]).await?;
        let first = out.text();
        assert!(!first.contains('\u{1b}'), "{first}");
        api.patch_status("b", &PatchParams::default(), &phase("Proposed")).await?;
        shows(out, ["NAME PHASE", "a Succeeded", "b Proposed", "c Succeeded", "… 2 more rows:"]).await?;
        // The names of the columns and the other rows are not written again, except for ages.
        let update = &out.text()[first.len()..];
        assert!(!update.contains("NAME"), "{update:?}");
        // What changed last stays visible.
        api.patch_status("e", &PatchParams::default(), &phase("Proposed")).await?;
        shows(out, ["NAME PHASE", "a Succeeded", "b Proposed", "e Proposed", "… 2 more rows:"]).await?;
        api.delete("a", &DeleteParams::default()).await?;
        api.delete("b", &DeleteParams::default()).await?;
        shows(out, ["NAME PHASE", "c Succeeded", "d Succeeded", "e Proposed", ""]).await?;
        Ok(())
    })
    .await?;
    assert_eq!(err, "", "it would move the cursor");
    Ok(())
}
