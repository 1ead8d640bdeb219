//! Reads all Pipelines and Promotions when this replica gains a shard. Its watches may lag behind what the last
//! holder wrote, so the objects that differ are taken in before anything is decided.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_api::{Pipeline, Promotion};

use crate::pipeline_key::PipelineKey;
use crate::shard::{StoredBefore, StoredState};
use crate::state::effect::{OURS, Resync};
use crate::state::unread_metadata::without_unread;
use crate::watch::limit::WatchLimits;
use crate::watch::list;
use crate::watch::object_text::ObjectText;
use crate::watch::parsed_object::ParsedObject;
use crate::watch::read_error::api_error_message;

/// The pause after the first failure; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: each try lists all Pipelines and Promotions.
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Reads all objects, and retries until that succeeds. `None` if the terms of all shards end before.
pub(super) async fn read(client: Client, namespace: Option<String>, resync: Resync) -> Option<StoredState> {
    let Resync { shards, pipelines: known_pipelines, promotions: known_promotions } = resync;
    let mut pause = FIRST_PAUSE;
    while shards.iter().any(|(_, term)| term.runs()) {
        let pipelines = differing::<Pipeline>(&client, namespace.as_deref(), &known_pipelines);
        let promotions = differing::<Promotion>(&client, namespace.as_deref(), &known_promotions);
        match tokio::try_join!(pipelines, promotions) {
            Ok(((pipelines, pipelines_gone), (promotions, promotions_gone))) => {
                return Some(StoredState { shards, pipelines, pipelines_gone, promotions, promotions_gone });
            }
            Err(error) => {
                tracing::warn!(error = %api_error_message(&error), "cannot read what the last holder of a shard wrote; it will be retried");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
    None
}

/// The part of an object that shows whether it is known.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    resource_version: String,
}

/// Returns the objects with another version than the known one, and the known objects that do not exist any more.
async fn differing<K>(
    client: &Client,
    namespace: Option<&str>,
    known: &HashMap<PipelineKey, u64>,
) -> kube::Result<(Vec<(K, StoredBefore)>, Vec<(PipelineKey, u64)>)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + 'static,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let (mut objects, mut listed) = (Vec::new(), HashSet::new());
    let each = |text: ObjectText<'_>| {
        let text = text.whole()?;
        let head: Head = serde_json::from_slice(text).map_err(kube::Error::SerdeError)?;
        let HeadMetadata { namespace, name, resource_version } = head.metadata;
        let key = PipelineKey { namespace, name };
        // The known object may be newer than this list by now: that is checked when the object is taken in.
        let known = known.get(&key);
        if known.is_none_or(|version| *version < resource_version.parse().unwrap_or(0)) {
            let before = if known.is_some() { StoredBefore::Known } else { StoredBefore::Unknown };
            // The watch reports an object that cannot be read.
            let object = ParsedObject::<K>::read(text).map_err(kube::Error::SerdeError)?.0.ok();
            objects.extend(object.map(|object| (without_unread(object), before)));
        }
        listed.insert(key);
        Ok(())
    };
    let request = list::request(api.resource_url(), None)?;
    list::read(client, request, &WatchLimits::hub("Pipelines and Promotions"), each).await?;
    let gone = known.iter().filter(|(key, version)| **version != OURS && !listed.contains(*key));
    Ok((objects, gone.map(|(key, version)| (key.clone(), *version)).collect()))
}
