//! The events of pipelines and promotions.

use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use sluice_view::events::{EventFilter, EventLine, events};

/// Returns an event about an object of Sluice, with these further fields.
fn event(name: &str, kind: &str, object: &str, fields: Value) -> Event {
    let mut event = json!({
        "metadata": {"name": name, "namespace": "apps", "creationTimestamp": "2026-11-21T10:00:00Z"},
        "involvedObject": {"apiVersion": "pipelines.weave.works/v1alpha1", "kind": kind, "name": object,
            "namespace": "apps"},
        "type": "Normal", "reason": name, "message": "why",
    });
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(event).unwrap()
}

/// Events of two pipelines and their promotions, of another object, and without optional fields.
fn listed() -> Vec<Event> {
    let related =
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": "podinfo"});
    vec![
        event("Proposed", "Promotion", "podinfo-prod-1", json!({"lastTimestamp": "2026-11-21T11:30:00Z"})),
        event("Started", "Promotion", "podinfo-prod-1", json!({"eventTime": "2026-11-21T11:00:00.000000Z"})),
        event("Deleted", "Promotion", "podinfo-prod-0", json!({"related": related})),
        event("Suspended", "Pipeline", "search", json!({"lastTimestamp": "2026-11-21T10:30:00Z"})),
        event(
            "Failed",
            "Pipeline",
            "podinfo",
            json!({"type": "Warning", "eventTime": "2026-11-21T11:00:00.000000Z",
                "series": {"count": 3, "lastObservedTime": "2026-11-21T11:45:00.000000Z"}}),
        ),
        event(
            "Foreign",
            "Pipeline",
            "podinfo",
            json!({"involvedObject": {"apiVersion": "other/v1",
            "kind": "Pipeline", "name": "podinfo"}}),
        ),
    ]
}

/// Returns the events as lines of text.
fn shown(filter: &EventFilter<'_>) -> String {
    let line = |line: EventLine| {
        let at = line.last_seen.map(|at| at.to_string()).unwrap_or_default();
        format!("{at} {} {} {}/{}: {}", line.type_, line.reason, line.namespace, line.object, line.message)
    };
    events(listed(), filter).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_newest_comes_last_by_the_time_of_its_last_repetition() {
    insta::assert_snapshot!(shown(&EventFilter::default()), @"
    2026-11-21T10:00:00Z Normal Deleted apps/promotion/podinfo-prod-0: why
    2026-11-21T10:30:00Z Normal Suspended apps/pipeline/search: why
    2026-11-21T11:00:00Z Normal Started apps/promotion/podinfo-prod-1: why
    2026-11-21T11:30:00Z Normal Proposed apps/promotion/podinfo-prod-1: why
    2026-11-21T11:45:00Z Warning Failed apps/pipeline/podinfo: why
    ");
}

#[test]
fn filters_keep_a_pipeline_with_its_promotions_and_a_type() {
    let promotions = ["podinfo-prod-1".to_owned()];
    let of_pipeline = EventFilter { pipeline: Some("podinfo"), promotions: &promotions, types: &[] };
    // A promotion that was deleted is known by the pipeline in its event.
    insta::assert_snapshot!(shown(&of_pipeline), @"
    2026-11-21T10:00:00Z Normal Deleted apps/promotion/podinfo-prod-0: why
    2026-11-21T11:00:00Z Normal Started apps/promotion/podinfo-prod-1: why
    2026-11-21T11:30:00Z Normal Proposed apps/promotion/podinfo-prod-1: why
    2026-11-21T11:45:00Z Warning Failed apps/pipeline/podinfo: why
    ");
    let types = ["Warning".to_owned()];
    insta::assert_snapshot!(shown(&EventFilter { types: &types, ..of_pipeline }), @"2026-11-21T11:45:00Z Warning Failed apps/pipeline/podinfo: why");
    let of_other = EventFilter { pipeline: Some("search"), ..EventFilter::default() };
    insta::assert_snapshot!(shown(&of_other), @"2026-11-21T10:30:00Z Normal Suspended apps/pipeline/search: why");
}

#[test]
fn an_event_without_optional_fields_is_shown() {
    let bare: Event = serde_json::from_value(json!({
        "metadata": {}, "involvedObject": {"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": "podinfo"},
    }))
    .unwrap();
    let shown = events(vec![bare], &EventFilter::default());
    let expected =
        EventLine { type_: "Normal".into(), object: "pipeline/podinfo".into(), ..EventLine::default() };
    assert_eq!(shown, [expected]);
}
