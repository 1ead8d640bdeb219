//! Conditions and status patches in the way of Flux: abnormal conditions are there only while
//! they are true, and nothing is written that says what is written already.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// A condition to be written.
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

/// All of an object's conditions, ready for its status: in the given order, with the time of the
/// last transition kept where the status of a condition stays the same.
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

/// The conditions of a workload, which have times and no generation.
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

/// A condition that an object has.
pub(crate) fn find<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Whether an object is Ready at its present generation, and nothing says that it is not.
pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    let generation = object.metadata.generation.unwrap_or_default();
    let ready = find(object, "Ready");
    ready.is_some_and(|c| c["status"] == "True" && c["observedGeneration"] == generation)
        && find(object, "Reconciling").is_none()
        && find(object, "Stalled").is_none()
}

/// The time as Flux writes it.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes fields of an object's status, unless they are there; null removes one.
pub(crate) async fn write(
    api: &Api<DynamicObject>,
    manager: &str,
    object: &DynamicObject,
    fields: Value,
) -> Result<DynamicObject> {
    let mut merged = object.data["status"].clone();
    merge(&mut merged, &fields);
    if merged == object.data["status"] {
        return Ok(object.clone());
    }
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "status": fields }));
    api.patch_status(&object.name_any(), &params, &patch).await.map_err(crate::apply::plainly)
}

fn merge(target: &mut Value, fields: &Value) {
    let Some(fields) = fields.as_object() else {
        *target = fields.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        let Some(map) = target.as_object_mut() else { return };
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
