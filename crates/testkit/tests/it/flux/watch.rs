//! Every status that an object ever showed, in order: what a controller that watches sees.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;
use sluice_testkit::PATIENCE;

/// Collects statuses of one object until one is as `last` wants it.
pub async fn statuses(
    api: &Api<DynamicObject>,
    name: &str,
    since: &DynamicObject,
    last: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = since.metadata.resource_version.as_deref().context("a version")?;
    let mut events = api.watch(&params, version).await?.boxed();
    let mut seen = Vec::new();
    let collect = async {
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(object) | WatchEvent::Added(object) = event {
                seen.push(object.data["status"].clone());
                if last(&object.data["status"]) {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, collect).await.with_context(|| format!("{name} never got there"))??;
    Ok(seen)
}
