//! Conditions as Flux writes them: abnormal conditions exist only while they are true.

use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A condition to write.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Condition {
    pub fn yes(kind: &'static str, reason: &str, message: &str) -> Condition {
        Condition { kind, status: "True", reason: reason.to_owned(), message: message.to_owned() }
    }

    pub fn no(kind: &'static str, reason: &str, message: &str) -> Condition {
        Condition { status: "False", ..Condition::yes(kind, reason, message) }
    }

    pub fn unknown(kind: &'static str, reason: &str, message: &str) -> Condition {
        Condition { status: "Unknown", ..Condition::yes(kind, reason, message) }
    }
}

/// Returns the conditions of an object for its status, in the given order. Keeps the transition time of a condition if
/// its status and reason are unchanged.
pub(crate) fn conditions(object: &DynamicObject, wanted: &[Condition]) -> Value {
    let generation = object.metadata.generation.unwrap_or_default();
    let render = |condition: &Condition| {
        let old = find(object, condition.kind);
        let since = match old {
            Some(old) if old["status"] == condition.status && old["reason"] == condition.reason.as_str() => {
                old["lastTransitionTime"].clone()
            }
            _ => json!(now()),
        };
        json!({
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        })
    };
    wanted.iter().map(render).collect()
}

/// Returns the conditions of a workload, which have an update time and no generation.
pub(crate) fn conditions_of_workload(object: &DynamicObject, wanted: &[(&str, &str, &str, &str)]) -> Value {
    let render = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        let old = find(object, kind).filter(|old| old["status"] == *status);
        let same = old.is_some_and(|old| old["reason"] == *reason);
        let time = |field: &str, kept: bool| match old {
            Some(old) if kept && !old[field].is_null() => old[field].clone(),
            _ => json!(now()),
        };
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": time("lastTransitionTime", true),
            "lastUpdateTime": time("lastUpdateTime", same),
        })
    };
    wanted.iter().map(render).collect()
}

/// Returns a condition of an object.
pub(crate) fn find<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Returns true if an object is Ready at its current generation, and not Reconciling or Stalled.
pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    let generation = object.metadata.generation.unwrap_or_default();
    let ready = find(object, "Ready");
    ready.is_some_and(|c| c["status"] == "True" && c["observedGeneration"] == generation)
        && find(object, "Reconciling").is_none()
        && find(object, "Stalled").is_none()
}

/// Returns the current time in Flux's format.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
