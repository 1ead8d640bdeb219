//! The delivery order that is made from a promotion's record, and the event that announces the promotion in the
//! form that Kubernetes and Flux read.

use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_controller::act::order;
use sluice_controller::runtime::notification_event;
use sluice_delivery::{Announcement, DeliveryStrategy, DeliveryTarget, Order};

fn pipeline(strategy: &Value) -> Pipeline {
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps", "uid": "pipeline-uid", "resourceVersion": "42"},
        "spec": {
            "environments": [
                {"name": "dev", "targets": [{"namespace": "podinfo"}]},
                {"name": "prod", "targets": [
                    {"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}},
                    {"name": "us", "namespace": "podinfo",
                     "clusterRef": {"kind": "GitopsCluster", "name": "us", "namespace": "fleet"}},
                    {"name": "here", "namespace": "podinfo"},
                ]},
            ],
            "promotion": {"strategy": strategy},
        },
    }))
    .unwrap()
}

fn promotion(status: &Value) -> Promotion {
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": "podinfo-prod-0123456789", "namespace": "apps", "uid": "promotion-uid",
            "creationTimestamp": "2026-11-21T10:00:00Z"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "replaces": "6.1.5",
            "facets": {"HelmRelease/podinfo:chart": "6.1.8"},
            "evidence": [{"environment": "dev", "target": "podinfo", "at": "2026-11-21T09:58:00Z"}]},
        "status": status,
    }))
    .unwrap()
}

fn ordered(strategy: &Value, status: &Value, first: bool) -> (Order, Option<String>) {
    let pipeline = pipeline(strategy);
    let by = pipeline.spec.promotion.clone().unwrap().strategy.unwrap();
    order::order(&pipeline, &promotion(status), &by, first).unwrap()
}

fn about(order: &Order) -> Announcement {
    match &order.strategy {
        DeliveryStrategy::Webhook { about, .. } | DeliveryStrategy::Notification(about) => {
            about.as_ref().clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_order_contains_the_promotion_its_targets_and_its_evidence() {
    let webhook = json!({"webhook": {"url": "https://ci.example.com/x", "secretRef": {"name": "hook"}}});
    let (order, secret) = ordered(&webhook, &json!({}), true);
    assert_eq!(secret.as_deref(), Some("hook"));
    assert!(
        matches!(&order.strategy, DeliveryStrategy::Webhook { url, .. } if url == "https://ci.example.com/x")
    );
    let target = |name: &str, cluster: Option<(&str, &str)>| DeliveryTarget {
        name: name.into(),
        namespace: "podinfo".into(),
        cluster: cluster.map(|(namespace, name)| (namespace.into(), name.into())),
    };
    assert_eq!(
        about(&order),
        Announcement {
            uid: "promotion-uid".into(),
            attempt: 1,
            in_doubt: false,
            pipeline_uid: "pipeline-uid".into(),
            pipeline_version: "42".into(),
            targets: vec![
                target("eu-podinfo", Some(("apps", "eu"))),
                target("us", Some(("fleet", "us"))),
                target("here", None),
            ],
            evidence: vec![("dev".into(), "podinfo".into(), "2026-11-21T09:58:00Z".into())],
        }
    );
    // The notification strategy does not use the pipeline's Secret, and the webhook strategy has a Secret of its
    // own.
    let (_, secret) = ordered(&json!({"notification": {}, "secretRef": {"name": "hmac"}}), &json!({}), true);
    assert_eq!(secret, None);
    let (_, secret) =
        ordered(&json!({"webhook": {"url": "https://a/"}, "secretRef": {"name": "hmac"}}), &json!({}), true);
    assert_eq!(secret, None);
}

#[test]
fn an_announcement_contains_the_attempt_the_round_and_whether_an_earlier_attempt_is_in_doubt() {
    let unanswered = json!({"phase": "Promoting", "reason": "EventUnanswered", "attempts": 2});
    let refused = json!({"phase": "Promoting", "reason": "Unreachable", "attempts": 2});
    let retried = json!({"phase": "Pending", "reason": "Retried", "round": 1});
    let cases = [
        // This process created the record, and has not tried yet.
        (json!({}), true, (1, false, "promotion-uid")),
        // Another process created the record, and may have been killed after it sent the announcement.
        (json!({}), false, (1, true, "promotion-uid")),
        (unanswered, false, (3, true, "promotion-uid")),
        (refused, false, (3, false, "promotion-uid")),
        (retried, false, (1, true, "promotion-uid.1")),
    ];
    for (status, first, expected) in cases {
        let (order, _) = ordered(&json!({"notification": {}}), &status, first);
        let (about, round) = (about(&order), order.round);
        assert_eq!((about.attempt, about.in_doubt, about.identity(round).as_str()), expected, "{status}");
    }
}

fn event(status: &Value) -> Value {
    let strategy = json!({"notification": {}});
    let (order, _) = ordered(&strategy, status, true);
    let now = "2026-11-21T10:00:01.25Z".parse().unwrap();
    let event = notification_event::event(&pipeline(&strategy), &promotion(status), &order, now).unwrap();
    serde_json::to_value(event).unwrap()
}

#[test]
fn the_event_has_the_form_that_kubernetes_and_flux_read() {
    let mut event = event(&json!({}));
    assert!(event["reportingInstance"].take().is_string(), "the API server requires it");
    let name = event["metadata"]["name"].take();
    let name = name.as_str().unwrap();
    assert!(name.starts_with("podinfo-prod-0123456789.") && name.len() == 40, "{name}");
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": null,
                "namespace": "apps",
                // notification-controller forwards annotations with the API group of the object as prefix, without
                // it.
                "annotations": {
                    "pipelines.weave.works/environment": "prod",
                    "pipelines.weave.works/id": "promotion-uid",
                    "pipelines.weave.works/pipeline": "podinfo",
                    "pipelines.weave.works/promotion": "podinfo-prod-0123456789",
                    "pipelines.weave.works/replaces": "6.1.5",
                    "pipelines.weave.works/revision": "6.1.8",
                    "pipelines.weave.works/token": "promotion-uid",
                    "pipelines.weave.works/version": "6.1.8",
                },
            },
            "eventTime": "2026-11-21T10:00:01.250000Z",
            "type": "Normal",
            "reason": "Promote",
            "action": "Announce",
            "note": "Promote pipeline apps/podinfo to prod with version 6.1.8",
            "regarding": {
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "namespace": "apps",
                "name": "podinfo", "uid": "pipeline-uid",
            },
            "related": {
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "namespace": "apps",
                "name": "podinfo-prod-0123456789", "uid": "promotion-uid",
            },
            "reportingController": "sluice",
            "reportingInstance": null,
        })
    );
}

#[test]
fn the_name_of_the_event_changes_only_when_the_promotion_is_retried() {
    let name = |status: &Value| event(status)["metadata"]["name"].as_str().unwrap().to_string();
    let first = name(&json!({}));
    assert_eq!(first, name(&json!({"phase": "Promoting", "reason": "Unreachable", "attempts": 7})));
    assert_ne!(first, name(&json!({"phase": "Pending", "reason": "Retried", "round": 1})));
    let (order, _) = ordered(&json!({"webhook": {"url": "https://a/"}}), &json!({}), true);
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert!(notification_event::event(&pipeline(&json!({})), &promotion(&json!({})), &order, now).is_none());
}
