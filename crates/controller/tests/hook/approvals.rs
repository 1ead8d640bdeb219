//! Approvals by key: what a body approves, and that a person who has seen a body cannot use it for anything else.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{Promotion, PromotionSpec};
use sluice_controller::hook::approval::key_id;
use sluice_controller::hook::approval_rules::{
    ApprovalRequest, ApprovalSignature, approved_promotions, check, counts, is_for, status_change,
};
use sluice_controller::hook::route::{Endpoint, Route};
use sluice_controller::hook::status_change::StatusChange;

const NOW: &str = "2026-11-22T10:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn request(pipeline: &str, environment: &str, revision: &str, signed_at: &str) -> ApprovalRequest {
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

/// The status of a promotion that waits for an approval since a time, with the approval that was recorded before.
fn waiting(since: &str, approval: Option<(&str, &str)>, spent: Option<&str>) -> Value {
    let approval = approval
        .map(|(signed_at, at)| json!({"secret": "keys", "key": "abc", "signedAt": signed_at, "at": at}));
    json!({"phase": "Pending", "times": {"Pending": since}, "keyApproval": approval, "spentKeyApproval": spent,
        "gates": [{"name": "Approval", "open": false}]})
}

#[test]
fn a_body_is_accepted_at_the_address_that_it_names_for_five_minutes() {
    let sent_to = ("apps/podinfo", "prod", "6.1.9");
    for (request, says) in [
        (request("apps/podinfo", "prod", "6.1.9", NOW), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T09:55:00Z"), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:00:02Z"), None),
        (request("apps/podinfo", "prod", "6.1.9", "2026-11-22T09:54:59Z"), Some("sign a new body")),
        (
            request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:00:03Z"),
            Some("correct the clock of the signer"),
        ),
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
        assert!(serde_json::from_value::<ApprovalRequest>(wrong.clone()).is_err(), "{wrong}");
    }
}

/// Since when the first try waits.
const WAITS_SINCE: &str = "2026-11-22T09:00:00Z";
/// When the approval that was signed at [`NOW`] was recorded.
const RECORDED_AT: &str = "2026-11-22T10:00:02Z";

/// The signature of a body that was signed at [`NOW`].
fn signature() -> ApprovalSignature<'static> {
    ApprovalSignature { secret: "keys", key_id: "abc", signed_at: at(NOW), now: at(RECORDED_AT) }
}

/// Returns the names of the promotions that a body approves.
fn approved_names(request_body: &ApprovalRequest, all: &[Promotion]) -> Result<Vec<String>, String> {
    let found = approved_promotions(request_body, all)?;
    Ok(found.iter().map(|p| p.metadata.name.clone().unwrap()).collect())
}

/// Returns true if the recorded approval of a promotion is for its current try.
fn is_approved(promotion: &Promotion) -> bool {
    counts(promotion, promotion.status.as_ref().unwrap().key_approval.as_deref())
}

#[test]
fn an_approval_is_for_the_promotion_that_waits_for_it() {
    let request_body = request("apps/podinfo", "prod", "6.1.9", NOW);
    let names = |all: &[Promotion]| approved_names(&request_body, all);
    let fresh = promotion("fresh", "6.1.9", &waiting(WAITS_SINCE, None, None));
    let other = promotion("other", "6.2.0", &waiting(WAITS_SINCE, None, None));
    assert_eq!(names(&[other.clone(), fresh.clone()]), Ok(vec!["fresh".to_string()]));
    assert!(names(std::slice::from_ref(&other)).unwrap_err().contains("6.2.0 waits there"));
    assert!(names(&[]).unwrap_err().contains("no promotion waits there"));
    for phase in ["Promoting", "Proposed", "Delivered", "Succeeded", "Failed", "Rejected", "Superseded"] {
        let status = json!({"phase": phase, "gates": [{"name": "Approval", "open": false}]});
        assert!(names(&[promotion("on", "6.1.9", &status)]).is_err(), "{phase}");
    }

    // The approval was recorded, so the same body changes nothing any more.
    let StatusChange::Write(written) = status_change(&fresh, &request_body, signature()) else {
        panic!("not recorded")
    };
    let approval = &written["keyApproval"];
    assert_eq!((&approval["secret"], &approval["signedAt"]), (&json!("keys"), &json!(NOW)));
    let recorded = promotion("fresh", "6.1.9", &waiting(WAITS_SINCE, Some((NOW, RECORDED_AT)), None));
    assert!(is_approved(&recorded));
    assert_eq!(status_change(&recorded, &request_body, signature()), StatusChange::Unchanged);
    assert_eq!(names(std::slice::from_ref(&recorded)), Ok(vec!["fresh".to_string()]));

    // A promotion of another revision is foreign to the body.
    assert_eq!(status_change(&other, &request_body, signature()), StatusChange::Foreign);
}

