//! `progress`: whether a command that waits for a promotion continues to wait.

use serde_json::{Value, json};
use sluice_view::progress::{Course, progress};

use crate::fixture::promotion;

/// Returns one line: the course, the state, and the next command.
fn of(status: Value, spec: Value) -> String {
    let mut promotion = serde_json::to_value(promotion("prod", 1, status)).unwrap();
    for (field, value) in spec.as_object().unwrap() {
        promotion["spec"][field] = value.clone();
    }
    let shown = progress(&serde_json::from_value(promotion).unwrap());
    let next = shown.next.map(|next| format!(" ► {next}")).unwrap_or_default();
    format!("{:?}: {}{next}", shown.course, shown.state)
}

#[test]
fn every_phase_has_its_steps() {
    let gate = |open: bool| json!([{"name": "Approval", "open": open, "message": "waits for approval: sluice approve -n apps p"}]);
    let request = |merge: &str, state: &str| {
        json!({"number": 7, "url": "https://git.example.com/7", "state": state, "branch": "b", "headCommit": "c",
            "strategy": {"type": "github", "url": "https://git.example.com/fleet.git", "secretRef": {"name": "s"}, "merge": merge}})
    };
    let lines: Vec<String> = [
        json!({"phase": "Pending", "gates": gate(false)}),
        json!({"phase": "Pending", "gates": gate(true), "message": "waits for the delivery of 6.1.7"}),
        json!({"phase": "Pending", "reason": "GatesOpen", "message": "its gates are open"}),
        json!({"phase": "Pending"}),
        json!({"phase": "Promoting"}),
        json!({"phase": "Promoting", "message": "git.example.com refused the token"}),
        json!({"phase": "Proposed"}),
        json!({"phase": "Proposed", "changeRequest": request("Never", "open")}),
        json!({"phase": "Proposed", "changeRequest": request("Never", "merged")}),
        json!({"phase": "Proposed", "changeRequest": request("WhenGreen", "open")}),
        json!({"phase": "Delivered"}),
        json!({"phase": "Succeeded"}),
        json!({"phase": "Failed", "message": "not healthy in time"}),
        json!({"phase": "Rejected", "message": "rejected by jane: not today"}),
        json!({"phase": "Rejected", "message": "change request #7 was closed"}),
        json!({"phase": "Superseded"}),
        json!({"phase": "Cancelled", "message": "prod has no promotion any more"}),
    ]
    .into_iter()
    .map(|status| of(status, json!({})))
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    NeedsPerson: waits for approval ► sluice approve podinfo-prod-1 -n apps
    Moving: is pending: waits for the delivery of 6.1.7
    Moving: is being delivered
    Moving: waits for the controller
    Moving: is being delivered
    Moving: could not be delivered, and is tried again: git.example.com refused the token
    Moving: is proposed
    NeedsPerson: waits in change request #7 (https://git.example.com/7)
    Moving: waits in change request #7 (https://git.example.com/7)
    Moving: waits in change request #7 (https://git.example.com/7)
    Moving: is delivered, and prod does not run it yet
    Succeeded: has succeeded
    Ended: has failed: not healthy in time ► sluice retry podinfo-prod-1 -n apps
    Ended: was rejected by jane: not today ► sluice retry podinfo-prod-1 -n apps
    Ended: was rejected: change request #7 was closed ► sluice retry podinfo-prod-1 -n apps
    Ended: was superseded by a newer revision
    Ended: was cancelled: prod has no promotion any more
    ");
}

#[test]
fn a_status_about_an_earlier_try_does_not_count() {
    let requested = json!({"retry": "2026-11-21T12:00:00Z"});
    let failed = json!({"phase": "Failed", "message": "not healthy in time"});
    assert_eq!(of(failed, requested.clone()), "Moving: waits for the controller to start another try");
    let again = json!({"phase": "Failed", "message": "not healthy again", "retried": "2026-11-21T12:00:00Z"});
    assert!(of(again, requested).starts_with("Ended: has failed: not healthy again"));

    let gates = json!([{"name": "Approval", "open": false, "message": "waits for approval"}]);
    let approved = json!({"approval": {"by": "jane", "revision": "6.1.8"}});
    let seen = of(json!({"phase": "Pending", "gates": gates}), approved.clone());
    assert_eq!(seen, "Moving: waits for the controller to see the approval");
    // The approval of an earlier try.
    let spent = of(json!({"phase": "Pending", "gates": gates, "retries": 1}), approved);
    assert_eq!(spent, "NeedsPerson: waits for approval ► sluice approve podinfo-prod-1 -n apps");
    assert_eq!(progress(&promotion("prod", 1, json!({"phase": "Succeeded"}))).course, Course::Succeeded);
}
