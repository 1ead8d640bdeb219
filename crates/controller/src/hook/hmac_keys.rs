//! The keys that calls show. Each key is accepted for one purpose. The keys are read from Secrets when a call
//! needs them, and cached for a few seconds, so that a flood of calls does not become a flood of requests to the
//! API server.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use sluice_api::hook_key;
use sluice_api::pipeline::PromotionPolicy;
use sluice_api::secret_use::SecretUse;
use sluice_core::lock::lock;
use sluice_delivery::FairQueue;

use crate::secret;
use crate::watch::read_error::api_error_message;

/// What a key is accepted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Signing events of Flux.
    Event,
    /// Signing calls of `/trigger`.
    Trigger,
    /// Signing calls of `/approval`.
    Approval,
    /// Making the tokens for `/callback`.
    Callback,
    /// Calls of a forge. Some forges send the key itself.
    Forge,
    /// Signing reports of one cluster; the name of the key, as [`hook_key::report_key`] makes it.
    Report(String),
}

impl Purpose {
    /// The purposes with one key name each, which are all but [`Purpose::Report`].
    pub const SINGLE: [Purpose; 5] =
        [Purpose::Event, Purpose::Trigger, Purpose::Approval, Purpose::Callback, Purpose::Forge];

    /// Returns the name of the key in the Secret.
    pub fn key(&self) -> &str {
        match self {
            Purpose::Event => hook_key::HMAC_KEY,
            Purpose::Trigger => hook_key::TRIGGER_KEY,
            Purpose::Approval => hook_key::APPROVAL_KEY,
            Purpose::Callback => hook_key::CALLBACK_KEY,
            Purpose::Forge => hook_key::FORGE_KEY,
            Purpose::Report(key) => key,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// How long cached keys are used before the Secret is read again.
const CACHE_LIFETIME: Duration = Duration::from_secs(10);
/// The shortest time between two reads of a Secret. A Secret is read again this soon if a call shows none of its
/// keys, or if the last read failed.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);
/// How long a failed read of a Secret counts. Longer than the time after which the checker reads such a Secret again.
const FAILURE_LIFETIME: Duration = Duration::from_secs(60);
/// How long the requests to the API server for one call may take. Flux gives a call 15 seconds by default, all
/// tries and pauses included.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The keys in one Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookKeys {
    keys: BTreeMap<Purpose, Vec<Vec<u8>>>,
    /// Groups of names whose keys have the same value.
    shared: Vec<BTreeSet<String>>,
    /// The names of keys with a line break inside.
    broken: BTreeSet<String>,
    /// How many keys were not read.
    excess: usize,
}

/// How many keys of a Secret are read, and their most bytes, names included. Strangers can have the Secrets of a pipeline
/// read, whose owner chooses their size.
const MAX_KEYS: usize = 500;
const MAX_KEY_BYTES: usize = 64 << 10;
/// How many Secrets are in the cache.
const MAX_CACHED: usize = 256;
/// How many Secrets are read at the same time: each has up to a mebibyte. One namespace gets at most six of the eight.
const MAX_READS: usize = 8;

impl HookKeys {
    /// The keys in the data of a Secret: at most [`MAX_KEYS`], and those for the reports of clusters last. Keys of white
    /// space are ignored, and keys with a line break inside are not accepted. If keys of several purposes have the same
    /// value, the holder of one could act as the holder of another. Such a value is accepted as `hmac-key` only, which
    /// permits the least, and for no purpose if no `hmac-key` has it.
    pub fn of(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut by_value: BTreeMap<&[u8], BTreeMap<Purpose, BTreeSet<&str>>> = BTreeMap::new();
        let (mut broken, mut excess) = (BTreeSet::new(), 0);
        let named = data.iter().map(|(name, value)| (name, value.trim_ascii()));
        let mut known: Vec<_> = named
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(name, value)| Some((purpose_of(name)?, name, value)))
            .collect();
        known.sort_by_key(|(purpose, ..)| matches!(purpose, Purpose::Report(_)));
        let (mut count, mut bytes) = (0, 0);
        for (purpose, name, value) in known {
            bytes += name.len() + value.len();
            if count == MAX_KEYS || bytes > MAX_KEY_BYTES {
                excess += 1;
                continue;
            }
            count += 1;
            if value.contains(&b'\n') || value.contains(&b'\r') {
                broken.insert(name.clone());
                continue;
            }
            by_value.entry(value).or_default().entry(purpose).or_default().insert(name);
        }
        let mut shared = Vec::new();
        let mut ignored: BTreeSet<&str> = BTreeSet::new();
        for purposes in by_value.values().filter(|purposes| purposes.len() > 1) {
            shared.push(purposes.values().flatten().map(|name| (*name).to_string()).collect());
            let others = purposes.iter().filter(|(purpose, _)| **purpose != Purpose::Event);
            ignored.extend(others.flat_map(|(_, names)| names));
        }
        let mut keys: BTreeMap<Purpose, Vec<Vec<u8>>> = BTreeMap::new();
        for purposes in by_value.values() {
            for (purpose, names) in purposes {
                let values =
                    names.iter().filter(|name| !ignored.contains(*name)).map(|name| data[*name].clone());
                keys.entry(purpose.clone()).or_default().extend(values);
            }
        }
        keys.retain(|_, values| !values.is_empty());
        Self { keys, shared, broken, excess }
    }

    /// Returns the accepted keys for a purpose: none, one, or two during a rotation.
    pub fn of_purpose(&self, purpose: &Purpose) -> &[Vec<u8>] {
        self.keys.get(purpose).map_or(&[], Vec::as_slice)
    }

    /// Returns true if the Secret has no accepted key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the groups of names whose keys have the same value, sorted by name.
    pub fn shared(&self) -> &[BTreeSet<String>] {
        &self.shared
    }

    /// Returns the names of keys that are not accepted because of a line break inside.
    pub fn broken(&self) -> &BTreeSet<String> {
        &self.broken
    }

    /// Returns how many keys were not read, because the Secret has too many or too long ones.
    pub fn excess(&self) -> usize {
        self.excess
    }

    /// Returns the purposes that have an accepted key.
    pub fn purposes(&self) -> impl Iterator<Item = &Purpose> {
        self.keys.keys()
    }
}

/// Returns the purpose of a key by its name, which may be that of a key before its rotation.
fn purpose_of(name: &str) -> Option<Purpose> {
    let single = |purpose: &Purpose| purpose.key() == name || hook_key::previous(purpose.key()) == name;
    Purpose::SINGLE.into_iter().find(single).or_else(|| {
        let cluster = |prefix: &str| name.strip_prefix(prefix).filter(|cluster| !cluster.is_empty());
        let cluster = cluster("report-key.").or_else(|| cluster("report-key-previous."))?;
        Some(Purpose::Report(format!("report-key.{cluster}")))
    })
}

/// Returns the Secrets that policies name, each once, in the order of the policies.
pub fn secrets_of<'a>(policies: impl Iterator<Item = &'a PromotionPolicy>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    policies.filter_map(PromotionPolicy::secret).filter(|name| seen.insert(*name)).collect()
}