#[test]
fn a_repeated_call_approves_the_targets_that_the_first_one_did_not_reach() {
    let body = request("apps/podinfo", "prod", "6.1.9", NOW);
    let recorded = promotion("eu", "6.1.9", &waiting(WAITS_SINCE, Some((NOW, RECORDED_AT)), None));
    let left = promotion("us", "6.1.9", &waiting(WAITS_SINCE, None, None));
    // What began to wait after the body was signed needs a body of its own.
    let later = promotion("asia", "6.1.9", &waiting("2026-11-22T10:00:01Z", None, None));
    let mut retried = promotion("africa", "6.1.9", &waiting("2026-11-22T09:59:58Z", None, None));
    retried.status.as_mut().unwrap().retries = 1;
    let all = [recorded, left.clone(), later, retried];
    assert_eq!(approved_names(&body, &all), Ok(vec!["eu".to_string(), "us".to_string()]));
    assert!(matches!(status_change(&left, &body, signature()), StatusChange::Write(_)));
}

#[test]
fn an_approval_is_for_one_try() {
    let first = request("apps/podinfo", "prod", "6.1.9", NOW);
    let second_try = "2026-11-22T10:02:00Z";
    // The promotion failed, and a person retried it. The earlier body approves neither this try nor another
    // promotion of the same revision.
    let spent = waiting(second_try, Some((NOW, RECORDED_AT)), Some(NOW));
    let retried = promotion("fresh", "6.1.9", &spent);
    assert!(!is_approved(&retried));
    let why = approved_names(&first, std::slice::from_ref(&retried)).unwrap_err();
    assert!(why.contains("sign a new body"), "{why}");
    assert_eq!(status_change(&retried, &first, signature()), StatusChange::Unchanged);
    let again = promotion("again", "6.1.9", &waiting(second_try, None, None));
    let mut ended = promotion("fresh", "6.1.9", &waiting(WAITS_SINCE, Some((NOW, RECORDED_AT)), None));
    ended.status.as_mut().unwrap().phase = sluice_api::promotion::Phase::Succeeded;
    assert_eq!(approved_names(&first, &[ended, again]), Ok(vec!["fresh".to_string()]));
    // The approval was not spent, since the replica that handled the retry had not received it. It is older than
    // the wait.
    assert!(!is_approved(&promotion("fresh", "6.1.9", &waiting(second_try, Some((NOW, RECORDED_AT)), None))));
    // A new body approves the promotion even if the clock of this replica is behind the other replica's.
    let second = request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:01:58Z");
    let signed = ApprovalSignature { signed_at: second.at, now: at("2026-11-22T10:01:59Z"), ..signature() };
    let StatusChange::Write(written) = status_change(&retried, &second, signed) else {
        panic!("not recorded")
    };
    assert_eq!(written["keyApproval"]["at"], second_try);
    // After a second retry, the body that approved the first try does not approve the third.
    let third_try = waiting(
        "2026-11-22T10:03:00Z",
        Some(("2026-11-22T10:01:58Z", second_try)),
        Some("2026-11-22T10:01:58Z"),
    );
    let replayed = ApprovalSignature { now: at("2026-11-22T10:03:30Z"), ..signature() };
    let change = status_change(&promotion("fresh", "6.1.9", &third_try), &first, replayed);
    let StatusChange::Rejected(why) = change else { panic!("the body of the first try was accepted again") };
    assert!(why.contains("sign a new body"), "{why}");
    // A promotion of another revision is foreign to the second body, too.
    let other = promotion("other", "6.2.0", &waiting(WAITS_SINCE, None, None));
    assert_eq!(status_change(&other, &second, signed), StatusChange::Foreign);
}

