//! The health of a workload, by the rules of kstatus, which Flux uses.

use super::condition::{find, is_ready};
use kube::api::DynamicObject;

/// Returns true if an applied object is `Current` in the terms of kstatus.
pub(crate) fn is_current(object: &DynamicObject) -> bool {
    let kind = object.types.as_ref().map_or("", |t| t.kind.as_str());
    match kind {
        "Deployment" => deployment_is_current(object),
        _ => find(object, "Ready").is_none() || is_ready(object),
    }
}

/// Returns true if a Deployment is `Current`. Objects of a watch may have no kind.
pub(crate) fn deployment_is_current(object: &DynamicObject) -> bool {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let condition = |kind: &str| find(object, kind).is_some_and(|c| c["status"] == "True");
    status["observedGeneration"].as_i64() == object.metadata.generation
        && number("replicas") == wanted
        && number("updatedReplicas") >= wanted
        && number("availableReplicas") >= number("updatedReplicas")
        && number("readyReplicas") >= wanted
        && condition("Available")
        && condition("Progressing")
}