/// Why a call cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The API server did not answer in time, or denied the request, or the call found no slot. The caller may
    /// send the call again.
    RetryLater,
    /// An object that decides about the call cannot be read: which object, why, and what to do.
    Unreadable(String),
}

/// Why the keys of a Secret are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKeys {
    /// There is no such Secret.
    Missing,
    /// The Secret may not be used for hooks: why, and what to do.
    Locked(String),
    /// The controller may not read the Secret.
    Forbidden,
    /// The API server answered with an error, or not in time.
    Unread,
}

/// The last result of reading a Secret, and when it was read. Calls that need the Secret while it is being read
/// wait for the lock.
type CacheEntry = Arc<tokio::sync::Mutex<Option<(Instant, Result<Arc<HookKeys>, NoKeys>)>>>;

/// The namespace and name of a Secret.
pub(super) type SecretId = (String, String);

/// The keys of the Secrets that calls needed in the last seconds.
pub struct HookKeyCache {
    client: Client,
    entries: Mutex<HashMap<SecretId, CacheEntry>>,
    reads: Arc<FairQueue>,
    /// The Secrets whose last read failed, and when. A missing Secret was read.
    failed: Mutex<HashMap<SecretId, Instant>>,
    /// The Secrets that a read has found wrong since [`HookKeyCache::take_wrong`].
    wrong: Mutex<HashSet<SecretId>>,
}

impl HookKeyCache {
    /// An empty cache.
    pub fn new(client: Client) -> Self {
        let (entries, failed, wrong) = Default::default();
        Self { client, entries, reads: FairQueue::new(MAX_READS), failed, wrong }
    }

