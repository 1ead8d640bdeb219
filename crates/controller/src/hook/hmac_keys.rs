//! The keys that calls show. They are read from Secrets when a call needs them, and cached for a few seconds, so that
//! a flood of calls does not become a flood of requests to the API server. Each key is accepted for one purpose.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_api::hook_key;
use sluice_api::pipeline::PromotionPolicy;

use crate::secret::{self, SecretUse};
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
    /// Every purpose that has one key, which is all but [`Purpose::Report`].
    pub const SINGLE: [Purpose; 5] =
        [Purpose::Event, Purpose::Trigger, Purpose::Approval, Purpose::Callback, Purpose::Forge];

    /// The name of its key in the Secret.
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

/// How long cached keys are used without another look.
const KEPT: Duration = Duration::from_secs(10);
/// How soon a Secret may be read again because a call shows none of its keys: they may be new.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the API server may take to answer. Flux gives a call 15 seconds by default, tries and pauses
/// included.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);

/// The keys in one Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    keys: BTreeMap<Purpose, Vec<Vec<u8>>>,
    /// Groups of key names that have one value.
    shared: Vec<BTreeSet<String>>,
}

impl Known {
    /// The keys in the data of a Secret. A key of white space is none. A value that stands under the keys of several
    /// purposes would let the holder of one key act as the holder of another: it counts as `hmac-key`, which lets
    /// callers do the least, and otherwise for none of them.
    pub fn of(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut found: BTreeMap<&[u8], BTreeMap<Purpose, BTreeSet<&str>>> = BTreeMap::new();
        for (name, value) in data {
            let Some(purpose) = purpose_of(name).filter(|_| !value.trim_ascii().is_empty()) else { continue };
            found.entry(value.trim_ascii()).or_default().entry(purpose).or_default().insert(name);
        }
        let mut shared = Vec::new();
        let mut refused: BTreeSet<&str> = BTreeSet::new();
        for purposes in found.values().filter(|purposes| purposes.len() > 1) {
            shared.push(purposes.values().flatten().map(|name| (*name).to_string()).collect());
            let others = purposes.iter().filter(|(purpose, _)| **purpose != Purpose::Event);
            refused.extend(others.flat_map(|(_, names)| names));
        }
        let mut keys: BTreeMap<Purpose, Vec<Vec<u8>>> = BTreeMap::new();
        for purposes in found.values() {
            for (purpose, names) in purposes {
                let values =
                    names.iter().filter(|name| !refused.contains(*name)).map(|name| data[*name].clone());
                keys.entry(purpose.clone()).or_default().extend(values);
            }
        }
        keys.retain(|_, values| !values.is_empty());
        Self { keys, shared }
    }

    /// The keys for a purpose: none, one, or two while it is rotated.
    pub fn of_purpose(&self, purpose: &Purpose) -> &[Vec<u8>] {
        self.keys.get(purpose).map_or(&[], Vec::as_slice)
    }

    /// Whether the Secret has no key that counts.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Groups of key names that have one value, sorted.
    pub fn shared(&self) -> &[BTreeSet<String>] {
        &self.shared
    }

    /// The purposes of its keys.
    pub fn purposes(&self) -> impl Iterator<Item = &Purpose> {
        self.keys.keys()
    }
}

/// The purpose of a key by its name, or by the name that it has after it was replaced.
fn purpose_of(name: &str) -> Option<Purpose> {
    let single = |purpose: &Purpose| purpose.key() == name || hook_key::previous(purpose.key()) == name;
    Purpose::SINGLE.into_iter().find(single).or_else(|| {
        let cluster = |prefix: &str| name.strip_prefix(prefix).filter(|cluster| !cluster.is_empty());
        let cluster = cluster("report-key.").or_else(|| cluster("report-key-previous."))?;
        Some(Purpose::Report(format!("report-key.{cluster}")))
    })
}

