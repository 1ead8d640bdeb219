//! Approvals by key: what one approves, and what nobody can do with a body that was seen before.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{Promotion, PromotionSpec};
use sluice_controller::hook::approval::key_id;
use sluice_controller::hook::approval_request::{Given, Request, after, approved, check, counts, is_for};
use sluice_controller::hook::route::{Endpoint, Place};
use sluice_controller::hook::status_change::Change;

const NOW: &str = "2026-11-22T10:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn request(pipeline: &str, environment: &str, revision: &str, signed_at: &str) -> Request {
    serde_json::from_value(
        json!({"pipeline": pipeline, "environment": environment, "revision": revision, "at": signed_at}),
    )
    .unwrap()
}

fn promotion(name: &str, revision: &str, status: &Value) -> Promotion {
    let object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": name, "namespace": "apps"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": revision, "facets": {"x": revision}},
        "status": status});
    serde_json::from_value(object).unwrap()
}

/// The status of one that has been waiting for approval since a time, with the approval that was recorded before.
fn waiting(since: &str, approval: Option<(&str, &str)>, spent: Option<&str>) -> Value {
    let approval = approval
        .map(|(signed_at, at)| json!({"secret": "keys", "key": "abc", "signedAt": signed_at, "at": at}));
    json!({"phase": "Pending", "times": {"Pending": since}, "keyApproval": approval, "spentKeyApproval": spent,
        "gates": [{"name": "Approval", "open": false}]})
}

