//! The records of promotions: a new record, and the changes of its status.

use jiff::Timestamp;
use serde_json::json;
use sluice_api::promotion::{
    Approval, GivenApproval, Phase, PromotionSpec, PromotionStatus, RecordedChangeRequest,
};
use sluice_api::{Pipeline, Promotion};
use sluice_controller::act::strategy::is_handed_over;
use sluice_controller::record::promotion::{
    DeliveryKind, ENVIRONMENT_LABEL, PIPELINE_LABEL, RecordChange, apply, object,
};
use sluice_core::Revision;
use sluice_core::decide::{NewPromotion, Transition};
use sluice_core::promotion::{Gate, GateKind};

fn now() -> Timestamp {
    "2026-11-21T09:00:00Z".parse().unwrap()
}

fn request(state: &str) -> RecordedChangeRequest {
    let (number, url) = (7, "https://forge/7".to_string());
    RecordedChangeRequest { number, url, state: state.into(), ..RecordedChangeRequest::default() }
}

fn spec() -> PromotionSpec {
    let approval = Approval { by: "jane".into(), revision: String::new(), retries: 0, at: None };
    PromotionSpec { approval: Some(approval), ..PromotionSpec::default() }
}

fn moved(to: Phase, reason: &'static str, spends_approval: bool) -> RecordChange {
    let answers = (reason == "Retried").then(|| "token".to_string());
    let (promotion, message) = ("p".into(), "why".into());
    RecordChange::Moved(Transition {
        promotion,
        to,
        reason,
        message,
        answers,
        spends_approval,
        is_undone: false,
    })
}

/// Returns the status after these changes.
fn after(changes: &[RecordChange]) -> PromotionStatus {
    changes.iter().fold(PromotionStatus::default(), |status, change| apply(&status, &spec(), change, now()))
}

#[test]
fn labels_are_cut_to_the_length_that_kubernetes_allows() {
    let name = format!("{}.-{}", "a".repeat(62), "b".repeat(100));
    let pipeline: Pipeline = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "apps", "uid": "u"}, "spec": {"environments": []},
    }))
    .unwrap();
    let facets = [("HelmRelease/podinfo:chart".to_string(), "6.1.8".to_string())].into();
    let record = object(
        &pipeline,
        &NewPromotion {
            target: None,
            name: "p".into(),
            environment: "prod".into(),
            revision: Revision::from_strings(&facets).unwrap(),
            run: 0,
            arrival: 1,
            sequence: 1,
            replaces: String::new(),
            proven_by: Vec::new(),
        },
    );
    let labels = record.metadata.labels.unwrap();
    assert_eq!(
        (labels[PIPELINE_LABEL].as_str(), labels[ENVIRONMENT_LABEL].as_str()),
        (&*"a".repeat(62), "prod")
    );
    assert_eq!(record.spec.pipeline, name);
}

#[test]
fn a_late_result_of_a_delivery_does_not_reopen_an_ended_promotion() {
    let superseded = moved(Phase::Superseded, "Superseded", false);
    let late = after(&[superseded.clone(), RecordChange::Proposed(request("open"))]);
    assert_eq!((late.phase, late.message.as_str()), (Phase::Superseded, "why"));
    assert_eq!(
        late.change_request,
        Some(request("open")),
        "the change request is recorded, so Sluice can close it"
    );
    let failure = RecordChange::Failed { reason: "Unreachable", message: "gone".into(), again: now() };
    assert_eq!(after(&[superseded.clone(), failure]), after(&[superseded]));
}

