//! The answer that a page begins with, and the chips that count it.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_core::planned_change::{PlannedChange, PlannedValue};

use super::Browser;
use super::world::{World, environment, pipeline, promotion, snapshot};

fn ready(revision: &str) -> Value {
    environment(revision, "Ready", "")
}

/// A pipeline whose prod is behind.
fn behind(name: &str) -> StoredPipeline {
    pipeline("apps", name, [ready("6.2.0"), ready("6.2.0"), ready("6.1.8")])
}

/// The same without a promotion strategy.
fn observed(name: &str, prod: &str) -> StoredPipeline {
    let mut stored = pipeline("apps", name, [ready("6.2.0"), ready("6.2.0"), ready(prod)]);
    Arc::make_mut(&mut stored.object).spec.promotion = None;
    stored
}

/// One pipeline with a promotion into prod.
fn with_promotion(status: Value) -> Snapshot {
    snapshot(vec![behind("podinfo")], vec![promotion("apps", "podinfo", "6.2.0", status)])
}

async fn page(world: Snapshot, path: &str) -> String {
    let admin = Browser::new(&World::new(world), true, "admin").await;
    let answer = admin.get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.text
}

/// Returns the chips of the list that count something.
fn counted(page: &str) -> Vec<&str> {
    ["Needs a person 1", "Failed 1", "Moving 1", "Not readable 1"]
        .into_iter()
        .filter(|chip| page.contains(chip))
        .collect()
}

#[tokio::test]
async fn an_observed_pipeline_that_differs_is_not_up_to_date() {
    let says = "prod runs 6.1.8, staging 6.2.0; Sluice only observes this pipeline.";
    for path in ["/", "/pipelines/apps/podinfo"] {
        let page = page(snapshot(vec![observed("podinfo", "6.1.8")], vec![]), path).await;
        assert!(page.contains(says), "{path}: {page}");
        assert!(!page.contains("up to date"), "{path}: {page}");
    }
    let even = snapshot(vec![observed("podinfo", "6.2.0")], vec![]);
    assert!(page(even.clone(), "/").await.contains("only observed"));
    let page = page(even, "/pipelines/apps/podinfo").await;
    assert!(page.contains("Sluice only observes this pipeline: it has no promotion strategy."), "{page}");
}

#[tokio::test]
async fn the_chips_count_failed_deliveries_and_requests_that_wait_for_a_person() {
    let failed =
        json!({"phase": "Promoting", "reason": "NoMarker", "message": "there is no marker", "times": {}});
    let list = page(with_promotion(failed.clone()), "/").await;
    assert_eq!(counted(&list), ["Needs a person 1", "Failed 1"], "{list}");
    assert!(list.contains("link stuck"), "{list}");
    let one = page(with_promotion(failed), "/pipelines/apps/podinfo").await;
    assert!(one.contains("answer failed-answer"), "{one}");

    let request = json!({"number": 7, "url": "https://git.example.com/7", "state": "open", "branch": "b", "headCommit": "c"});
    let proposed = json!({"phase": "Proposed", "times": {}, "changeRequest": request});
    let list = page(with_promotion(proposed), "/").await;
    assert_eq!(counted(&list), ["Needs a person 1"], "{list}");
    assert!(list.contains("link waits"), "{list}");

    let transient = json!({"phase": "Promoting", "reason": "Unreachable", "message": "no route", "attempts": 1, "times": {}});
    assert_eq!(counted(&page(with_promotion(transient), "/").await), [""; 0]);
}

#[tokio::test]
async fn what_flux_cannot_apply_is_the_answer_and_has_its_command() {
    let mut podinfo = behind("podinfo");
    let mut status: Value = serde_json::from_str(podinfo.status.as_ref().unwrap().get()).unwrap();
    let note = "6.2.0 does not arrive in prod: Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n \
                flux-system): kustomize build failed";
    status["environments"]["prod"]["message"] = json!(note);
    podinfo.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    let delivered = json!({"phase": "Delivered", "reason": "Committed", "message": "committed; waits for the targets to run it",
        "times": {}});
    let world = snapshot(vec![podinfo], vec![promotion("apps", "podinfo", "6.2.0", delivered)]);
    let list = page(world.clone(), "/").await;
    assert_eq!(counted(&list), ["Needs a person 1", "Failed 1"], "{list}");
    let says =
        "6.2.0 does not arrive in prod: Kustomization flux-system/fleet is Failed: kustomize build failed";
    let one = page(world, "/pipelines/apps/podinfo").await;
    assert!(list.contains(says) && one.contains(says), "{one}");
    assert!(one.contains("<code>flux get kustomizations fleet -n flux-system</code>"), "{one}");
}

