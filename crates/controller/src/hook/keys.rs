//! The keys that calls are signed with. They are read from Secrets when they are needed, and kept
//! for a few seconds: a flood of calls asks the API server nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_api::pipeline::PromotionPolicy;

use crate::secret::{self, Use};

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signing calls of Flux, of a CI system, and of those who were called.
    Hook,
    /// Calls of forges, some of which send the key itself.
    Forge,
}

/// The keys of a Secret that calls may be signed with: while it is rotated, two are good.
pub const KEYS: [&str; 2] = ["hmac-key", "hmac-key-previous"];
/// Those that forges know, where they shall not know the others.
pub const FORGE_KEYS: [&str; 2] = ["forge-key", "forge-key-previous"];
/// How long keys are good without another look.
const KEPT: Duration = Duration::from_secs(10);
/// How soon they may be looked at again when a signature is not theirs: they may be new.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the API server may take to answer. Flux gives a call 15 seconds by default, tries and pauses
/// included.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);

/// The keys of one Secret; none where it is not there or holds none.
#[derive(Clone, Debug, Default)]
pub struct Known {
    hook: Arc<Vec<Vec<u8>>>,
    forge: Arc<Vec<Vec<u8>>>,
}

impl Known {
    /// Those that are for this.
    pub fn of(&self, purpose: Purpose) -> &[Vec<u8>] {
        match purpose {
            Purpose::Forge if !self.forge.is_empty() => &self.forge,
            Purpose::Hook | Purpose::Forge => &self.hook,
        }
    }
}

/// The Secrets with the keys of some policies, each once, in their order.
pub fn secrets_of<'a>(policies: impl Iterator<Item = &'a PromotionPolicy>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    policies.filter_map(PromotionPolicy::secret).filter(|name| seen.insert(*name)).collect()
}

/// The Secret cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// What was read last of a Secret, and when. Whoever wants it while it is being read waits for that.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Result<Known, Unavailable>)>>>;

/// All keys that have been asked for lately.
pub struct Keys {
    client: Client,
    known: Mutex<HashMap<(String, String), Slot>>,
}

impl Keys {
    /// None yet.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The keys of a Secret. With `anew` they are read again, unless that was a moment ago.
    ///
    /// # Errors
    /// When the Secret cannot be read now.
    pub async fn of(&self, namespace: &str, name: &str, anew: bool) -> Result<Known, Unavailable> {
        let slot = self.slot(namespace, name);
        let mut last = slot.lock().await;
        if let Some((read, known)) = &*last {
            let good_for = if anew || known.is_err() { AGAIN } else { KEPT };
            if read.elapsed() < good_for {
                return known.clone();
            }
        }
        let known = self.read(namespace, name).await;
        *last = Some((Instant::now(), known.clone()));
        known
    }

    /// The place of a Secret; those that nobody has asked for lately make room.
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

    async fn read(&self, namespace: &str, name: &str) -> Result<Known, Unavailable> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let data = match tokio::time::timeout(DEADLINE, secrets.get(name)).await {
            Ok(Ok(secret)) => secret::data(secret, Use::Hook).unwrap_or_else(|error| {
                tracing::warn!(%error, "a Secret is not for hook keys");
                Default::default()
            }),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                tracing::warn!(
                    namespace,
                    secret = name,
                    code = status.code,
                    "a Secret with hook keys cannot be read"
                );
                Default::default()
            }
            Ok(Err(error)) => {
                tracing::warn!(namespace, secret = name, %error, "a Secret with hook keys cannot be read");
                return Err(Unavailable);
            }
            Err(_) => return Err(Unavailable),
        };
        // One of white space alone is none.
        let is_one = |key: &Vec<u8>| !key.trim_ascii().is_empty();
        let of = |keys: [&str; 2]| {
            Arc::new(
                keys.iter().filter_map(|key| data.get(*key).filter(|key| is_one(key)).cloned()).collect(),
            )
        };
        Ok(Known { hook: of(KEYS), forge: of(FORGE_KEYS) })
    }
}
