//! Fills the fields of progress events, which Flux's notification-controller passes on. `promotion_events.rs` decides which
//! changes cause an event, and `event_sender.rs` sends it.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::Promotion;
use sluice_delivery::clock;
use sluice_delivery::notification::ProgressEvent;

/// Returns the object that an event is about, for the log.
pub(super) fn object_of(event: &ProgressEvent) -> String {
    format!("{} {}/{}", event.kind, event.namespace, event.name)
}

/// Returns the event about a promotion.
pub(super) fn of_promotion(
    promotion: &Promotion,
    reason: &str,
    message: String,
    is_error: bool,
) -> ProgressEvent {
    let spec = &promotion.spec;
    let status = promotion.status.as_ref();
    let url = status.and_then(|s| s.change_request.as_ref()).map(|r| r.url.clone());
    let round = status.map_or(0, |s| s.round);
    let (uid, at) = (promotion.uid().unwrap_or_default(), clock::now());
    let metadata = [
        ("pipeline", spec.pipeline.clone()),
        ("environment", spec.place()),
        ("revision", spec.revision.clone()),
        ("replaces", spec.replaces.clone()),
        ("changeRequest", url.unwrap_or_default()),
        ("commit", status.and_then(|s| s.commit.clone()).unwrap_or_default()),
        ("token", format!("{uid}.{round} {reason}")),
    ];
    ProgressEvent {
        kind: "Promotion",
        namespace: promotion.namespace().unwrap_or_default(),
        name: promotion.name_any(),
        uid,
        is_error,
        reason: reason.into(),
        message,
        metadata: metadata.map(|(key, value)| (key.to_string(), value)).into(),
        at,
    }
}

/// Returns the event about a cluster of a pipeline.
pub(super) fn of_cluster(
    pipeline: &Pipeline,
    reason: &str,
    message: String,
    is_error: bool,
) -> ProgressEvent {
    let at = clock::now();
    ProgressEvent {
        kind: "Pipeline",
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
        is_error,
        reason: reason.into(),
        message,
        metadata: BTreeMap::from([("token".into(), format!("{reason} {at}"))]),
        at,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_about_a_promotion_has_what_a_receiver_needs() {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod-1", "namespace": "apps", "uid": "u-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "replaces": "6.1.5", "facets": {}},
            "status": {"round": 2, "commit": "c0ffee", "changeRequest": {"number": 7, "url": "https://forge/7",
                "state": "open", "branch": "b", "headCommit": "c"}}});
        let promotion: Promotion = serde_json::from_value(object).unwrap();
        let sent = of_promotion(&promotion, "Approved", "6.1.8 into prod: approved by jane".into(), false);
        let metadata: BTreeMap<&str, &str> =
            sent.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = BTreeMap::from([
            ("pipeline", "podinfo"),
            ("environment", "prod"),
            ("revision", "6.1.8"),
            ("replaces", "6.1.5"),
            ("changeRequest", "https://forge/7"),
            ("commit", "c0ffee"),
            // The token contains the round, so the same reason in the next round is not a repetition.
            ("token", "u-1.2 Approved"),
        ]);
        assert_eq!(metadata, expected);
        assert_eq!(
            (sent.kind, sent.namespace.as_str(), sent.name.as_str(), sent.uid.as_str(), sent.is_error),
            ("Promotion", "apps", "podinfo-prod-1", "u-1", false)
        );
        assert_eq!(
            (sent.reason.as_str(), sent.message.as_str()),
            ("Approved", "6.1.8 into prod: approved by jane")
        );
    }
}
