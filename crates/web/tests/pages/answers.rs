//! The answer that a page begins with, and the chips that count it.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sluice_api::snapshot::{Snapshot, StoredPipeline};

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