#[test]
fn a_body_approves_what_its_address_names_and_only_for_a_while() {
    let sent_to = ("apps/podinfo", "prod", "6.1.9");
    for (request, says) in [
        (request("apps/podinfo", "prod", "6.1.9", NOW), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T09:55:00Z"), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:00:02Z"), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T09:54:59Z"), Some("sign a new body")),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:00:03Z"), Some("set the clock that signs")),
        (request("apps/other", "prod", "6.1.9", NOW), Some("approves pipeline \"apps/other\"")),
        (request("other/podinfo", "prod", "6.1.9", NOW), Some("approves pipeline \"other/podinfo\"")),
        (request("apps/podinfo", "staging", "6.1.9", NOW), Some("approves environment \"staging\"")),
        (request("apps/podinfo", "prod", "6.1.8", NOW), Some("approves revision \"6.1.8\"")),
        (request("apps/podinfo", "prod", "6.1.9\u{200b}", NOW), Some("approves revision")),
    ] {
        match (check(&request, sent_to, at(NOW)), says) {
            (Ok(()), None) => {}
            (Err(why), Some(says)) => assert!(why.contains(says), "{why}"),
            (got, says) => panic!("{request:?}: {got:?}, not {says:?}"),
        }
    }
    for wrong in [
        json!({"pipeline": "apps/podinfo", "environment": "prod", "revision": "6.1.9"}),
        json!({"pipeline": "apps/podinfo", "environment": "prod", "revision": "6.1.9", "at": "now"}),
        json!({"environment": "prod", "revision": "6.1.9", "at": NOW}),
        json!({"pipeline": "apps/podinfo", "environment": "prod", "revision": "6.1.9", "at": NOW, "by": "eve"}),
    ] {
        assert!(serde_json::from_value::<Request>(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn an_approval_is_for_the_promotion_that_waits_and_for_one_try() {
    let asks = request("apps/podinfo", "prod", "6.1.9", NOW);
    let since = "2026-11-22T09:00:00Z";
    let names = |all: &[Promotion]| {
        approved(&asks, all)
            .map(|found| found.iter().map(|p| p.metadata.name.clone().unwrap()).collect::<Vec<_>>())
    };
    let fresh = promotion("fresh", "6.1.9", &waiting(since, None, None));
    let other = promotion("other", "6.2.0", &waiting(since, None, None));
    assert_eq!(names(&[other.clone(), fresh.clone()]), Ok(vec!["fresh".to_string()]));
    assert!(names(&[other]).unwrap_err().contains("6.2.0 waits there"));
    assert!(names(&[]).unwrap_err().contains("nothing waits there"));
    for phase in ["Promoting", "Proposed", "Delivered", "Succeeded", "Failed", "Rejected", "Superseded"] {
        let gone_on = promotion(
            "on",
            "6.1.9",
            &json!({"phase": phase, "gates": [{"name": "Approval", "open": false}]}),
        );
        assert!(names(&[gone_on]).is_err(), "{phase}");
    }

    // It was recorded: the same body again changes nothing.
    let given = Given { secret: "keys", key_id: "abc", signed_at: at(NOW), now: at("2026-11-22T10:00:02Z") };
    let Change::Write(written) = after(&fresh, &asks, given) else { panic!("not recorded") };
    let approval = &written["keyApproval"];
    assert_eq!((&approval["secret"], &approval["signedAt"]), (&json!("keys"), &json!(NOW)));
    let recorded = promotion("fresh", "6.1.9", &waiting(since, Some((NOW, "2026-11-22T10:00:02Z")), None));
    assert!(counts(&recorded, recorded.status.as_ref().unwrap().key_approval.as_deref()));
    assert_eq!(after(&recorded, &asks, given), Change::Nothing);
    assert_eq!(names(std::slice::from_ref(&recorded)), Ok(vec!["fresh".to_string()]));

    // It failed, and a person had it tried again: the body that was seen approves neither this try nor another record
    // of the same revision.
    let spent = waiting("2026-11-22T10:02:00Z", Some((NOW, "2026-11-22T10:00:02Z")), Some(NOW));
    let retried = promotion("fresh", "6.1.9", &spent);
    assert!(!counts(&retried, retried.status.as_ref().unwrap().key_approval.as_deref()));
    assert!(names(std::slice::from_ref(&retried)).unwrap_err().contains("sign a new body"));
    assert_eq!(after(&retried, &asks, given), Change::Nothing);
    let again = promotion("again", "6.1.9", &waiting("2026-11-22T10:02:00Z", None, None));
    let mut ended = recorded;
    ended.status.as_mut().unwrap().phase = sluice_api::promotion::Phase::Succeeded;
    assert_eq!(names(&[ended, again]), Ok(vec!["fresh".to_string()]));
    // Not spent, since the replica that took the retry had not seen it yet: it is older than the wait.
    let raced = promotion(
        "fresh",
        "6.1.9",
        &waiting("2026-11-22T10:02:00Z", Some((NOW, "2026-11-22T10:00:02Z")), None),
    );
    assert!(!counts(&raced, raced.status.as_ref().unwrap().key_approval.as_deref()));
    // A new body approves it, also where the clock of this replica is behind that of the other.
    let asks = request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:01:58Z");
    let given = Given { signed_at: asks.at, now: at("2026-11-22T10:01:59Z"), ..given };
    let Change::Write(written) = after(&retried, &asks, given) else { panic!("not recorded") };
    assert_eq!(written["keyApproval"]["at"], "2026-11-22T10:02:00Z");
    // A second retry: the body that approved the first try does not approve the third, with another one between.
    let third = waiting(
        "2026-11-22T10:03:00Z",
        Some(("2026-11-22T10:01:58Z", "2026-11-22T10:02:00Z")),
        Some("2026-11-22T10:01:58Z"),
    );
    let replayed = Given { signed_at: at(NOW), now: at("2026-11-22T10:03:30Z"), ..given };
    let first = request("apps/podinfo", "prod", "6.1.9", NOW);
    let Change::Refused(why) = after(&promotion("fresh", "6.1.9", &third), &first, replayed) else {
        panic!("the body of the first try was accepted again")
    };
    assert!(why.contains("sign a new body"), "{why}");
    // Another revision or environment is none of this body's.
    let other = promotion("other", "6.2.0", &waiting(since, None, None));
    assert_eq!(after(&other, &asks, given), Change::NotTheirs);
}

#[test]
fn a_body_that_was_signed_before_a_retry_and_not_sent_then_does_not_approve_the_next_try() {
    let asks = request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:01:57Z");
    let given = Given { secret: "keys", key_id: "abc", signed_at: asks.at, now: at("2026-11-22T10:02:30Z") };
    let began = "2026-11-22T10:02:00Z";
    for before in [None, Some((NOW, "2026-11-22T10:00:02Z"))] {
        let waits = waiting(began, before, before.map(|(signed_at, _)| signed_at));
        let Change::Refused(why) = after(&promotion("fresh", "6.1.9", &waits), &asks, given) else {
            panic!("a body of the first try approves the second")
        };
        assert!(why.contains("sign a new body"), "{why}");
    }
}

/// A body that was signed and recorded while the clocks of caller and hub were a day ahead.
#[test]
fn a_time_that_lies_ahead_delays_no_later_approval_and_lets_no_body_be_replayed() {
    let ahead = Some(("2026-11-23T09:00:00Z", "2026-11-23T09:00:01Z"));
    for (why, since, before, signed_at, accepted) in [
        ("signed since it waits", "2026-11-22T09:59:00Z", ahead, "2026-11-22T09:59:30Z", true),
        (
            "signed in the second in which it began to wait",
            "2026-11-22T09:59:00Z",
            ahead,
            "2026-11-22T09:59:00Z",
            true,
        ),
        ("of an earlier try", "2026-11-22T09:59:00Z", ahead, "2026-11-22T09:58:59Z", false),
        ("waits since a time that lies ahead", "2026-11-23T09:00:02Z", ahead, "2026-11-22T09:59:30Z", false),
        (
            "within the tolerance a later one counts",
            "2026-11-22T09:59:00Z",
            Some(("2026-11-22T10:01:00Z", "2026-11-22T10:00:00Z")),
            "2026-11-22T10:00:59Z",
            false,
        ),
        (
            "just ahead of the tolerance",
            "2026-11-22T09:59:00Z",
            Some(("2026-11-22T10:01:01Z", "2026-11-22T10:00:00Z")),
            "2026-11-22T10:00:59Z",
            true,
        ),
    ] {
        let spent = before.map(|(signed_at, _)| signed_at);
        let waits = promotion("fresh", "6.1.9", &waiting(since, before, spent));
        let asks = request("apps/podinfo", "prod", "6.1.9", signed_at);
        let given = Given { secret: "keys", key_id: "abc", signed_at: at(signed_at), now: at(NOW) };
        let change = after(&waits, &asks, given);
        assert_eq!(matches!(change, Change::Write(_)), accepted, "{why}: {change:?}");
    }
}

#[test]
fn a_promotion_that_cannot_be_read_may_have_been_approved_by_a_body_that_names_it() {
    let asks = request("apps/podinfo", "prod", "6.1.9", NOW);
    let spec = |pipeline: &str, environment: &str, revision: &str| PromotionSpec {
        pipeline: pipeline.into(),
        environment: environment.into(),
        revision: revision.into(),
        ..PromotionSpec::default()
    };
    assert!(is_for(&asks, &spec("podinfo", "prod", "6.1.9")));
    for other in
        [spec("other", "prod", "6.1.9"), spec("podinfo", "dev", "6.1.9"), spec("podinfo", "prod", "6.1.8")]
    {
        assert!(!is_for(&asks, &other), "{other:?}");
    }
}

#[test]
fn a_path_names_one_revision_or_nothing() {
    let revision = |path: &str| match Place::of(path)?.endpoint {
        Endpoint::Approval { environment, revision } => Some((environment, revision)),
        other => panic!("{other:?}"),
    };
    for (path, wanted) in [
        ("6.1.9", Some("6.1.9")),
        ("main@sha1:1eabc9a4", Some("main@sha1:1eabc9a4")),
        ("main%40sha1%3A1eab", Some("main@sha1:1eab")),
        ("main/1eabc9a4", Some("main/1eabc9a4")),
        ("main%2F1eabc9a4", Some("main/1eabc9a4")),
        ("%25", Some("%")),
        // Compared with revisions, and used for nothing else.
        ("../../apps/other/prod/1", Some("../../apps/other/prod/1")),
        ("", None),
        ("%", None),
        ("%4", None),
        ("%zz", None),
        ("%ff", None),
        ("%00", None),
        ("a%0d%0ab", None),
    ] {
        let found = revision(&format!("/approval/apps/podinfo/prod/{path}"));
        assert_eq!(found, wanted.map(|wanted| ("prod".into(), wanted.to_string())), "{path}");
    }
    for path in [
        "/approval",
        "/approval/",
        "/approval/apps/podinfo/prod",
        "/approval/apps/../prod/1",
        "/approval/apps/Pod/prod/1",
        "/approval/apps/pod%69nfo/prod/1",
    ] {
        assert_eq!(Place::of(path), None, "{path}");
    }
    assert_eq!(Place::of(&format!("/approval/a/b/c/{}", "x".repeat(1025))), None);
}

#[test]
fn a_key_is_told_from_others_without_being_told() {
    let (one, other) = (key_id(b"one key"), key_id(b"another key"));
    assert_ne!(one, other);
    assert_eq!(one, key_id(b"one key\n"));
    assert_eq!(one.len(), 6);
}
