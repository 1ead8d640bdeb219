//! The inventory in a status: the applied objects. Deletes the objects that are no longer in it.

use super::context::StandInContext;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde_json::{Value, json};

/// Returns the inventory of applied objects.
pub(crate) fn inventory(applied: &[DynamicObject]) -> Value {
    json!({ "entries": applied.iter().map(entry).collect::<Vec<_>>() })
}

fn entry(object: &DynamicObject) -> Value {
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.rsplit_once('/').unwrap_or(("", &types.api_version));
    let name = object.name_any().replace(':', "__");
    let namespace = object.namespace().unwrap_or_default();
    json!({"id": format!("{namespace}_{name}_{group}_{}", types.kind), "v": version})
}

/// Deletes the objects of the old inventory that are not in the new one.
pub(crate) async fn prune(context: &StandInContext, old: &Value, new: &Value) -> Result<()> {
    let entries = |inventory: &Value| inventory["entries"].as_array().cloned().unwrap_or_default();
    let kept = entries(new);
    for entry in entries(old) {
        if kept.iter().any(|k| k["id"] == entry["id"]) {
            continue;
        }
        if let Some((types, namespace, name)) = parse(&entry) {
            crate::apply::delete(&context.client, &types, &namespace, &name).await?;
        }
    }
    Ok(())
}

fn parse(entry: &Value) -> Option<(TypeMeta, String, String)> {
    let (namespace, rest) = entry["id"].as_str()?.split_once('_')?;
    let (rest, kind) = rest.rsplit_once('_')?;
    let (name, group) = rest.rsplit_once('_')?;
    let version = entry["v"].as_str()?;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let types = TypeMeta { api_version, kind: kind.to_owned() };
    Some((types, namespace.to_owned(), name.replace("__", ":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_formatted_and_parsed() {
        let object: DynamicObject =
            serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "n"}}))
            .unwrap();
        let formatted = entry(&object);
        assert_eq!(formatted, json!({"id": "n_a_apps_Deployment", "v": "v1"}));
        let types = TypeMeta { api_version: "apps/v1".into(), kind: "Deployment".into() };
        assert_eq!(parse(&formatted), Some((types, "n".into(), "a".into())));
        let service = parse(&json!({"id": "default_podinfo__Service", "v": "v1"})).unwrap();
        assert_eq!((service.0.api_version.as_str(), service.2.as_str()), ("v1", "podinfo"));
    }
}
