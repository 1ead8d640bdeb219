//! The condition of a Pipeline whose Secret with hook keys is missing, incomplete or cannot be read. The answers
//! to calls do not name such a problem, and callers usually cannot fix the Secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::hook_key::{self, CALLBACK_KEY, HMAC_KEY};
use sluice_api::pipeline::{Observe, Pipeline};

use super::hmac_keys::{HookKeys, NoKeys, Purpose, secrets_of};
use crate::record::cut;

/// The type of the condition. A Pipeline has it only while there is a problem.
pub const CONDITION: &str = "HookSecretInvalid";

/// How many keys, or groups of keys with the same value, a message names.
const MAX_NAMED_KEYS: usize = 10;
/// The longest message, in bytes. It is kept for each pipeline, and logged.
const MAX_MESSAGE_BYTES: usize = 4000;

/// What is wrong with a pipeline's Secrets with hook keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSecretProblem {
    /// The reason of the condition.
    pub reason: HookSecretReason,
    /// The message of the condition: what is wrong, and what to do.
    pub message: String,
}

/// A reason of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookSecretReason {
    /// A Secret does not exist.
    SecretNotFound,
    /// The controller may not read a Secret.
    SecretForbidden,
    /// A Secret may not be used for hooks.
    SecretLocked,
    /// Two keys have the same value.
    KeysShared,
    /// A key has a line break inside.
    KeyInvalid,
    /// A Secret has more keys than are read.
    TooManyKeys,
    /// A key that the pipeline needs is missing.
    KeysMissing,
}

impl HookSecretReason {
    /// Returns the reason as it is written in the status.
    pub fn name(self) -> &'static str {
        match self {
            HookSecretReason::SecretNotFound => "SecretNotFound",
            HookSecretReason::SecretForbidden => "SecretForbidden",
            HookSecretReason::SecretLocked => "SecretLocked",
            HookSecretReason::KeysShared => "KeysShared",
            HookSecretReason::KeyInvalid => "KeyInvalid",
            HookSecretReason::TooManyKeys => "TooManyKeys",
            HookSecretReason::KeysMissing => "KeysMissing",
        }
    }
}

/// The keys of a pipeline's Secrets, by the name of the Secret, or why they are unknown.
pub type SecretKeys = BTreeMap<String, Result<Arc<HookKeys>, NoKeys>>;

/// Returns what is wrong with the Secrets that a pipeline names; `None` if nothing is. `callbacks` is true if
/// receivers of the strategy `webhook` can call back.
pub fn find_problem(pipeline: &Pipeline, secrets: &SecretKeys, callbacks: bool) -> Option<HookSecretProblem> {
    let mut all: Vec<(HookSecretReason, String)> = Vec::new();
    for (name, keys) in secrets {
        match keys {
            Err(NoKeys::Missing) => {
                let message = format!(
                    "there is no Secret {name}, so calls are answered 401; create it with a key such as {HMAC_KEY}"
                );
                all.push((HookSecretReason::SecretNotFound, message));
            }
            Err(NoKeys::Forbidden) => {
                let message = format!(
                    "the controller may not read Secret {name}, so calls are answered 503; grant it get on that Secret"
                );
                all.push((HookSecretReason::SecretForbidden, message));
            }
            Err(NoKeys::Locked(why)) => all.push((HookSecretReason::SecretLocked, why.clone())),
            Err(NoKeys::Unread) => {}
            Ok(keys) => all.extend(key_problems(pipeline, name, keys, callbacks)),
        }
    }
    all.extend(clusters_without_key(pipeline, secrets));
    let reason = all.first()?.0;
    let messages: Vec<String> = all.into_iter().map(|(_, message)| message).collect();
    let mut message = messages.join("; ");
    cut(&mut message, MAX_MESSAGE_BYTES);
    Some(HookSecretProblem { reason, message })
}

/// Returns a list of the first names, and how many more there are. A Secret can have thousands of keys.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>, separator: &str) -> String {
    let more = names.len().saturating_sub(MAX_NAMED_KEYS);
    let mut named: Vec<String> = names.take(MAX_NAMED_KEYS).cloned().collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(separator)
}

