//! Server-side apply of any objects, like `kubectl apply --server-side -f`: for the YAML in tests, and for the stand-in
//! for Flux, which applies manifests from git.

use anyhow::{Context, Result, anyhow};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// How long the API server may take to serve a kind after its CRD was applied.
const SERVED_TIMEOUT: Duration = Duration::from_secs(60);

/// Parses the objects of a YAML text with any number of documents. Skips empty documents.
///
/// # Errors
/// The text is not YAML.
pub fn parse_yaml(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(|e| anyhow!("{e}"))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(mut fields) if fields.get("kind").is_some_and(|k| k == "List") => {
                let items = fields.remove("items").unwrap_or_default();
                objects.extend(items.as_array().cloned().unwrap_or_default());
            }
            other => objects.push(other),
        }
    }
    Ok(objects)
}

/// Applies objects as a field manager, and takes fields over from other managers. Applies CRDs and namespaces first, and
/// waits for the kinds of the CRDs.
///
/// # Errors
/// An object has no kind or name, its kind is not served, or the API server rejects it.
pub async fn apply(client: &Client, manager: &str, objects: Vec<Value>) -> Result<Vec<DynamicObject>> {
    apply_in(client, manager, "default", objects).await
}

/// Like [`apply`], with a default namespace for objects without one.
pub(crate) async fn apply_in(
    client: &Client,
    manager: &str,
    namespace: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<DynamicObject>> {
    sort(&mut objects);
    let has_crds = objects.first().is_some_and(|o| o["kind"] == "CustomResourceDefinition");
    let mut kinds = HashMap::new();
    let mut applied = Vec::with_capacity(objects.len());
    for value in objects {
        let object: DynamicObject = serde_json::from_value(value).context("not a Kubernetes object")?;
        let types = object.types.clone().ok_or_else(|| anyhow!("an object without apiVersion and kind"))?;
        if !kinds.contains_key(&types) {
            kinds.insert(types.clone(), resolve(client, &types, has_crds).await?);
        }
        let name = format!("{} {}", types.kind, object.metadata.name.as_deref().unwrap_or("without a name"));
        let (resource, capabilities) = &kinds[&types];
        let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
        let api = api_for(client, resource, capabilities, namespace);
        let params = PatchParams::apply(manager).force();
        let key = object.metadata.name.clone().ok_or_else(|| anyhow!("{name}"))?;
        let done = api.patch(&key, &params, &Patch::Apply(&object)).await;
        applied.push(done.map_err(api_error).with_context(|| format!("cannot apply {name}"))?);
    }
    Ok(applied)
}

/// Moves CRDs to the beginning, then namespaces: other objects need them.
pub(crate) fn sort(objects: &mut [Value]) {
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    });
}

async fn resolve(client: &Client, types: &TypeMeta, wait: bool) -> Result<(ApiResource, ApiCapabilities)> {
    let gvk = GroupVersionKind::try_from(types)?;
    let look = async || Ok(pinned_kind(client, &gvk).await?);
    let found = if wait { crate::eventually(SERVED_TIMEOUT, look).await } else { look().await };
    found.with_context(|| {
        format!("{} {} is not served here: install its CRD first", types.api_version, types.kind)
    })
}

/// Reduces an error to the message of the API server: kube's error prints the whole answer three times.
pub(crate) fn api_error(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{} ({})", status.message, status.code),
        other => other.into(),
    }
}

fn api_for(
    client: &Client,
    resource: &ApiResource,
    capabilities: &ApiCapabilities,
    namespace: &str,
) -> Api<DynamicObject> {
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// Deletes an object, if it exists.
pub(crate) async fn delete(client: &Client, types: &TypeMeta, namespace: &str, name: &str) -> Result<()> {
    let (resource, capabilities) = resolve(client, types, false).await?;
    match api_for(client, &resource, &capabilities, namespace).delete(name, &DeleteParams::background()).await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(api_error),
    }
}
