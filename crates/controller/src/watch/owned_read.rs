//! Reads what a Kustomization or HelmRelease owns, directly from the API server. See
//! [`sluice_core::fleet::owned_check`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use sluice_api::flux::{HELM_OWNER, KUSTOMIZE_OWNER};
use sluice_core::fleet::owned_check::FoundObject;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind, ObjectKey};
use tokio::sync::Notify;

use super::limit::WatchLimits;
use super::list;
use super::read_error::{self, ReadError};
use crate::observe::facts::metadata;

/// The most objects that are read for one Flux object. A target with more is too large anyway.
const MAX_OBJECTS: usize = 2_000;

/// How many bytes one reader reads in a second on average. An object has a few thousand.
const BYTES_PER_SECOND: f64 = 1_048_576.0;
/// How many lists of one read run at the same time.
const CONCURRENT_SCOPES: usize = 6;

/// The reads that wait for the session with a cluster, and the versions of the API that it knows.
#[derive(Debug, Default)]
pub struct OwnedReads {
    /// At most one read of each Flux object.
    waiting: Mutex<BTreeMap<ObjectKey, OwnedRead>>,
    added: Notify,
    resources: Mutex<BTreeMap<Kind, ApiResource>>,
}

impl OwnedReads {
    /// Adds a read, which replaces an earlier one of the same Flux object.
    pub fn add(&self, read: OwnedRead) {
        locked(&self.waiting).insert(read.owner.clone(), read);
        self.added.notify_one();
    }

    /// Removes all reads, and forgets the versions of the API.
    pub(super) fn clear(&self) {
        locked(&self.waiting).clear();
        locked(&self.resources).clear();
    }

    /// Sets the version of the API that the cluster serves of a kind.
    pub(super) fn set_resource(&self, kind: Kind, resource: ApiResource) {
        locked(&self.resources).insert(kind, resource);
    }

    /// Waits for the next read.
    async fn next(&self) -> OwnedRead {
        loop {
            let added = self.added.notified();
            let (next, has_more) = {
                let mut waiting = locked(&self.waiting);
                (waiting.pop_first(), !waiting.is_empty())
            };
            if has_more {
                // Several readers may wait, and an addition wakes one of them.
                self.added.notify_one();
            }
            match next {
                Some((_, read)) => return read,
                None => added.await,
            }
        }
    }

    /// Answers the reads, one after another, until `send` returns false.
    pub(super) async fn answer(
        &self,
        cluster: &ClusterKey,
        client: &Client,
        limits: impl Fn(Kind, &str) -> WatchLimits,
        send: impl Fn(ClusterEvent) -> bool,
    ) {
        loop {
            let (read, bytes) = (self.next().await, AtomicUsize::new(0));
            let found = self.read(cluster, client, &read, (&limits, &bytes)).await;
            if !send(ClusterEvent::OwnedWasRead(read.owner, read.number, found)) {
                return;
            }
            // A hostile cluster can have a large answer read for each of thousands of objects, again and again.
            let bytes = bytes.into_inner() as f64;
            tokio::time::sleep(Duration::from_secs_f64(bytes / BYTES_PER_SECOND)).await;
        }
    }

    /// Reads the objects from the API server, and counts their bytes. What the user may not read, no watch will report, so
    /// it is left out.
    ///
    /// # Errors
    /// With the kind that cannot be read, why, and what to do.
    async fn read(
        &self,
        cluster: &ClusterKey,
        client: &Client,
        read: &OwnedRead,
        (limits, bytes): (impl Fn(Kind, &str) -> WatchLimits, &AtomicUsize),
    ) -> Result<Vec<FoundObject>, String> {
        let scopes = read.scopes.clone().into_iter().map(async |(kind, namespace)| {
            let Some(resource) = locked(&self.resources).get(&kind).cloned() else {
                return Err(format!("{cluster} has not said yet in which version it serves {}", kind.name()));
            };
            let url = DynamicObject::url_path(&resource, Some(&namespace));
            let found = read_scope(client, &url, read, kind, (&limits(kind, &namespace), bytes)).await;
            match found.map_err(|error| ReadError::from(&error)) {
                Ok(found) => Ok(found),
                Err(ReadError::Forbidden(_) | ReadError::NotFound) => Ok(Vec::new()),
                Err(error) => Err(read_error::kind_message(cluster, kind, Some(&namespace), &error)),
            }
        });
        // Most Flux objects own something of one or two kinds. Without an inventory, each kind has to be asked for.
        let found = futures::stream::iter(scopes).buffered(CONCURRENT_SCOPES).try_concat().await?;
        if found.len() > MAX_OBJECTS {
            return Err(format!(
                "{} owns more than {MAX_OBJECTS} objects; split it into several",
                read.owner
            ));
        }
        Ok(found)
    }
}

/// Returns the objects at a URL that the Flux object owns, at most one more than [`MAX_OBJECTS`].
async fn read_scope(
    client: &Client,
    url: &str,
    read: &OwnedRead,
    kind: Kind,
    (limits, bytes): (&WatchLimits, &AtomicUsize),
) -> kube::Result<Vec<FoundObject>> {
    let mut found = Vec::new();
    let params = ListParams::default().labels(&owner_labels(&read.owner));
    let request = Request::new(url).list_metadata(&params).map_err(kube::Error::BuildRequest)?;
    let each = |text: &[u8]| {
        bytes.fetch_add(text.len(), Ordering::Relaxed);
        let object: PartialObjectMeta = serde_json::from_slice(text).map_err(kube::Error::SerdeError)?;
        let key = metadata::key(kind, &object);
        let is_owned = metadata::is_valid_name(&key)
            && metadata::owner(kind, &object).as_ref() == Some(&read.owner)
            && read.owned.contains(&key, metadata::release(&object).as_deref());
        if is_owned && found.len() <= MAX_OBJECTS {
            found.push((key, metadata::spec_version(&object)));
        }
        Ok(())
    };
    list::read(client, request, limits, each).await?;
    Ok(found)
}

/// Returns the selector of the labels with which Flux names the owner of an object.
fn owner_labels(owner: &ObjectKey) -> String {
    let [name, namespace] = if owner.kind == Kind::HelmRelease { HELM_OWNER } else { KUSTOMIZE_OWNER };
    format!("{name}={},{namespace}={}", owner.name, owner.namespace)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
