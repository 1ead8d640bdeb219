//! `explain -e`: an environment that waits for an earlier one, up to the cause.

use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_view::explain_back::explain_environment;

use crate::fixture::{now, pipeline, promotion, runs, target};

fn prod(pipeline: &Pipeline, promotions: &[Promotion]) -> String {
    let explained = explain_environment(pipeline, promotions, "prod", now());
    assert_eq!(explained.len(), 1);
    let next = explained[0].next.iter().map(|command| format!("► {command}"));
    explained[0].sentences.iter().cloned().chain(next).collect::<Vec<_>>().join("\n")
}

/// dev runs 6.1.8, and staging and prod run 6.1.5.
fn behind() -> Value {
    json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.5", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    })
}

#[test]
fn the_answer_says_why_the_environment_before_does_not_get_the_revision() {
    let request = json!({"number": 7, "url": "https://git.example.com/fleet/pulls/7", "state": "open",
        "branch": "b", "headCommit": "c"});
    let proposed =
        json!({"phase": "Proposed", "changeRequest": request, "message": "waits for the check build"});
    insta::assert_snapshot!(prod(&pipeline(behind()), &[promotion("staging", 1, proposed)]), @"
    prod runs 6.1.5, as staging does.
    staging needs a person: 6.1.8 waits in change request #7 (https://git.example.com/fleet/pulls/7): waits for the check build
    ");
    let failed =
        json!({"phase": "Failed", "reason": "Timeout", "message": "staging does not run it after 10m"});
    insta::assert_snapshot!(prod(&pipeline(behind()), &[promotion("staging", 1, failed)]), @"
    prod runs 6.1.5, as staging does.
    staging needs a person: 6.1.8 failed in staging: staging does not run it after 10m
    ► sluice retry podinfo-staging-1 -n apps
    ");
}

#[test]
fn the_chain_goes_on_to_the_cause_and_says_nothing_twice() {
    // dev has failed at 6.1.8, so that neither staging nor prod gets it.
    let mut failed = behind();
    let broken = target("dev", "6.1.8", "Failed", "Helm upgrade failed: timed out waiting for the condition");
    failed["dev"] = json!({"health": "Failed", "revision": "6.1.8", "targets": [broken]});
    insta::assert_snapshot!(prod(&pipeline(failed), &[]), @"
    prod runs 6.1.5, as staging does.
    staging waits: No newer revision is proven in dev: its target dev is Failed since 2026-11-21T11:50:00Z: Helm upgrade failed: timed out waiting for the condition
    ");
}

#[test]
fn a_promotion_that_is_not_proven_any_more_is_followed_back_too() {
    let says = "6.1.8 waits: it is not proven in staging, and 6.1.7 is older";
    let gate = json!({"name": "Approval", "open": true, "message": "approved by jane"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "message": says, "gates": [gate]}));
    let rejected =
        promotion("staging", 1, json!({"phase": "Rejected", "message": "rejected by joe: too slow"}));
    insta::assert_snapshot!(prod(&pipeline(behind()), &[pending, rejected]), @"
    6.1.8 waits: it is not proven in staging, and 6.1.7 is older
    staging needs a person: 6.1.8 was rejected by joe: too slow (staging)
    ► sluice retry podinfo-staging-1 -n apps
    ");
}

#[test]
fn an_environment_that_waits_for_nothing_earlier_is_explained_alone() {
    let ahead = json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    });
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "gates": [gate]}));
    insta::assert_snapshot!(prod(&pipeline(ahead), &[pending]), @"
    6.1.8 waits for approval
    ► sluice approve podinfo-prod-1 -n apps
    ");
    let even = json!({
        "dev": runs("dev", "6.1.5", "Ready"),
        "staging": runs("staging", "6.1.5", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    });
    insta::assert_snapshot!(prod(&pipeline(even), &[]), @"
    prod runs 6.1.5, as staging does.
    ");
}

#[test]
fn what_stops_all_environments_is_said_once() {
    let mut suspended = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.8", "Ready"),
    }));
    suspended.spec.suspend = true;
    insta::assert_snapshot!(prod(&suspended, &[]), @"
    The pipeline is suspended: nothing is promoted until it is resumed.
    prod runs 6.1.8, as staging does.
    ► sluice resume podinfo -n apps
    ");
}

#[test]
fn a_long_chain_is_cut() {
    let mut long = pipeline(behind());
    let environments: Vec<Value> = (0..40)
        .map(|n| {
            json!({"name": format!("e{n}"),
        "targets": [{"name": "t", "namespace": "podinfo"}]})
        })
        .chain([json!({"name": "prod",
        "targets": [{"name": "t", "namespace": "podinfo"}]})])
        .collect();
    long.spec.environments = serde_json::from_value(json!(environments)).unwrap();
    let statuses: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let broken = target("t", "1", "Failed", &format!("trouble number {n}"));
            (format!("e{n}"), json!({"health": "Failed", "revision": "1", "targets": [broken]}))
        })
        .chain([("prod".to_string(), runs("t", "1", "Ready"))])
        .collect();
    long.status.as_mut().unwrap().environments = serde_json::from_value(json!(statuses)).unwrap();
    let lines = prod(&long, &[]).lines().count();
    assert!((3..=10).contains(&lines), "{lines}");
}
