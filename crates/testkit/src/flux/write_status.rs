//! Writes the status of an object of any kind. An unchanged status is not written.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// Writes fields of an object's status, if they differ. Null removes a field.
pub(crate) async fn write_status(
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
    api.patch_status(&object.name_any(), &params, &patch).await.map_err(crate::apply::api_error)
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