    /// Returns the keys of a Secret; no keys if the Secret is missing or not for hooks. With `refresh` the Secret
    /// is read again, but not more often than every [`MIN_READ_INTERVAL`].
    ///
    /// # Errors
    /// When the Secret cannot be read now, or the controller may not read it.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        refresh: bool,
    ) -> Result<Arc<HookKeys>, Unavailable> {
        match self.inspect(namespace, name, refresh).await {
            Ok(known) => Ok(known),
            Err(NoKeys::Missing | NoKeys::Locked(_)) => Ok(Arc::default()),
            Err(NoKeys::Forbidden | NoKeys::Unread) => Err(Unavailable::RetryLater),
        }
    }

    /// Returns the keys of a Secret, or why they are unknown. `refresh` has the same effect as in
    /// [`HookKeyCache::get`].
    ///
    /// # Errors
    /// When the Secret does not exist, is not for hooks, or cannot be read.
    pub async fn inspect(&self, namespace: &str, name: &str, refresh: bool) -> Result<Arc<HookKeys>, NoKeys> {
        let entry = self.entry(namespace, name);
        let mut last = entry.lock().await;
        if let Some((read, keys)) = &*last {
            let lifetime = if refresh || keys.is_err() { MIN_READ_INTERVAL } else { CACHE_LIFETIME };
            if read.elapsed() < lifetime {
                return keys.clone();
            }
        }
        let keys = self.read(namespace, name).await.map(Arc::new);
        self.note_failure(namespace, name, &keys);
        // The log has one line for each change, not for each call.
        if let Err(why) = &keys
            && last.as_ref().is_none_or(|(_, before)| *before != keys)
        {
            warn(namespace, name, why);
            lock(&self.wrong).insert((namespace.into(), name.into()));
        }
        *last = Some((Instant::now(), keys.clone()));
        keys
    }

    fn note_failure(&self, namespace: &str, name: &str, keys: &Result<Arc<HookKeys>, NoKeys>) {
        let (id, mut failed) = ((namespace.to_string(), name.to_string()), lock(&self.failed));
        match keys {
            Err(NoKeys::Forbidden | NoKeys::Unread) => failed.insert(id, Instant::now()),
            _ => failed.remove(&id),
        };
    }

    /// Returns true if the keys of any pipeline cannot be read. A failed read counts for
    /// [`FAILURE_LIFETIME`], or until the Secret is read.
    pub fn has_unreadable(&self) -> bool {
        let mut failed = lock(&self.failed);
        failed.retain(|_, at| at.elapsed() < FAILURE_LIFETIME);
        !failed.is_empty()
    }

    /// Returns the Secrets that were found missing, locked or unreadable since the last call, by namespace and name.
    pub fn take_wrong(&self) -> HashSet<SecretId> {
        std::mem::take(&mut lock(&self.wrong))
    }

    /// Returns the cache entry of a Secret. Drops the entries that are older than [`CACHE_LIFETIME`] and not in
    /// use.
    fn entry(&self, namespace: &str, name: &str) -> CacheEntry {
        let id = (namespace.to_string(), name.to_string());
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&id) {
            return entry.clone();
        }
        let read_at = |entry: &CacheEntry| entry.try_lock().ok()?.as_ref().map(|(at, _)| *at);
        let is_used = |entry: &CacheEntry| Arc::strong_count(entry) > 1;
        entries.retain(|_, entry| {
            is_used(entry) || read_at(entry).is_some_and(|at| at.elapsed() < CACHE_LIFETIME)
        });
        while entries.len() >= MAX_CACHED {
            let unused = entries.iter().filter(|(_, entry)| !is_used(entry));
            let Some(oldest) = unused.min_by_key(|(_, entry)| read_at(entry)).map(|(id, _)| id.clone())
            else {
                break;
            };
            entries.remove(&oldest);
        }
        entries.entry(id).or_default().clone()
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<HookKeys, NoKeys> {
        let _slot = self.reads.acquire(&format!("{namespace}/{name}")).await;
        match tokio::time::timeout(CALL_TIMEOUT, secret::read(&self.client, namespace, name)).await {
            Ok(Ok(secret)) => match secret::data(secret, SecretUse::Hook) {
                Ok(data) => Ok(HookKeys::of(&data)),
                Err(error) => Err(NoKeys::Locked(error.to_string())),
            },
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(NoKeys::Missing),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(NoKeys::Forbidden),
            Ok(Err(error)) => {
                tracing::warn!(namespace, secret = name, error = %api_error_message(&error), "cannot read the Secret with hook keys; it will be retried");
                Err(NoKeys::Unread)
            }
            Err(_) => Err(NoKeys::Unread),
        }
    }
}

fn warn(namespace: &str, secret: &str, why: &NoKeys) {
    match why {
        NoKeys::Missing => tracing::warn!(
            namespace,
            secret,
            "the Secret with hook keys does not exist: calls that need its keys are answered 401; create it"
        ),
        NoKeys::Locked(error) => {
            tracing::warn!(
                namespace,
                secret,
                error,
                "the Secret may not be used for hooks: calls are answered 401"
            );
        }
        NoKeys::Forbidden => tracing::warn!(
            namespace,
            secret,
            "the controller may not read the Secret with hook keys: calls that need its keys are answered 503; grant \
             it get on that Secret"
        ),
        NoKeys::Unread => {}
    }
}