#[test]
fn a_retry_resets_the_attempts_and_needs_a_new_approval() {
    let failure = RecordChange::Failed { reason: "Unreachable", message: "gone".into(), again: now() };
    let failed = after(&[failure.clone(), failure]);
    assert_eq!((failed.phase, failed.attempts, failed.retries), (Phase::Promoting, 2, 0));
    assert_eq!(spec().approval_now(&failed), spec().approval.as_ref());
    let again = apply(&failed, &spec(), &moved(Phase::Pending, "Retried", true), now());
    assert_eq!((again.phase, again.attempts, &again.next_attempt), (Phase::Pending, 0, &None));
    assert_eq!((again.retried.as_deref(), again.retries), (Some("token"), 1));
    assert_eq!(spec().approval_now(&again), None);
}

#[test]
fn the_controller_records_the_time_of_an_approval_once() {
    let mut spec = spec();
    let gate = |open| Gate { open, ..Gate::closed(GateKind::Approval, String::new()) };
    let pending = PromotionStatus::default();
    let passed = apply(&pending, &spec, &RecordChange::Passed(vec![gate(true)]), now());
    let given = GivenApproval { by: "jane".into(), at: "2026-11-21T09:00:00Z".parse().unwrap(), retries: 0 };
    assert_eq!(passed.approval.as_ref(), Some(&given));
    assert_eq!((passed.reason.as_str(), passed.gates[0].open), ("GatesOpen", true));
    let later: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    let proposed = apply(&passed, &spec, &RecordChange::Proposed(request("open")), later);
    assert_eq!(proposed.approval.as_ref(), Some(&given));
    // A retry removes the gates of the earlier attempt.
    let again = apply(&proposed, &spec, &moved(Phase::Pending, "Retried", true), later);
    assert!(again.gates.is_empty() && again.approval == Some(given), "{again:?}");
    // A new approval replaces it. An approval that an earlier version of Sluice stored keeps its time. An approval
    // of another revision does not count.
    let approval = spec.approval.as_mut().unwrap();
    (approval.by, approval.retries, approval.at) =
        ("joe".into(), 1, Some("2026-11-20T08:00:00Z".parse().unwrap()));
    let second = apply(&again, &spec, &RecordChange::Passed(Vec::new()), later);
    let given = GivenApproval { by: "joe".into(), at: "2026-11-20T08:00:00Z".parse().unwrap(), retries: 1 };
    assert_eq!(second.approval, Some(given));
    spec.approval.as_mut().unwrap().revision = "6.1.9".into();
    assert_eq!(spec.approval_now(&again), None);
}

#[test]
fn a_tampered_record_fails_unless_its_promotion_has_ended() {
    let tampered = RecordChange::Tampered("its spec was changed".into());
    let failed = after(std::slice::from_ref(&tampered));
    assert_eq!((failed.phase, failed.reason.as_str()), (Phase::Failed, "Tampered"));
    let rejected = moved(Phase::Rejected, "Rejected", false);
    assert_eq!(after(&[rejected.clone(), tampered]), after(&[rejected]));
}

#[test]
fn the_change_requests_that_sluice_closed_are_kept_for_the_round() {
    let opened = |number: usize| {
        let request = RecordedChangeRequest { url: format!("pulls/{number}"), ..request("open") };
        [RecordChange::Proposed(request), RecordChange::Withdrawn]
    };
    let twice = after(&[opened(1), opened(2), opened(1)].concat());
    assert_eq!(twice.withdrawn_requests, ["pulls/2", "pulls/1"]);
    let many = after(&(0..30).flat_map(opened).collect::<Vec<_>>());
    assert_eq!((many.withdrawn_requests.len(), &*many.withdrawn_requests[19]), (20, "pulls/29"));
    let succeeded = apply(&many, &spec(), &moved(Phase::Succeeded, "Succeeded", false), now());
    let again = apply(&succeeded, &spec(), &moved(Phase::Pending, "Retried", true), now());
    assert_eq!((again.round, again.withdrawn_requests.len()), (1, 0));
}

