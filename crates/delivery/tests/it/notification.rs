//! Events in the form of Flux: what is sent to the address in `--events-addr`, and the meaning of its answers. The shape is
//! that of Flux's event type, and the keys are those that its notification-controller passes on.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use sluice_delivery::notification::{self, ProgressEvent};
use sluice_delivery::{Announcement, Credentials, Delivered, DeliveryStrategy, Order, Retry};

use crate::fixture::{self, Bench, bench, bench_with};
use crate::receiver::{Receiver, Reply};
use crate::webhook::about;

fn order(about: Announcement) -> Order {
    Order {
        promotion: "apps/podinfo-prod-0123456789".into(),
        credentials: Credentials::default(),
        ..fixture::order(DeliveryStrategy::Notification(Box::new(about)), "6.1.8")
    }
}

fn sending_to(receiver: &Receiver) -> Bench {
    bench_with(|o| {
        o.events_addr = Some(format!("http://{}/", receiver.host));
        o.deadline = Duration::from_secs(2);
    })
}

#[tokio::test]
async fn without_an_address_no_event_is_sent() {
    let done = bench().delivery.deliver(&order(about())).await.unwrap();
    assert_eq!(done, Delivered::Notified { to: None });
}

#[tokio::test]
async fn the_event_has_the_shape_of_flux() {
    let receiver = Receiver::start().await;
    let done = sending_to(&receiver).delivery.deliver(&order(about())).await.unwrap();
    assert_eq!(done, Delivered::Notified { to: Some("127.0.0.1".into()) });
    let call = receiver.calls().remove(0);
    assert_eq!((&call.method, call.path.as_str()), (&Method::POST, "/"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    let mut event = call.json();
    let at = event["timestamp"].take();
    let at = at.as_str().unwrap();
    assert!(at.len() == "2026-11-20T10:15:45Z".len() && at.ends_with('Z'), "{at}: whole seconds, UTC");
    event.as_object_mut().unwrap().remove("reportingInstance");
    let id = about().uid;
    assert_eq!(
        event,
        json!({
            "involvedObject": {
                "kind": "Pipeline",
                "namespace": "apps",
                "name": "podinfo",
                "uid": about().pipeline_uid,
                "apiVersion": "pipelines.weave.works/v1alpha1",
                "resourceVersion": "42",
            },
            "severity": "info",
            "timestamp": null,
            "message": "Promote pipeline apps/podinfo to prod with version 6.1.8",
            "reason": "Promote",
            "metadata": {
                "pipelines.weave.works/environment": "prod",
                "pipelines.weave.works/id": id,
                "pipelines.weave.works/pipeline": "podinfo",
                "pipelines.weave.works/promotion": "podinfo-prod-0123456789",
                "pipelines.weave.works/replaces": "6.1.5",
                "pipelines.weave.works/revision": "6.1.8",
                "pipelines.weave.works/token": id,
                "pipelines.weave.works/version": "6.1.8",
            },
            "reportingController": "sluice",
        })
    );
    // In the order in which Go writes it: some receivers sign or compare what they pass on.
    let text = String::from_utf8(call.body.to_vec()).unwrap();
    let places: Vec<_> =
        ["involvedObject", "severity", "timestamp", "message", "reason", "metadata", "reportingController"]
            .iter()
            .map(|key| text.find(&format!("\"{key}\":")).unwrap())
            .collect();
    assert!(places.is_sorted(), "{text}");
}

/// A progress event of an object.
fn progress(is_error: bool) -> ProgressEvent {
    let metadata =
        [("environment", "prod"), ("revision", "6.1.8"), ("commit", ""), ("token", "u-1.0 Approved")];
    ProgressEvent {
        kind: "Promotion",
        namespace: "apps".into(),
        name: "podinfo-prod-1".into(),
        uid: "u-1".into(),
        is_error,
        reason: "Approved".into(),
        message: "6.1.8 into prod: approved by jane".into(),
        metadata: metadata.map(|(key, value)| (key.to_string(), value.to_string())).into(),
        at: "2026-11-20T10:15:45.678Z".parse().unwrap(),
    }
}

#[tokio::test]
async fn news_have_the_shape_of_flux() {
    let receiver = Receiver::start().await;
    for (is_error, severity) in [(false, "info"), (true, "error")] {
        sending_to(&receiver).delivery.send_progress_event(&progress(is_error)).await.unwrap();
        let call = receiver.calls().pop().unwrap();
        assert_eq!((&call.method, call.path.as_str()), (&Method::POST, "/"));
        assert_eq!(call.header("content-type"), Some("application/json"));
        let mut event = call.json();
        event.as_object_mut().unwrap().remove("reportingInstance");
        // A value that is empty is left out. notification-controller passes on only keys with the object's group.
        assert_eq!(
            event,
            json!({
                "involvedObject": {
                    "kind": "Promotion",
                    "namespace": "apps",
                    "name": "podinfo-prod-1",
                    "uid": "u-1",
                    "apiVersion": "pipelines.weave.works/v1alpha1",
                },
                "severity": severity,
                "timestamp": "2026-11-20T10:15:45Z",
                "message": "6.1.8 into prod: approved by jane",
                "reason": "Approved",
                "metadata": {
                    "pipelines.weave.works/environment": "prod",
                    "pipelines.weave.works/revision": "6.1.8",
                    "pipelines.weave.works/token": "u-1.0 Approved",
                },
                "reportingController": "sluice",
            })
        );
    }
}

#[tokio::test]
async fn news_count_as_sent_if_the_receiver_has_them_already() {
    let receiver = Receiver::start().await;
    let bench = sending_to(&receiver);
    for (status, headers, reason) in [
        (202, vec![], None),
        // notification-controller received the same token within the last five minutes.
        (429, vec![], None),
        (429, vec![("retry-after", "300".into())], Some("RateLimited")),
        (400, vec![], Some("EventsRefused")),
        (503, vec![], Some("Unreachable")),
    ] {
        receiver.reply(Reply::With(status, headers, "no".into()));
        let sent = bench.delivery.send_progress_event(&progress(false)).await;
        assert_eq!(sent.err().map(|error| error.reason()), reason, "{status}");
    }
    assert!(bench.delivery.sends_events() && !crate::fixture::bench().delivery.sends_events());
}

/// What notification-controller makes of metadata: keys with the group of the object or its own, and
/// without them; some it keeps for itself.
fn passed_on(order: &Order, about: &Announcement) -> Vec<String> {
    let kept = ["checksum", "digest", "token"];
    let keys = notification::metadata(order, about).into_keys();
    let bare = keys.filter_map(|key| key.strip_prefix("pipelines.weave.works/").map(str::to_string));
    bare.filter(|key| !kept.contains(&key.as_str())).collect()
}

#[test]
fn the_metadata_for_receivers_passes_notification_controller() {
    let keys = passed_on(&order(about()), &about());
    assert_eq!(keys, ["environment", "id", "pipeline", "promotion", "replaces", "revision", "version"]);
}

#[tokio::test]
async fn answers_have_the_meaning_that_flux_gives_them() {
    let receiver = Receiver::start().await;
    let bench = sending_to(&receiver);
    let sure = about();
    let doubtful = Announcement { in_doubt: true, ..about() };
    let text = || String::from(r#"{"message": "no, says it", "debug": "more"}"#);
    let cases = [
        (200, &sure, None),
        (202, &sure, None),
        (204, &sure, None),
        // It has had this very event; or somebody on the way has had enough.
        (429, &doubtful, None),
        (429, &sure, Some("Unreachable")),
        (500, &sure, Some("Unreachable")),
        (500, &doubtful, Some("Unreachable")),
        (503, &sure, Some("Unreachable")),
        (408, &sure, Some("Unreachable")),
        (302, &sure, Some("EventsRefused")),
        (400, &sure, Some("EventsRefused")),
        (404, &sure, Some("EventsRefused")),
        (413, &doubtful, Some("EventsRefused")),
    ];
    for (status, about, reason) in cases {
        receiver.reply(Reply::With(status, vec![], text()));
        let done = bench.delivery.deliver(&order(about.clone())).await;
        match (&done, reason) {
            (Ok(Delivered::Notified { to: Some(_) }), None) => {}
            (Err(error), Some(reason)) => {
                assert_eq!((error.reason(), error.retry()), (reason, Retry::Soon), "{status}");
                assert!(error.to_string().contains("no, says it") && !error.to_string().contains("more"));
            }
            _ => panic!("{status}: {done:?}"),
        }
    }
    receiver.reply(Reply::With(429, vec![("retry-after", "300".into())], text()));
    let error = bench.delivery.deliver(&order(sure.clone())).await.unwrap_err();
    assert!(matches!(error.retry(), Retry::At(_)) && error.reason() == "RateLimited", "{error}");
}

#[tokio::test]
async fn an_unanswered_event_differs_from_one_that_cannot_have_arrived() {
    let receiver = Receiver::start().await;
    let bench = sending_to(&receiver);
    for reply in [Reply::Hang, Reply::Broken] {
        receiver.reply(reply);
        let error = bench.delivery.deliver(&order(about())).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), (notification::UNANSWERED, Retry::Soon), "{error}");
    }
    let gone = bench_with(|o| o.events_addr = Some("http://127.0.0.1:9/".into()));
    let error = gone.delivery.deliver(&order(about())).await.unwrap_err();
    assert_eq!(error.reason(), "Unreachable", "{error}");
}