#[test]
fn a_body_that_was_signed_before_a_retry_does_not_approve_the_next_try_even_if_it_was_not_sent() {
    let request_body = request("apps/podinfo", "prod", "6.1.9", "2026-11-22T10:01:57Z");
    let signature = ApprovalSignature {
        secret: "keys",
        key_id: "abc",
        signed_at: request_body.at,
        now: at("2026-11-22T10:02:30Z"),
    };
    let began = "2026-11-22T10:02:00Z";
    for before in [None, Some((NOW, "2026-11-22T10:00:02Z"))] {
        let waits = waiting(began, before, before.map(|(signed_at, _)| signed_at));
        let StatusChange::Rejected(why) =
            status_change(&promotion("fresh", "6.1.9", &waits), &request_body, signature)
        else {
            panic!("a body of the first try approves the second")
        };
        assert!(why.contains("sign a new body"), "{why}");
    }
}

#[test]
fn a_retried_promotion_takes_no_body_that_a_fast_clock_may_have_signed_before_the_retry() {
    let mut status = waiting("2026-11-22T09:59:00Z", None, None);
    status["retries"] = 1.into();
    for (signed_at, accepted) in [
        ("2026-11-22T09:58:59Z", false),
        ("2026-11-22T09:59:00Z", false),
        ("2026-11-22T09:59:02.9Z", false),
        ("2026-11-22T09:59:03Z", true),
    ] {
        let request_body = request("apps/podinfo", "prod", "6.1.9", signed_at);
        let signature =
            ApprovalSignature { secret: "keys", key_id: "abc", signed_at: at(signed_at), now: at(NOW) };
        let change = status_change(&promotion("fresh", "6.1.9", &status), &request_body, signature);
        assert_eq!(matches!(change, StatusChange::Write(_)), accepted, "{signed_at}: {change:?}");
    }
}

/// The stored approval was signed and recorded while the clocks of caller and hub were a day ahead.
#[test]
fn a_stored_time_ahead_of_the_clock_delays_no_approval_and_permits_no_replay() {
    let ahead = Some(("2026-11-23T09:00:00Z", "2026-11-23T09:00:01Z"));
    for (why, since, before, signed_at, accepted) in [
        ("signed after it began to wait", "2026-11-22T09:59:00Z", ahead, "2026-11-22T09:59:30Z", true),
        (
            "signed in the second in which it began to wait",
            "2026-11-22T09:59:00Z",
            ahead,
            "2026-11-22T09:59:00Z",
            true,
        ),
        ("of an earlier try", "2026-11-22T09:59:00Z", ahead, "2026-11-22T09:58:59Z", false),
        (
            "waits since a time ahead of the clock",
            "2026-11-23T09:00:02Z",
            ahead,
            "2026-11-22T09:59:30Z",
            true,
        ),
        (
            "waits since a time ahead of the clock, and may have been signed before the retry",
            "2026-11-23T09:00:02Z",
            ahead,
            "2026-11-22T09:59:29Z",
            false,
        ),
        (
            "the first try waits since a time ahead of the clock",
            "2026-11-23T09:00:02Z",
            None,
            "2026-11-22T09:55:00Z",
            true,
        ),
        (
            "an earlier body than the recorded one, whose time is within the tolerance",
            "2026-11-22T09:59:00Z",
            Some(("2026-11-22T10:01:00Z", "2026-11-22T10:00:00Z")),
            "2026-11-22T10:00:59Z",
            false,
        ),
        (
            "the recorded time is just outside the tolerance",
            "2026-11-22T09:59:00Z",
            Some(("2026-11-22T10:01:01Z", "2026-11-22T10:00:00Z")),
            "2026-11-22T10:00:59Z",
            true,
        ),
    ] {
        let spent = before.map(|(signed_at, _)| signed_at);
        let waits = promotion("fresh", "6.1.9", &waiting(since, before, spent));
        let request_body = request("apps/podinfo", "prod", "6.1.9", signed_at);
        let signature =
            ApprovalSignature { secret: "keys", key_id: "abc", signed_at: at(signed_at), now: at(NOW) };
        let change = status_change(&waits, &request_body, signature);
        assert_eq!(matches!(change, StatusChange::Write(_)), accepted, "{why}: {change:?}");
    }
}

