//! The condition of a Pipeline whose Secret with hook keys is missing, incomplete or cannot be read. Calls alone would
//! not show it: a caller who is refused is not the one who can fix the Secret.

use std::collections::BTreeMap;

use sluice_api::hook_key::{self, CALLBACK_KEY, HMAC_KEY};
use sluice_api::pipeline::{Observe, Pipeline};

use super::hmac_keys::{HookKeys, NoKeys, Purpose, secrets_of};

/// The type of the condition. It is present only while something is wrong.
pub const CONDITION: &str = "HookSecretInvalid";

/// What is wrong with the Secrets of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSecretProblem {
    /// The reason of the condition.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// What is known of the Secrets with hook keys, by name.
pub type Findings = BTreeMap<String, Result<HookKeys, NoKeys>>;

/// What is wrong with the Secrets that a pipeline names; `None` if nothing is. `callbacks` says whether receivers of the
/// strategy `webhook` can call back.
pub fn problem(pipeline: &Pipeline, found: &Findings, callbacks: bool) -> Option<HookSecretProblem> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    for (name, keys) in found {
        match keys {
            Err(NoKeys::Missing) => {
                let message = format!(
                    "there is no Secret {name}, so calls are answered 401; create it with a key such as {HMAC_KEY}"
                );
                all.push(("SecretNotFound", message));
            }
            Err(NoKeys::Forbidden) => {
                let message = format!(
                    "the controller may not read Secret {name}, so calls are answered 503; grant it get on that Secret"
                );
                all.push(("SecretForbidden", message));
            }
            Err(NoKeys::Locked(why)) => all.push(("SecretLocked", why.clone())),
            Err(NoKeys::Unread) => {}
            Ok(known) => all.extend(incomplete(pipeline, name, known, callbacks)),
        }
    }
    all.extend(clusters_without_key(pipeline, found));
    let reason = all.first()?.0;
    let messages: Vec<String> = all.into_iter().map(|(_, message)| message).collect();
    Some(HookSecretProblem { reason, message: messages.join("; ") })
}

/// What is wrong with the keys in a Secret.
fn incomplete(
    pipeline: &Pipeline,
    name: &str,
    known: &HookKeys,
    callbacks: bool,
) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for names in known.shared() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!(
            "in Secret {name}, {} have the same value, so only {HMAC_KEY} counts, if it is one of them; give each key its own value",
            names.join(" and ")
        );
        all.push(("KeysShared", message));
    }
    if known.is_empty() && known.shared().is_empty() {
        let names = Purpose::SINGLE.map(|purpose| purpose.key().to_string()).join(", ");
        let message = format!("Secret {name} has no key for calls of the hook server; add one of {names}");
        all.push(("KeysMissing", message));
    }
    // Before each key had its purpose, this one made the tokens.
    let made_tokens = !known.of_purpose(&Purpose::Event).is_empty();
    let makes_none = known.of_purpose(&Purpose::Callback).is_empty();
    if callbacks && made_tokens && makes_none && calls_webhooks(pipeline, name) {
        let message = format!(
            "Secret {name} has no {CALLBACK_KEY}, so receivers of webhooks cannot call back; add {CALLBACK_KEY} with any random text"
        );
        all.push(("KeysMissing", message));
    }
    all
}

/// Whether the pipeline has a webhook whose call-backs need this Secret.
fn calls_webhooks(pipeline: &Pipeline, secret: &str) -> bool {
    let spec = &pipeline.spec;
    let mut strategies = spec.environments.iter().filter_map(|e| spec.policy(e)?.strategy.as_ref());
    strategies.any(|s| s.webhook.is_some() && s.secret_ref.as_ref().is_some_and(|of| of.name == secret))
}

/// The clusters whose reports are refused because no Secret has their key. Not where a Secret could not be read: it may
/// have the key.
fn clusters_without_key(pipeline: &Pipeline, found: &Findings) -> Vec<(&'static str, String)> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let mut all = BTreeMap::new();
    for environment in &pipeline.spec.environments {
        let policies = pipeline.spec.policies_about(&environment.name);
        let secrets = secrets_of(policies.into_iter());
        let known: Option<Vec<&HookKeys>> =
            secrets.iter().map(|name| found.get(*name)?.as_ref().ok()).collect();
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
    let keys: Vec<&str> = all.keys().take(MOST_NAMED).map(String::as_str).collect();
    let more =
        if all.len() > MOST_NAMED { format!(" and {} more", all.len() - MOST_NAMED) } else { String::new() };
    let message = format!(
        "Secret {secret} has no {}{more}, so reports of targets with observe: Push, as in environment {environment}, are refused \
         ({HMAC_KEY} does not sign them); add the key, and give it to that cluster alone (sluice export alert)",
        keys.join(", ")
    );
    vec![("KeysMissing", message)]
}

/// How many keys a message names.
const MOST_NAMED: usize = 10;