/// Another one, which Sluice has not recorded yet, may be closed after the retry. That is a rejection.
#[test]
fn a_retry_is_about_the_change_request_that_was_closed_before_it() {
    let rejected = after(&[
        RecordChange::Proposed(request("open")),
        RecordChange::Rejected { request: Some(request("closed")), message: "it was closed".into() },
    ]);
    let retried = apply(&rejected, &spec(), &moved(Phase::Pending, "Retried", true), now());
    assert_eq!(retried.change_request, None);
    assert_eq!(retried.withdrawn_requests, [request("closed").url]);
    let not_retried = apply(&rejected, &spec(), &moved(Phase::Pending, "Resumed", false), now());
    assert_eq!(not_retried.withdrawn_requests, Vec::<String>::new());
}

#[test]
fn a_retry_starts_a_new_round_only_if_the_earlier_one_was_delivered() {
    let delivered = RecordChange::Delivered {
        kind: DeliveryKind::Called,
        delivered_to: None,
        message: "taken".into(),
        commit: None,
        request: None,
    };
    let failed = RecordChange::Failed { reason: "Unreachable", message: "gone".into(), again: now() };
    let again = moved(Phase::Pending, "Retried", false);
    let superseded = moved(Phase::Superseded, "Superseded", false);
    let late = moved(Phase::Failed, "Unhealthy", false);
    let rounds = |changes: &[&RecordChange]| {
        after(&changes.iter().map(|change| (*change).clone()).collect::<Vec<_>>()).round
    };
    assert_eq!(rounds(&[&delivered]), 0);
    assert_eq!(
        rounds(&[&failed, &failed, &again]),
        0,
        "it may have been delivered, so the idempotency key stays"
    );
    assert_eq!(rounds(&[&superseded, &moved(Phase::Pending, "Resumed", false)]), 0);
    // A new round also starts if the targets ran the revision, or if another revision replaced it.
    let succeeded = moved(Phase::Succeeded, "Succeeded", false);
    assert_eq!(rounds(&[&failed, &succeeded, &again]), 1);
    assert_eq!(rounds(&[&delivered, &succeeded, &again, &failed, &again]), 1);
    let RecordChange::Moved(to) = moved(Phase::Pending, "Resumed", false) else { unreachable!() };
    assert_eq!(
        rounds(&[&failed, &superseded, &RecordChange::Moved(Transition { is_undone: true, ..to })]),
        1
    );
    assert_eq!(rounds(&[&delivered, &late, &again]), 1);
    assert_eq!(rounds(&[&delivered, &late, &again, &failed, &again]), 1);
    assert_eq!(rounds(&[&delivered, &late, &again, &delivered, &superseded, &again]), 2);
}

#[test]
fn a_change_request_is_withdrawn_if_sluice_closes_it_and_rejected_if_a_person_does() {
    let proposed = RecordChange::Proposed(request("open"));
    let withdrawn =
        after(&[proposed.clone(), moved(Phase::Cancelled, "NotWanted", false), RecordChange::Withdrawn]);
    assert_eq!((withdrawn.phase, withdrawn.change_request), (Phase::Cancelled, Some(request("withdrawn"))));
    let closed = RecordChange::Rejected { request: Some(request("closed")), message: "closed".into() };
    let rejected = after(&[proposed, closed]);
    assert_eq!((rejected.phase, rejected.change_request), (Phase::Rejected, Some(request("closed"))));
}

#[test]
fn an_error_of_closing_the_change_request_is_shown_until_it_is_closed() {
    let trouble = |message: &str| RecordChange::Trouble { reason: "Unreachable", message: message.into() };
    let open = [RecordChange::Proposed(request("open")), moved(Phase::Superseded, "Superseded", false)];
    let stuck = after(&[&open[..], &[trouble("no route"), trouble("no answer")]].concat());
    assert_eq!(stuck.message, "why; its change request is still open: no answer");
    assert_eq!((stuck.phase, stuck.reason.as_str()), (Phase::Superseded, "Superseded"));
    let merged = RecordChange::Delivered {
        kind: DeliveryKind::Merged,
        delivered_to: None,
        message: "merged".into(),
        commit: None,
        request: Some(request("merged")),
    };
    let closed = RecordChange::Rejected { request: Some(request("closed")), message: "closed".into() };
    for end in [RecordChange::Withdrawn, RecordChange::HandedOver, merged, closed] {
        assert_eq!(apply(&stuck, &spec(), &end, now()).message, "why", "{end:?}");
    }
    let long = after(&[trouble(&"é".repeat(10_000))]);
    assert!(long.message.len() < 4100 && long.message.ends_with("é…"));
}