/// A promotion was approved twice while the clocks of caller and hub were a day ahead, and was retried after each. Once the
/// clocks are right, a new body approves it. A day later, the promotion waits for its fifth approval.
#[test]
fn a_body_of_a_clock_that_was_ahead_is_not_accepted_again_when_its_time_comes() {
    let body = |signed_at: &str| request("apps/podinfo", "prod", "6.1.9", signed_at);
    let change = |status: &Value, signed_at: &str| {
        let waits = promotion("fresh", "6.1.9", status);
        let signature =
            ApprovalSignature { secret: "keys", key_id: "abc", signed_at: at(signed_at), now: at(signed_at) };
        status_change(&waits, &body(signed_at), signature)
    };
    let mut status = waiting("2026-11-23T08:50:00Z", None, None);
    let ahead = ["2026-11-23T09:00:00Z", "2026-11-23T09:10:00Z"];
    for (signed_at, next_wait) in [
        (ahead[0], "2026-11-23T09:05:00Z"),
        (ahead[1], "2026-11-23T09:15:00Z"),
        (NOW, "2026-11-22T10:05:00Z"),
        ("2026-11-22T10:06:00Z", "2026-11-22T10:10:00Z"),
    ] {
        let StatusChange::Write(written) = change(&status, signed_at) else { panic!("{signed_at}: refused") };
        status["keyApproval"] = written["keyApproval"].clone();
        status["spentKeyApproval"] = written["keyApproval"]["signedAt"].clone();
        status["retries"] = 1.into();
        status["times"]["Pending"] = next_wait.into();
    }
    for signed_at in ahead {
        let StatusChange::Rejected(why) = change(&status, signed_at) else {
            panic!("{signed_at}: accepted again")
        };
        assert!(why.contains("sign a new body"), "{why}");
    }
    assert!(matches!(change(&status, "2026-11-23T09:00:01Z"), StatusChange::Write(_)));
}

#[test]
fn a_request_is_for_promotions_of_its_pipeline_environment_and_revision() {
    let request_body = request("apps/podinfo", "prod", "6.1.9", NOW);
    let spec = |pipeline: &str, environment: &str, revision: &str| PromotionSpec {
        pipeline: pipeline.into(),
        environment: environment.into(),
        revision: revision.into(),
        ..PromotionSpec::default()
    };
    assert!(is_for(&request_body, &spec("podinfo", "prod", "6.1.9")));
    for other in
        [spec("other", "prod", "6.1.9"), spec("podinfo", "dev", "6.1.9"), spec("podinfo", "prod", "6.1.8")]
    {
        assert!(!is_for(&request_body, &other), "{other:?}");
    }
}

#[test]
fn the_rest_of_an_approvals_path_is_one_unescaped_revision() {
    let revision = |path: &str| match Route::parse(path)?.endpoint {
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
        // The revision is only compared with other revisions.
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
        assert_eq!(Route::parse(path), None, "{path}");
    }
    assert_eq!(Route::parse(&format!("/approval/a/b/c/{}", "x".repeat(1025))), None);
}

#[test]
fn key_ids_differ_and_do_not_depend_on_white_space_around_the_key() {
    let (one, other) = (key_id(b"one key"), key_id(b"another key"));
    assert_ne!(one, other);
    assert_eq!(one, key_id(b"one key\n"));
    assert_eq!(one.len(), 6);
}