/// Returns what is wrong with the keys of one Secret.
fn key_problems(
    pipeline: &Pipeline,
    name: &str,
    keys: &HookKeys,
    callbacks: bool,
) -> Vec<(HookSecretReason, String)> {
    let mut all = Vec::new();
    for names in keys.shared().iter().take(MAX_NAMED_KEYS) {
        let message = format!(
            "in Secret {name}, {} have the same value, so only {HMAC_KEY} is accepted, if it is one of them; give each key its own value",
            listed(names.iter(), " and ")
        );
        all.push((HookSecretReason::KeysShared, message));
    }
    if !keys.broken().is_empty() {
        let message = format!(
            "in Secret {name}, keys with a line break inside are not accepted: {}; write keys of one line, such as the output of \
             openssl rand -hex 32",
            listed(keys.broken().iter(), ", ")
        );
        all.push((HookSecretReason::KeyInvalid, message));
    }
    if keys.excess() > 0 {
        let message = format!(
            "Secret {name} has more keys than are read, or longer ones: {} are not accepted; give the environments of the \
             pipeline Secrets of their own",
            keys.excess()
        );
        all.push((HookSecretReason::TooManyKeys, message));
    }
    if keys.is_empty() && keys.shared().is_empty() && keys.broken().is_empty() {
        let names = Purpose::SINGLE.map(|purpose| purpose.key().to_string()).join(", ");
        let message = format!("Secret {name} has no key for calls to the hook server; add one of {names}");
        all.push((HookSecretReason::KeysMissing, message));
    }
    // In versions with one key, `hmac-key` made the tokens, so a Secret with it may need `callback-key` now.
    let had_tokens = !keys.of_purpose(&Purpose::Event).is_empty();
    let has_no_callback_key = keys.of_purpose(&Purpose::Callback).is_empty();
    if callbacks && had_tokens && has_no_callback_key && has_webhook_with(pipeline, name) {
        let message = format!(
            "Secret {name} has no {CALLBACK_KEY}, so receivers of webhooks cannot call back; add {CALLBACK_KEY} with any random text"
        );
        all.push((HookSecretReason::KeysMissing, message));
    }
    all
}

/// Returns true if the pipeline has a webhook whose callback tokens are made with this Secret.
fn has_webhook_with(pipeline: &Pipeline, secret: &str) -> bool {
    let spec = &pipeline.spec;
    let mut strategies = spec.environments.iter().filter_map(|e| spec.policy(e)?.strategy.as_ref());
    strategies.any(|s| s.webhook.is_some() && s.secret_ref.as_ref().is_some_and(|of| of.name == secret))
}

/// Returns the problem of the clusters whose reports are refused because no Secret has their key. An environment
/// with a Secret that cannot be read is left out, since that Secret may have the key.
fn clusters_without_key(pipeline: &Pipeline, read: &SecretKeys) -> Vec<(HookSecretReason, String)> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let mut all = BTreeMap::new();
    for environment in &pipeline.spec.environments {
        let policies = pipeline.spec.policies_about(&environment.name);
        let secrets = secrets_of(policies.into_iter());
        let known: Option<Vec<&HookKeys>> =
            secrets.iter().map(|name| read.get(*name)?.as_deref().ok()).collect();
        let (Some(known), Some(first)) = (known, secrets.first()) else { continue };
        let pushed = environment.targets.iter().filter(|target| target.observe == Observe::Push);
        for cluster in pushed.filter_map(|target| target.cluster_ref.as_ref()) {
            let key = hook_key::report_key(cluster, home);
            let purpose = Purpose::Report(key.clone());
            if known.iter().all(|known| known.of_purpose(&purpose).is_empty()) {
                all.entry(key).or_insert((environment.name.as_str(), *first));
            }
        }
    }
    let Some((environment, secret)) = all.values().next().copied() else { return Vec::new() };
    let message = format!(
        "Secret {secret} has no {}, so reports of targets with observe: Push, as in environment {environment}, are refused \
         ({HMAC_KEY} does not sign them); add the key, and give it to that cluster alone (sluice export alert)",
        listed(all.keys(), ", ")
    );
    vec![(HookSecretReason::KeysMissing, message)]
}
