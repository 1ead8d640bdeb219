//! `--wait` of `sluice approve` and `sluice retry`.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_cli::Exit;

use crate::hub::{CapturedOutput, TestNamespace, place, running, sluice_into};

/// Creates podinfo, whose promotion `p` into prod waits for an approval.
async fn waiting(name: &str) -> Result<TestNamespace> {
    let place = place(name).await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    place.promotion("p", "prod", json!({"phase": "Pending", "gates": [gate]})).await?;
    Ok(place)
}

/// Writes a status as the controller does.
async fn report(place: &TestNamespace, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    place.promotions().patch_status("p", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Runs a command. After each further line of stderr, the next change is made. Returns the exit code and the lines.
async fn follow(place: &TestNamespace, arguments: &[&str], changes: &[Value]) -> Result<(Exit, String)> {
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = [arguments, &["-n", &place.namespace, "--wait"]].concat();
    let running = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        for (n, status) in changes.iter().enumerate() {
            // The first two lines say what was done, and that the command waits; the third shows the first state.
            err.lines(3 + n).await?;
            report(place, status.clone()).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let (exit, changed) = tokio::join!(running, changing);
    changed?;
    ensure!(out.text().is_empty(), "{}", out.text());
    Ok((exit, err.text()))
}

#[tokio::test]
async fn an_approval_is_followed_until_the_environment_runs_the_revision() -> Result<()> {
    let place = waiting("wait-approve").await?;
    let open = json!([{"name": "Approval", "open": true}]);
    let changes = [
        json!({"phase": "Pending", "reason": "GatesOpen", "message": "its gates are open",
            "gates": open, "approval": {"by": "admin", "at": "2026-11-21T10:00:00Z"}}),
        json!({"phase": "Delivered", "message": "committed as 1eabc9a4; waits for the targets to run it"}),
        json!({"phase": "Succeeded", "message": ""}),
    ];
    let (exit, lines) = follow(&place, &["approve", "p"], &changes).await?;
    insta::assert_snapshot!(lines, @"
    ✔ approved podinfo 6.1.8 into prod (as admin)
    ◎ waiting for podinfo 6.1.8 into prod, for at most 10m
    ► podinfo 6.1.8 into prod waits for the controller to see the approval
    ► podinfo 6.1.8 into prod is being delivered
    ► podinfo 6.1.8 into prod is delivered: committed as 1eabc9a4; waits for the targets to run it
    ✔ podinfo 6.1.8 into prod has succeeded
    ");
    assert_eq!(exit, Exit::Ok);
    // Approved already: nothing to do, and nothing to wait for.
    let again = place.sluice(&["approve", "p", "--wait"]).await;
    assert_eq!(again.exit, Exit::Ok, "{again:?}");
    assert!(again.err.contains("approved already") && again.err.contains("has succeeded"), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn each_end_has_its_exit_code() -> Result<()> {
    let place = waiting("wait-ends").await?;
    let refused = json!({"phase": "Failed", "gates": [], "message": "git.example.com refused the token"});
    let (exit, lines) = follow(&place, &["approve", "p"], &[refused]).await?;
    assert_eq!(exit, Exit::Ended);
    assert!(
        lines.ends_with(
            "✗ podinfo 6.1.8 into prod has failed: git.example.com refused the token\n  \
             try it again: sluice retry p -n wait-ends\n"
        ),
        "{lines}"
    );

    // The failure of the last try is not the end of this one. The answer of the controller needs a new approval.
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let retry = ["retry", "p", "-n", &place.namespace, "--wait"];
    let retrying = sluice_into(&place.kubeconfig, &retry, &mut to_out, &mut to_err);
    let answering = async {
        err.lines(3).await?;
        let token = place.promotions().get("p").await?.spec.retry;
        let gates = json!([{"name": "Approval", "open": false, "message": "waits for a new approval, since earlier approvals do not count any more"}]);
        report(
            &place,
            json!({"phase": "Pending", "message": "", "gates": gates, "retried": token, "retries": 1}),
        )
        .await
    };
    let (exit, answered) = tokio::join!(retrying, answering);
    answered?;
    assert_eq!(exit, Exit::NeedsPerson);
    insta::assert_snapshot!(err.text(), @"
    ✔ requested another try of podinfo 6.1.8 into prod
    ◎ waiting for podinfo 6.1.8 into prod, for at most 10m
    ► podinfo 6.1.8 into prod waits for the controller to start another try
    ✗ podinfo 6.1.8 into prod waits for a new approval, since earlier approvals do not count any more: a person has to act
      sluice approve p -n wait-ends
    ");

    let ran = place.sluice(&["approve", "p", "--wait", "--timeout", "1s"]).await;
    assert_eq!(ran.exit, Exit::TimedOut, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ✔ approved podinfo 6.1.8 into prod (as admin)
    ◎ waiting for podinfo 6.1.8 into prod, for at most 1s
    ► podinfo 6.1.8 into prod waits for the controller to see the approval
    ✗ the time is up after 1s: podinfo 6.1.8 into prod waits for the controller to see the approval
      Sluice continues; see how far it is: sluice explain p -n wait-ends
    ");
    Ok(())
}

#[tokio::test]
async fn a_suspended_pipeline_and_a_deleted_promotion_end_the_wait() -> Result<()> {
    let place = waiting("wait-gone").await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["approve", "p", "-n", &place.namespace, "--wait"];
    let approving = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let deleting = async {
        err.lines(3).await?;
        place.promotions().delete("p", &DeleteParams::default()).await?;
        Ok::<(), anyhow::Error>(())
    };
    let (exit, deleted) = tokio::join!(approving, deleting);
    deleted?;
    assert_eq!(exit, Exit::Ended);
    assert!(err.text().ends_with("✗ podinfo 6.1.8 into prod was deleted\n"), "{}", err.text());

    let suspended = place.sluice(&["suspend", "podinfo"]).await;
    assert_eq!(suspended.exit, Exit::Ok);
    place.promotion("q", "prod", json!({"phase": "Failed"})).await?;
    let ran = place.sluice(&["retry", "q", "--wait"]).await;
    assert_eq!(ran.exit, Exit::NeedsPerson);
    insta::assert_snapshot!(ran.err, @"
    ✔ requested another try of podinfo 6.1.8 into prod
    ◎ pipeline podinfo is suspended: nothing is done until it is resumed: sluice resume podinfo
    ");

    let ran = place.sluice(&["approve", "p", "--timeout", "1s"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("--wait"), "{}", ran.err);
    let ran = place.sluice(&["approve", "p", "--wait", "--timeout", "10"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("write a duration such as 90s, 10m or 1h30m"), "{}", ran.err);
    Ok(())
}

#[tokio::test]
async fn several_promotions_are_followed_at_the_same_time() -> Result<()> {
    let place = waiting("wait-several").await?;
    report(&place, json!({"phase": "Failed", "gates": [], "message": "no route to git"})).await?;
    place.promotion("d", "dev", json!({"phase": "Failed", "message": "no route to git"})).await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["retry", "--failed", "-n", &place.namespace, "--wait"];
    let retrying = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let answering = async {
        // Two requests, the line that the command waits, and two states.
        err.lines(5).await?;
        for (name, phase) in [("p", "Succeeded"), ("d", "Failed")] {
            let token = place.promotions().get(name).await?.spec.retry;
            let status = json!({"phase": phase, "retried": token, "message": "as before"});
            let patch = Patch::Merge(json!({"status": status}));
            place.promotions().patch_status(name, &PatchParams::default(), &patch).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let (exit, answered) = tokio::join!(retrying, answering);
    answered?;
    let lines = err.text();
    assert_eq!(exit, Exit::Ended, "{lines}");
    assert!(lines.contains("◎ waiting for 2 promotions, for at most 10m\n"), "{lines}");
    assert!(lines.contains("✔ podinfo 6.1.8 into prod has succeeded\n"), "{lines}");
    assert!(lines.contains("✗ podinfo 6.1.8 into dev has failed: as before\n"), "{lines}");
    Ok(())
}

#[tokio::test]
async fn a_wait_survives_a_lost_connection() -> Result<()> {
    let mut place = waiting("wait-cut").await?;
    let (proxy, _folder) = place.through_proxy().await?;
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["approve", "p", "-n", &place.namespace, "--wait"];
    let approving = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        err.lines(3).await?;
        proxy.disconnect();
        report(&place, json!({"phase": "Delivered", "gates": []})).await?;
        err.lines(4).await?;
        proxy.disconnect();
        report(&place, json!({"phase": "Succeeded"})).await
    };
    let (exit, changed) = tokio::join!(approving, changing);
    changed?;
    assert_eq!(exit, Exit::Ok, "{}", err.text());
    assert!(err.text().ends_with("✔ podinfo 6.1.8 into prod has succeeded\n"), "{}", err.text());
    Ok(())
}
