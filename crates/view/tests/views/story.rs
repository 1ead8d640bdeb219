//! `story`: everything that was recorded of a promotion, in the order of time.

use serde_json::json;
use sluice_view::story::{StoryEvent, after_success, left_out, story};

use crate::fixture::{pipeline, promotion, runs};

#[test]
fn the_story_has_every_recorded_step_in_the_order_of_time() {
    let status = json!({
        "phase": "Succeeded", "message": "prod runs 6.1.8 and is healthy", "commit": "1eabc9a4",
        "times": {"Pending": "2026-11-21T11:01:00Z", "Promoting": "2026-11-21T11:03:00Z",
            "Delivered": "2026-11-21T11:04:00Z", "Succeeded": "2026-11-21T11:05:00Z"},
        "approval": {"by": "jane", "at": "2026-11-21T11:02:00Z"},
    });
    let lines: Vec<String> =
        story(&promotion("prod", 1, status)).iter().map(|h| format!("{} {}", h.at, h.what)).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    2026-11-21T10:59:58Z dev/dev ran 6.1.8 healthily
    2026-11-21T11:01:00Z the promotion of 6.1.8 into prod in place of 6.1.5 was started
    2026-11-21T11:02:00Z jane approved it
    2026-11-21T11:03:00Z the delivery failed for the first time
    2026-11-21T11:04:00Z it was delivered as commit 1eabc9a4
    2026-11-21T11:05:00Z prod ran 6.1.8 healthily
    ");
}

#[test]
fn a_success_of_the_past_is_told_with_what_runs_now() {
    let succeeded = json!({"phase": "Succeeded", "message": "prod runs 6.1.8 and is healthy"});
    for (phase, revision, health, expected) in [
        ("Succeeded", "6.1.8", "Ready", None),
        ("Succeeded", "6.2.0", "Ready", Some("prod ran 6.1.8 healthily; it runs 6.2.0 now")),
        (
            "Succeeded",
            "6.1.8",
            "Failed",
            Some("prod ran 6.1.8 healthily; the health of 6.1.8 there is Failed now"),
        ),
        ("Rejected", "6.2.0", "Ready", None),
    ] {
        let mut status = succeeded.clone();
        status["phase"] = phase.into();
        let pipeline = pipeline(json!({"prod": runs("prod", revision, health)}));
        let said = after_success(&pipeline, &promotion("prod", 1, status));
        assert_eq!(said.as_deref(), expected, "{phase} {revision} {health}");
    }
}

#[test]
fn a_promotion_that_was_started_again_keeps_what_is_recorded_of_earlier_tries() {
    let status = json!({
        "phase": "Promoting", "message": "no route to the host", "attempts": 3, "retries": 1, "retried": "2026-11-21T12:00:00Z",
        "withdrawnRequests": ["https://git.example.com/7"],
        "times": {"Pending": "2026-11-21T12:00:01Z", "Promoting": "2026-11-21T12:02:00Z", "Failed": "2026-11-21T11:20:00Z",
            "Rejected": "2026-11-21T11:30:00Z"},
        "approval": {"by": "jane", "at": "2026-11-21T11:10:00Z"},
    });
    let mut again = promotion("prod", 1, status);
    again.spec.retry = Some("2026-11-21T12:00:00Z".into());
    again.spec.rejection =
        serde_json::from_value(json!({"by": "joe", "reason": "not before Monday", "revision": "6.1.8"}))
            .unwrap();
    let line = |event: &StoryEvent| {
        let earlier = if event.is_earlier { " (earlier)" } else { "" };
        format!("{} {}{earlier}", event.at, event.what)
    };
    let lines: Vec<String> = story(&again).iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    2026-11-21T10:59:58Z dev/dev ran 6.1.8 healthily
    2026-11-21T11:01:00Z the promotion of 6.1.8 into prod in place of 6.1.5 was started
    2026-11-21T11:10:00Z jane approved it (earlier)
    2026-11-21T11:20:00Z it failed (earlier)
    2026-11-21T11:30:00Z joe rejected it: not before Monday (earlier)
    2026-11-21T12:00:00Z another try was requested
    2026-11-21T12:02:00Z the delivery failed for the first time, and 2 times since then: no route to the host
    ");
    insta::assert_snapshot!(left_out(&again).unwrap(), @"It was started again. Closed before: https://git.example.com/7. The record keeps the last time of each phase, the last approval, rejection and retry, and only the last error. Earlier ones are in the events and the audit log of the cluster, if these are kept.");
    assert_eq!(left_out(&promotion("prod", 1, json!({"phase": "Pending"}))), None);
}

#[test]
fn a_rejection_names_the_person_and_the_reason() {
    let mut rejected =
        promotion("prod", 1, json!({"phase": "Rejected", "times": {"Rejected": "2026-11-21T11:05:00Z"}}));
    rejected.spec.rejection =
        serde_json::from_value(json!({"by": "joe", "reason": "not before Monday", "revision": "6.1.8"}))
            .unwrap();
    let last = story(&rejected).pop().unwrap();
    assert_eq!(last.what, "joe rejected it: not before Monday");
}
