//! `history`: the newest first, with who decided and what was delivered.

use serde_json::json;
use sluice_view::history::history;

use crate::fixture::promotion;

#[test]
fn the_newest_comes_first_with_who_decided_and_what_was_delivered() {
    let first = promotion(
        "prod",
        1,
        json!({"phase": "Succeeded", "commit": "1eabc9a4d5e6f708", "times": {"Succeeded": "2026-11-21T11:02:00Z"},
            "approval": {"by": "jane", "at": "2026-11-21T11:01:30Z"}}),
    );
    let mut second = promotion("prod", 2, json!({"phase": "Rejected", "message": "not before Monday"}));
    second.spec.rejection =
        serde_json::from_value(json!({"by": "joe", "reason": "not before Monday", "revision": "6.1.8"}))
            .unwrap();
    let staging = promotion("staging", 3, json!({"phase": "Pending"}));
    let all = [first, second, staging];
    let rows = |environment| -> Vec<String> {
        let entries = history("podinfo", environment, &all);
        entries
            .iter()
            .map(|e| format!("{} {} {} {} {}", e.environment, e.replaces, e.phase, e.by, e.delivered_as))
            .collect()
    };
    assert_eq!(
        rows(None),
        ["staging 6.1.5 Pending  ", "prod 6.1.5 Rejected joe ", "prod 6.1.5 Succeeded jane 1eabc9a4"]
    );
    assert_eq!(rows(Some("prod")).len(), 2);
    // A promotion into the whole environment changes this target, too.
    assert_eq!(rows(Some("prod/eu")).len(), 2);
    assert!(rows(Some("pro")).is_empty() && rows(Some("production")).is_empty());
    assert!(history("search", None, &all).is_empty());
}

#[test]
fn a_target_has_the_promotions_of_its_own_and_those_of_its_environment() {
    let all = [Some("eu"), Some("us"), None].map(|target| {
        let mut promotion = promotion("prod", 1, json!({"phase": "Succeeded"}));
        promotion.spec.target = target.map(str::to_owned);
        promotion
    });
    let environments = |wanted| -> Vec<String> {
        history("podinfo", Some(wanted), &all).into_iter().map(|entry| entry.environment).collect()
    };
    assert_eq!(environments("prod/eu"), ["prod/eu", "prod"]);
    assert_eq!(environments("prod").len(), 3);
}
