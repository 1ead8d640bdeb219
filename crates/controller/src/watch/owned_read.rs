//! Reads what a Kustomization or HelmRelease owns, directly from the API server. See
//! [`sluice_core::fleet::owned_check`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::Request;
use kube::{Client, Resource};
use sluice_api::flux::{HELM_OWNER, KUSTOMIZE_OWNER};
use sluice_core::fleet::owned_check::FoundObject;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind, ObjectKey};
use sluice_core::lock::lock;
use tokio::sync::Notify;

use super::limit::WatchLimits;
use super::list;
use super::object_text::ObjectText;
use super::parsed_object::metadata_alone;
use super::read_error::{self, ReadError};
use super::read_slots::ReadSlots;
use crate::observe::facts::metadata;

/// The most objects that are read for one Flux object. A target with more is too large anyway.
const MAX_OBJECTS: usize = 2_000;

/// How many lists of one read run at the same time.
const CONCURRENT_SCOPES: usize = 6;

/// The reads that wait for the session with a cluster, and the versions of the API that the session has found. The namespaces of the
/// Flux objects are served in turn: a user who changes the workloads of one namespace again and again does not delay the
/// reads of others.
#[derive(Debug, Default)]
pub struct OwnedReads {
    waiting: Mutex<WaitingReads>,
    added: Notify,
    slots: ReadSlots,
    resources: Mutex<BTreeMap<Kind, ApiResource>>,
}

#[derive(Debug, Default)]
struct WaitingReads {
    /// At most one read of each Flux object.
    reads: BTreeMap<ObjectKey, OwnedRead>,
    /// The Flux objects whose reads do not wait for a slot yet.
    new: Vec<ObjectKey>,
}

impl OwnedReads {
    /// Adds a read, which replaces an earlier one of the same Flux object.
    pub fn add(&self, read: OwnedRead) {
        let mut waiting = lock(&self.waiting);
        let owner = read.owner.clone();
        if waiting.reads.insert(owner.clone(), read).is_none() {
            waiting.new.push(owner);
            self.added.notify_one();
        }
    }

    /// Removes all reads, and forgets the versions of the API.
    pub(super) fn clear(&self) {
        *lock(&self.waiting) = WaitingReads::default();
        lock(&self.resources).clear();
    }

    /// Sets the version of the API that the cluster serves of a kind.
    pub(super) fn set_resource(&self, kind: Kind, resource: ApiResource) {
        lock(&self.resources).insert(kind, resource);
    }

    /// Waits for reads that do not wait for a slot yet.
    async fn new_reads(&self) -> Vec<ObjectKey> {
        loop {
            let added = self.added.notified();
            let new = std::mem::take(&mut lock(&self.waiting).new);
            if !new.is_empty() {
                return new;
            }
            added.await;
        }
    }

    /// Answers the reads until `send` returns false.
    pub(super) async fn answer(
        &self,
        cluster: &ClusterKey,
        client: &Client,
        limits: impl Fn(Kind, &str) -> WatchLimits,
        send: impl Fn(ClusterEvent) -> bool,
    ) {
        let (limits, send) = (&limits, &send);
        let answer_one = async |owner: ObjectKey| {
            let name = format!("{}/{}/{}", owner.namespace, owner.kind.name(), owner.name);
            let slot = self.slots.acquire(&owner.namespace, &name).await;
            let Some(read) = lock(&self.waiting).reads.remove(&owner) else { return true };
            let bytes = AtomicUsize::new(0);
            // Thousands of reads may wait, and they wait without the memory of a read.
            let found = Box::pin(self.read(cluster, client, &read, (limits, &bytes))).await;
            let is_wanted = send(ClusterEvent::OwnedWasRead(owner.clone(), read.number, found));
            self.slots.pause(slot, (&owner.namespace, &name), bytes.into_inner()).await;
            is_wanted
        };
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                new = self.new_reads() => answers.extend(new.into_iter().map(answer_one)),
                Some(is_wanted) = answers.next() => if !is_wanted { return },
            }
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
            let Some(resource) = lock(&self.resources).get(&kind).cloned() else {
                return Err(format!(
                    "Sluice does not know yet in which version {cluster} serves {}",
                    kind.name()
                ));
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
    let each = |text: ObjectText<'_>| {
        let text = text.whole()?;
        bytes.fetch_add(text.len(), Ordering::Relaxed);
        let object = metadata_alone(text).map_err(kube::Error::SerdeError)?;
        let key = metadata::key(kind, &object);
        let is_owned = metadata::is_valid_name(&key)
            && metadata::owner(kind, &object).as_ref() == Some(&read.owner)
            && read.owned.contains(&key, metadata::release(&object).as_deref());
        if is_owned && found.len() <= MAX_OBJECTS {
            found.push((key, metadata::spec_version(&object)));
        }
        Ok(())
    };
    list::read(client, request, limits, each).await.map_err(|error| limits.secrets.hide_in(error))?;
    Ok(found)
}

/// Returns the selector of the labels with which Flux names the owner of an object.
fn owner_labels(owner: &ObjectKey) -> String {
    let [name, namespace] = if owner.kind == Kind::HelmRelease { HELM_OWNER } else { KUSTOMIZE_OWNER };
    format!("{name}={},{namespace}={}", owner.name, owner.namespace)
}