#[tokio::test]
async fn who_may_not_reads_which_role_to_ask_for() {
    let waits = json!({"phase": "Pending", "message": "waits for approval: sluice approve -n apps podinfo-prod-1", "times": {},
        "gates": [{"name": "Approval", "open": false, "message": "waits for approval: sluice approve -n apps podinfo-prod-1"}]});
    let world = World::new(with_promotion(waits));
    let viewer = Browser::new(&world, true, "viewer").await;
    let page = viewer.get("/pipelines/apps/podinfo").await.text;
    for said in [
        "The ClusterRole sluice-approver has it; ask the owners of the namespace to bind it to you.",
        "You may not edit or suspend this pipeline: you do not have the right to update pipelines/podinfo in namespace apps. \
         The ClusterRole sluice-editor has it",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(!page.contains("sluice approve"), "the page has a command beside its sentence: {page}");
    let refused = viewer.get("/promotions/apps/podinfo-prod-1/approve").await.text;
    assert!(refused.contains("The ClusterRole sluice-approver has it"), "{refused}");
    let admin = Browser::new(&world, true, "admin").await;
    let page = admin.get("/pipelines/apps/podinfo").await.text;
    assert!(!page.contains("sluice approve") && !page.contains("You may not"), "{page}");
}

#[tokio::test]
async fn a_failed_delivery_says_its_next_attempt_once() {
    let failed = json!({"phase": "Promoting", "reason": "NoMarker", "message": "there is no marker", "attempts": 1,
        "nextAttempt": "2100-01-01T00:00:00Z", "times": {}});
    let page = page(with_promotion(failed), "/pipelines/apps/podinfo").await;
    assert_eq!(page.matches("The next attempt is").count(), 1, "{page}");
    assert!(page.contains("It was tried once.<"), "{page}");
}

#[tokio::test]
async fn a_confirmation_names_the_open_change_request() {
    let request = json!({"number": 7, "url": "https://git.example.com/7", "state": "open", "branch": "b", "headCommit": "c"});
    let proposed = json!({"phase": "Proposed", "times": {}, "changeRequest": request});
    let says = page(with_promotion(proposed.clone()), "/pipelines/apps/podinfo/suspend").await;
    assert!(
        says.contains("Change request #7 (https://git.example.com/7) for 6.2.0 into prod stays open."),
        "{says}"
    );
    let says = page(with_promotion(proposed), "/promotions/apps/podinfo-prod-1/reject").await;
    assert!(says.contains("closes its change request #7."), "{says}");
    assert!(says.contains("#7 (https://git.example.com/7), open"), "{says}");
}

/// What a promotion changes: one value.
fn one_value() -> PlannedChange {
    let old = Some("6.1.8".into());
    let value = PlannedValue { path: "prod/app.yaml".into(), line: 2, old, new: "6.2.0".into() };
    PlannedChange { values: vec![value], ..PlannedChange::default() }
}

/// What the page of a promotion and each confirmation say of the files.
#[tokio::test]
async fn the_files_are_named_before_and_after_the_delivery() {
    let request = |state: &str| json!({"number": 7, "url": "https://git.example.com/7", "state": state, "branch": "b", "headCommit": "c"});
    let at = "2026-11-22T10:00:00Z";
    let cases = [
        (json!({"phase": "Pending", "times": {}}), "What it changes", "What 6.2.0 changes in prod"),
        (
            json!({"phase": "Rejected", "message": "no", "times": {}}),
            "What it changes",
            "What 6.2.0 changes in prod",
        ),
        (
            json!({"phase": "Proposed", "times": {}, "commit": "c", "changeRequest": request("open")}),
            "What it changes",
            "What 6.2.0 changes in prod",
        ),
        (
            json!({"phase": "Succeeded", "times": {"Delivered": at}, "commit": "c"}),
            "What it changed",
            "What 6.2.0 changed in prod",
        ),
        (
            json!({"phase": "Succeeded", "times": {"Delivered": at}, "commit": "c", "changeRequest": request("merged")}),
            "What it changed",
            "What 6.2.0 changed in prod",
        ),
        (
            json!({"phase": "Rejected", "times": {}, "commit": "c", "changeRequest": request("closed")}),
            "What it would have changed",
            "What 6.2.0 would have changed in prod",
        ),
    ];
    for (status, link, title) in cases {
        let phase = status["phase"].clone();
        let world = World::new(with_promotion(status));
        world.plan(Ok(Some(Arc::new(one_value()))));
        let admin = Browser::new(&world, true, "admin").await;
        let page = admin.get("/promotions/apps/podinfo-prod-1").await.text;
        let links =
            page.matches(&format!("href=\"/promotions/apps/podinfo-prod-1/change\">{link}</a>")).count();
        assert_eq!(links, 1, "{phase}: {page}");
        let change = admin.get("/promotions/apps/podinfo-prod-1/change").await.text;
        assert!(change.contains(&format!("<title>{title} · Sluice</title>")), "{phase}: {change}");
        assert!(
            change.contains("<del><bdi>6.1.8</bdi></del> → <ins><bdi>6.2.0</bdi></ins>"),
            "{phase}: {change}"
        );
        for action in ["approve", "reject", "retry"] {
            let page = admin.get(&format!("/promotions/apps/podinfo-prod-1/{action}")).await;
            let names_file = page.text.contains("prod/app.yaml");
            assert!(page.status != StatusCode::OK || names_file, "{action} {phase}: {}", page.text);
        }
    }
    let none = json!({"phase": "Superseded", "times": {}});
    let world = World::new(with_promotion(none));
    let admin = Browser::new(&world, true, "admin").await;
    assert!(!admin.get("/promotions/apps/podinfo-prod-1").await.text.contains("/change"));
    assert_eq!(admin.get("/promotions/apps/podinfo-prod-1/change").await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn the_story_of_a_retried_promotion_says_what_was_in_an_earlier_try() {
    let again = json!({"phase": "Pending", "retries": 1, "times": {"Pending": "2026-11-22T12:00:00Z",
        "Failed": "2026-11-22T11:00:00Z"}, "approval": {"by": "jane", "at": "2026-11-22T10:30:00Z"}});
    let page = page(with_promotion(again), "/promotions/apps/podinfo-prod-1").await;
    for said in [
        "aria-label=\"Failed\"><use href=\"#i-failed\"></use></svg></span><div>it failed",
        "jane approved it<div class=\"small quieter\">In an earlier try</div>",
        "It was started again.",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
}

#[tokio::test]
async fn an_empty_list_of_promotions_says_what_it_will_show() {
    let list = page(snapshot(vec![behind("podinfo")], vec![]), "/promotions").await;
    assert!(list.contains("Nothing was promoted yet."), "{list}");
    let list = page(snapshot(vec![behind("podinfo")], vec![]), "/promotions?q=x").await;
    assert!(list.contains("No promotion matches."), "{list}");
}

#[tokio::test]
async fn the_strip_has_no_line_between_environments_that_do_not_follow_each_other() {
    let mut stored = behind("podinfo");
    Arc::make_mut(&mut stored.object).spec.environments[2].after =
        serde_json::from_value(json!(["dev"])).unwrap();
    let list = page(snapshot(vec![stored], vec![]), "/").await;
    assert!(list.contains("<span class=\"link none\"></span>"), "{list}");
    assert!(!page(snapshot(vec![behind("podinfo")], vec![]), "/").await.contains("link none"));
}

#[tokio::test]
async fn each_browser_gets_an_icon_without_a_session() {
    let nobody = Browser::new(&World::new(snapshot(vec![], vec![])), true, "unknown").await;
    let icon = nobody.get("/favicon.ico").await;
    assert_eq!(
        (icon.status, &icon.headers["content-type"]),
        (StatusCode::OK, &"image/svg+xml".parse().unwrap())
    );
}

#[tokio::test]
async fn a_row_says_where_something_waits_and_since_when() {
    let failed = promotion(
        "apps",
        "podinfo",
        "6.2.0",
        json!({"phase": "Failed", "times": {"Failed": "2026-11-24T08:00:00Z"}}),
    );
    let list = page(snapshot(vec![behind("podinfo")], vec![failed]), "/").await;
    let hold = list.split("<div class=\"hold\">").nth(1).unwrap().split("</div>").next().unwrap();
    assert!(hold.starts_with("<span class=\"env\">prod · <time datetime=\"2026-11-24T08:00:00Z\""), "{hold}");
}
