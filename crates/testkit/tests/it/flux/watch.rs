//! Collects every status of an object in order, as a watching controller observes them.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;
use sluice_testkit::WAIT_TIMEOUT;

/// Collects the statuses of an object until one passes `is_last`.
pub async fn statuses(
    api: &Api<DynamicObject>,
    name: &str,
    since: &DynamicObject,
    is_last: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = since.metadata.resource_version.as_deref().context("a version")?;
    let mut events = api.watch(&params, version).await?.boxed();
    let mut statuses = Vec::new();
    let collect = async {
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(object) | WatchEvent::Added(object) = event {
                statuses.push(object.data["status"].clone());
                if is_last(&object.data["status"]) {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(WAIT_TIMEOUT, collect)
        .await
        .with_context(|| format!("the last status of {name} did not come"))??;
    Ok(statuses)
}