/// The Secrets that some policies name, each once, in their order.
pub fn secrets_of<'a>(policies: impl Iterator<Item = &'a PromotionPolicy>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    policies.filter_map(PromotionPolicy::secret).filter(|name| seen.insert(*name)).collect()
}

/// Why a call cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The API server does not answer in time, or does not grant what it takes.
    NotNow,
    /// An object that decides about the call cannot be read: which object, why, and what to do.
    Unreadable(String),
}

/// Why no keys are known of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKeys {
    /// There is no such Secret.
    Missing,
    /// It is not for hooks, or cannot be used: why, and what to do.
    Locked(String),
    /// The controller has no right to read it.
    Forbidden,
    /// The API server did not answer, or with an error.
    Unread,
}

/// What was read last of a Secret, and when. Callers that need it while it is being read wait for that.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Result<Known, NoKeys>)>>>;

/// The keys of the Secrets that calls needed lately.
pub struct Keys {
    client: Client,
    known: Mutex<HashMap<(String, String), Slot>>,
}

impl Keys {
    /// A cache that is still empty.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The keys of a Secret; no key if the Secret is missing or not for hooks. With `anew` the Secret is read again,
    /// unless that happened a moment ago.
    ///
    /// # Errors
    /// When the Secret cannot be read now, or the controller may not read it.
    pub async fn of(&self, namespace: &str, name: &str, refresh: bool) -> Result<Known, Unavailable> {
        match self.inspect(namespace, name, refresh).await {
            Ok(known) => Ok(known),
            Err(NoKeys::Missing | NoKeys::Locked(_)) => Ok(Known::default()),
            Err(NoKeys::Forbidden | NoKeys::Unread) => Err(Unavailable::NotNow),
        }
    }

    /// The keys of a Secret, or why there are none.
    ///
    /// # Errors
    /// When there is no Secret with keys, or it cannot be read.
    pub async fn inspect(&self, namespace: &str, name: &str, refresh: bool) -> Result<Known, NoKeys> {
        let slot = self.slot(namespace, name);
        let mut last = slot.lock().await;
        if let Some((read, known)) = &*last {
            let good_for = if refresh || known.is_err() { AGAIN } else { KEPT };
            if read.elapsed() < good_for {
                return known.clone();
            }
        }
        let known = self.read(namespace, name).await;
        // Said once for each change, not for each call.
        if let Err(why) = &known
            && last.as_ref().is_none_or(|(_, before)| *before != known)
        {
            warn(namespace, name, why);
        }
        *last = Some((Instant::now(), known.clone()));
        known
    }

    /// The cache entry of a Secret. Entries that no call needed lately are dropped.
    fn slot(&self, namespace: &str, name: &str) -> Slot {
        let id = (namespace.to_string(), name.to_string());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = known.get(&id) {
            return slot.clone();
        }
        known.retain(|_, slot| {
            let fresh = |last: &(Instant, _)| last.0.elapsed() < KEPT;
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|last| last.as_ref().is_some_and(fresh))
        });
        known.entry(id).or_default().clone()
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<Known, NoKeys> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(DEADLINE, secrets.get(name)).await {
            Ok(Ok(secret)) => match secret::data(secret, SecretUse::Hook) {
                Ok(data) => Ok(Known::of(&data)),
                Err(error) => Err(NoKeys::Locked(error.to_string())),
            },
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(NoKeys::Missing),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(NoKeys::Forbidden),
            Ok(Err(error)) => {
                tracing::warn!(namespace, secret = name, error = %api_error_message(&error), "cannot read a Secret with hook keys");
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
            "there is no such Secret: calls that need its keys are answered 401; create it"
        ),
        NoKeys::Locked(error) => {
            tracing::warn!(namespace, secret, error, "a Secret is not for hook keys: calls are answered 401");
        }
        NoKeys::Forbidden => tracing::warn!(
            namespace,
            secret,
            "the controller may not read this Secret: calls that need its keys are answered 503; grant get on it"
        ),
        NoKeys::Unread => {}
    }
}
