//! What stands on the server when a shard is taken over. The watches of a replica may lag behind by
//! what the last holder wrote at the end: so all is read anew, after the shard was taken, and what
//! differs from what the watches have told is taken in before anything is decided.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_api::{Pipeline, Promotion};
use sluice_delivery::Term;

use crate::intake::PipelineKey;
use crate::watch::cause::words;
use crate::watch::guard::Guard;
use crate::watch::limit::Limits;
use crate::watch::list;

/// The versions of objects that are known, by namespace and name.
pub(super) type Known = HashMap<PipelineKey, u64>;

/// What is otherwise than was known.
#[derive(Debug, Default)]
pub struct Standing {
    /// The shards for which this was read, each with the term for which it was.
    pub shards: Vec<(u32, Term)>,
    /// Pipelines that were known at another version, or not at all.
    pub pipelines: Vec<(Pipeline, Before)>,
    /// Pipelines that are gone, with the version at which they were known.
    pub pipelines_gone: Vec<(PipelineKey, u64)>,
    /// Promotions that were known at another version, or not at all.
    pub promotions: Vec<(Promotion, Before)>,
    /// Promotions that are gone, by namespace and name, with the version at which they were known.
    pub promotions_gone: Vec<(PipelineKey, u64)>,
}

/// Whether an object was known when the reading began: one that was, and is not any more when it is taken
/// in, was removed in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// At an earlier version.
    Known,
    /// Not at all.
    Unknown,
}

/// The pause after it could not be read the first time; it doubles with each further time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: each try lists all Pipelines and Promotions.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Reads what stands, as often as it takes; `None` when the terms of all shards are over before.
pub(super) async fn read(
    client: Client,
    namespace: Option<String>,
    known: (Known, Known),
    shards: Vec<(u32, Term)>,
) -> Option<Standing> {
    let mut pause = FIRST_PAUSE;
    while shards.iter().any(|(_, term)| term.runs()) {
        let pipelines = otherwise::<Pipeline>(&client, namespace.as_deref(), &known.0);
        let promotions = otherwise::<Promotion>(&client, namespace.as_deref(), &known.1);
        match tokio::try_join!(pipelines, promotions) {
            Ok(((pipelines, pipelines_gone), (promotions, promotions_gone))) => {
                return Some(Standing { shards, pipelines, pipelines_gone, promotions, promotions_gone });
            }
            Err(error) => {
                tracing::warn!(error = %words(&error), "cannot read what the last holder of a shard has left; it is tried again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    None
}

/// As much of an object as says whether it is known.
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

async fn otherwise<K>(
    client: &Client,
    namespace: Option<&str>,
    known: &Known,
) -> kube::Result<(Vec<(K, Before)>, Vec<(PipelineKey, u64)>)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + 'static,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let (mut objects, mut there) = (Vec::new(), HashSet::new());
    let each = |text: &[u8]| {
        let head: Head = serde_json::from_slice(text).map_err(kube::Error::SerdeError)?;
        let HeadMetadata { namespace, name, resource_version } = head.metadata;
        let key = PipelineKey { namespace, name };
        // What is known may be newer than this list by now: that is looked at when it is taken in.
        let known = known.get(&key);
        if known.is_none_or(|version| *version < resource_version.parse().unwrap_or(0)) {
            let before = if known.is_some() { Before::Known } else { Before::Unknown };
            // One that cannot be read is told of by its watch.
            let object = Guard::<K>::read(text).map_err(kube::Error::SerdeError)?.0.ok();
            objects.extend(object.map(|object| (object, before)));
        }
        there.insert(key);
        Ok(())
    };
    list::read(client, api.resource_url(), None, &Limits::hub("Pipelines and Promotions"), each).await?;
    let gone = known.iter().filter(|(key, version)| **version != HELD && !there.contains(*key));
    Ok((objects, gone.map(|(key, version)| (key.clone(), *version)).collect()))
}

/// In place of a version: nobody else writes it, and it is not to be read.
pub(super) const HELD: u64 = u64::MAX;
