//! The condition of a Pipeline whose Secret with hook keys is missing, incomplete or cannot be read. The answers
//! to calls do not name such a problem, and callers usually cannot fix the Secret.

use std::collections::BTreeMap;

use sluice_api::hook_key::{self, CALLBACK_KEY, HMAC_KEY};
use sluice_api::pipeline::{Observe, Pipeline};

use super::hmac_keys::{HookKeys, NoKeys, Purpose, secrets_of};

/// The type of the condition. A Pipeline has it only while there is a problem.
pub const CONDITION: &str = "HookSecretInvalid";

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
            HookSecretReason::KeysMissing => "KeysMissing",
        }
    }
}

/// The keys of a pipeline's Secrets, by the name of the Secret, or why they are unknown.
pub type SecretKeys = BTreeMap<String, Result<HookKeys, NoKeys>>;

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
    Some(HookSecretProblem { reason, message: messages.join("; ") })
}

/// Returns what is wrong with the keys of one Secret.
fn key_problems(
    pipeline: &Pipeline,
    name: &str,
    keys: &HookKeys,
    callbacks: bool,
) -> Vec<(HookSecretReason, String)> {
    let mut all = Vec::new();
    for names in keys.shared() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!(
            "in Secret {name}, {} have the same value, so only {HMAC_KEY} is accepted, if it is one of them; give each key its own value",
            names.join(" and ")
        );
        all.push((HookSecretReason::KeysShared, message));
    }
    if !keys.broken().is_empty() {
        let names: Vec<&str> = keys.broken().iter().map(String::as_str).collect();
        let message = format!(
            "in Secret {name}, keys with a line break inside are not accepted: {}; write keys of one line, such as the output of \
             openssl rand -hex 32",
            names.join(", ")
        );
        all.push((HookSecretReason::KeyInvalid, message));
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
            secrets.iter().map(|name| read.get(*name)?.as_ref().ok()).collect();
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
    let keys: Vec<&str> = all.keys().take(MAX_NAMED_KEYS).map(String::as_str).collect();
    let more = if all.len() > MAX_NAMED_KEYS {
        format!(" and {} more", all.len() - MAX_NAMED_KEYS)
    } else {
        String::new()
    };
    let message = format!(
        "Secret {secret} has no {}{more}, so reports of targets with observe: Push, as in environment {environment}, are refused \
         ({HMAC_KEY} does not sign them); add the key, and give it to that cluster alone (sluice export alert)",
        keys.join(", ")
    );
    vec![(HookSecretReason::KeysMissing, message)]
}

/// How many missing keys a message names.
const MAX_NAMED_KEYS: usize = 10;