#[test]
fn a_change_request_that_a_later_promotion_carries_is_handed_over() {
    let promotion = |sequence: u64, number: u64, state: &str, phase: &str| -> Promotion {
        serde_json::from_value(json!({
            "metadata": {"name": format!("p-{sequence}")},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}, "sequence": sequence},
            "status": {"phase": phase, "changeRequest": {"number": number, "url": format!("https://forge/{number}"), "state": state,
                "branch": "b", "headCommit": "c"}},
        }))
        .unwrap()
    };
    let handed_over = |all: [Promotion; 3]| {
        let all = all.each_ref();
        all.map(|p| is_handed_over(p, &all))
    };
    let first = || promotion(1, 7, "open", "Superseded");
    let all = [first(), promotion(2, 8, "open", "Superseded"), promotion(3, 7, "merged", "Delivered")];
    assert_eq!(handed_over(all), [true, false, false]);
    // The second one has started again.
    let again =
        |state, phase| [first(), promotion(2, 7, "open", phase), promotion(3, 7, state, "Superseded")];
    assert_eq!(handed_over(again("open", "Proposed")), [true, false, true]);
    assert_eq!(handed_over(again("handed over", "Rejected")), [true, false, false]);
    assert_eq!(
        after(&[RecordChange::Proposed(request("open")), RecordChange::HandedOver]).change_request,
        Some(request("handed over"))
    );
}

#[test]
fn the_message_has_the_reason_for_waiting_and_the_notes_of_the_forge() {
    let mut open = request("open");
    open.notes = vec!["jane was not asked to review it: no such user".into()];
    let proposed = after(&[RecordChange::Proposed(open.clone())]);
    let expected =
        format!("waits for {} to be merged; jane was not asked to review it: no such user", open.url);
    assert_eq!(proposed.message, expected);
    let waiting =
        RecordChange::Waiting { request: open.clone(), why: "waits for 1 approval".into(), failed: false };
    let waits = apply(&proposed, &spec(), &waiting, now());
    let expected =
        format!("{}: waits for 1 approval; jane was not asked to review it: no such user", open.url);
    assert_eq!(
        (waits.phase, waits.reason.as_str(), waits.message.as_str()),
        (Phase::Proposed, "Proposed", &*expected)
    );
    // The same change again changes nothing.
    assert_eq!(apply(&waits, &spec(), &waiting, now()), waits);
    assert_eq!(apply(&waits, &spec(), &RecordChange::Proposed(open), now()).message, proposed.message);
}

#[test]
fn the_messages_of_a_record_are_safe_to_print() {
    let odd = "x\u{1b}[2J\u{202e}y".to_string();
    let gate = Gate::closed(GateKind::Downgrade, odd.clone());
    let waits = after(&[RecordChange::Waits { gates: vec![gate], message: odd.clone() }]);
    assert_eq!((waits.message.as_str(), waits.gates[0].message.as_str()), ("x[2Jy", "x[2Jy"));
    let request = RecordedChangeRequest { url: odd.clone(), notes: vec![odd], ..request("open") };
    let proposed = after(&[RecordChange::Proposed(request)]);
    let request = proposed.change_request.unwrap();
    assert_eq!((request.url.as_str(), request.notes[0].as_str()), ("x[2Jy", "x[2Jy"));
    assert_eq!(proposed.message, "waits for x[2Jy to be merged; x[2Jy");
}
