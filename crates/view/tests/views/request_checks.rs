//! The checks of a change request in `explain`, and with the story of a promotion.

use serde_json::{Value, json};
use sluice_view::explain::explain;
use sluice_view::request_checks::{counts, unnamed};
use sluice_view::story::promotion_story;

use crate::fixture::{now, pipeline, promotion, runs};

/// A promotion with a change request that has these checks.
fn proposed(merge: &str, checks: Value) -> sluice_api::Promotion {
    let strategy = json!({"type": "github", "url": "https://git.example.com/fleet.git", "secretRef": {"name": "s"},
        "merge": merge});
    let request = json!({"number": 7, "url": "https://git.example.com/7", "state": "open", "branch": "b",
        "headCommit": "c0ffee", "strategy": strategy, "checks": checks});
    promotion("prod", 1, json!({"phase": "Proposed", "message": "waits", "changeRequest": request}))
}

fn checks(failed: &[&str], more_failed: u32, passed: u32) -> Value {
    let items: Vec<Value> = failed.iter().map(|name| json!({"name": name, "result": "failed"})).collect();
    json!({"commit": "c0ffee", "since": "2026-11-21T11:05:00Z", "failed": items.len() as u32 + more_failed, "pending": 1,
        "passed": passed, "items": items})
}

fn sentences(merge: &str, checks: Value) -> Vec<String> {
    let behind = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"), "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    }));
    let all = explain(&behind, &[proposed(merge, checks)], now());
    all.into_iter().find(|explained| explained.environment == "prod").unwrap().sentences
}

#[test]
fn the_checks_follow_the_change_request_that_a_person_merges() {
    let says = sentences("Never", checks(&["ci/build", "e2e"], 0, 14));
    assert_eq!(says[1], "Its checks: 2 failed, 1 pending, 14 passed; failed: ci/build, e2e.");
    let says = sentences("Never", checks(&["a", "b", "c", "d"], 3, 0));
    assert_eq!(says[1], "Its checks: 7 failed, 1 pending; failed: a, b, c, ….");
    assert_eq!(sentences("Never", checks(&[], 0, 2))[1], "Its checks: 1 pending, 2 passed.");
    // The message of the promotion says what Sluice waits for.
    assert_eq!(sentences("WhenGreen", checks(&["ci/build"], 0, 14)).len(), 1);
    assert_eq!(sentences("Never", Value::Null).len(), 1);
}

#[test]
fn the_story_has_the_checks() {
    let story = promotion_story(&proposed("Never", checks(&["ci/build"], 2, 5)));
    let checks = story.checks.unwrap();
    assert_eq!((counts(&checks).as_str(), unnamed(&checks)), ("3 failed, 1 pending, 5 passed", 8));
    assert_eq!(promotion_story(&promotion("prod", 1, json!({"phase": "Pending"}))).checks, None);
}
