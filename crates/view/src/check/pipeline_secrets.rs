//! The Secrets that strategies and hooks name: does each exist, is it for this use, and does it have the keys?

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::hook_key::{APPROVAL_KEY, CALLBACK_KEY, FORGE_KEY, HMAC_KEY, TRIGGER_KEY};
use sluice_api::pipeline::{Pipeline, Strategy};
use sluice_api::secret_use::{SecretLock, SecretUse, USED_BY};

use super::{Finding, Reading, Topic};
use crate::object_name::ObjectName;

/// Returns the page that describes the keys for a use.
fn page(used_for: SecretUse) -> &'static str {
    match used_for {
        SecretUse::PullRequest => "docs/forges/README.md",
        SecretUse::Commit => "docs/strategies/commit.md#the-secret",
        SecretUse::Webhook => "docs/strategies/webhook.md#the-secret",
        SecretUse::Hook => "docs/hooks.md#create-the-keys",
    }
}

/// Returns what is wrong with the keys of a Secret for a use.
fn problem(need: &SecretNeed, keys: &BTreeSet<String>) -> Option<String> {
    let has = |key: &str| keys.contains(key);
    let token = || {
        has("token")
            || has("bearerToken")
            || has("password")
            || has("githubAppID") && has("githubAppPrivateKey")
    };
    let ssh = || ["identity", "known_hosts"].into_iter().find(|key| !has(key));
    let lacks = |key: &str| format!("has no key {key}");
    match (need.used_for, need.over_ssh) {
        (SecretUse::PullRequest | SecretUse::Commit, false) if token() => None,
        (SecretUse::PullRequest | SecretUse::Commit, false) => {
            Some("has none of the keys token, password, or githubAppID with githubAppPrivateKey".into())
        }
        (SecretUse::Commit, true) => ssh().map(lacks),
        (SecretUse::PullRequest, true) => match ssh() {
            Some(key) => Some(lacks(key)),
            None if token() => None,
            None => Some("has keys for git, and no token for the forge".into()),
        },
        (SecretUse::Webhook, _) if has("proxy") => {
            Some("has the key proxy, which this version refuses".into())
        }
        (SecretUse::Webhook, _) => None,
        (SecretUse::Hook, _) => {
            let known = [HMAC_KEY, TRIGGER_KEY, APPROVAL_KEY, FORGE_KEY, CALLBACK_KEY];
            let any = known.into_iter().any(has) || keys.iter().any(|key| key.starts_with("report-key."));
            (!any).then(|| format!("has no key for hooks, such as {HMAC_KEY}"))
        }
    }
}

/// A Secret, without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// Its type.
    pub type_: String,
    /// The value of the annotation [`USED_BY`], if it has it.
    pub used_by: Option<String>,
    /// The keys with a value that is not empty.
    pub keys: BTreeSet<String>,
}

/// One use of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretNeed {
    /// The namespace of the Secret and of the pipeline.
    pub namespace: String,
    /// The Secret.
    pub name: String,
    /// What it is for.
    pub used_for: SecretUse,
    /// Whether git is reached over ssh with it.
    pub over_ssh: bool,
    /// The pipeline that names it.
    pub pipeline: String,
}

/// The uses of Secrets, and the Secrets by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Each use.
    pub needs: BTreeSet<SecretNeed>,
    /// The Secrets that were looked up.
    pub found: BTreeMap<ObjectName, Reading<Secret>>,
}

/// Returns the Secrets that a pipeline names.
pub fn needs(pipeline: &Pipeline) -> BTreeSet<SecretNeed> {
    let spec = &pipeline.spec;
    let strategies = spec.environments.iter().filter_map(|e| spec.policy(e)?.strategy.as_ref());
    let need = |(used_for, over_ssh, name): (SecretUse, bool, &String)| SecretNeed {
        namespace: pipeline.metadata.namespace.clone().unwrap_or_default(),
        name: name.clone(),
        used_for,
        over_ssh,
        pipeline: pipeline.metadata.name.clone().unwrap_or_default(),
    };
    strategies.flat_map(uses).map(need).collect()
}

/// Returns the uses of Secrets of a strategy: what for, whether over ssh, and the name of the Secret.
fn uses(strategy: &Strategy) -> Vec<(SecretUse, bool, &String)> {
    let is_ssh = |url: &str| !url.starts_with("http://") && !url.starts_with("https://");
    let request =
        strategy.pull_request.as_ref().map(|s| (SecretUse::PullRequest, is_ssh(&s.url), &s.secret_ref.name));
    let commit = strategy
        .commit
        .as_ref()
        .and_then(|s| Some((SecretUse::Commit, is_ssh(&s.url), &s.secret_ref.as_ref()?.name)));
    let webhook = strategy
        .webhook
        .as_ref()
        .and_then(|s| Some((SecretUse::Webhook, false, &s.secret_ref.as_ref()?.name)));
    let hook = strategy.secret_ref.as_ref().map(|secret| (SecretUse::Hook, false, &secret.name));
    [request, commit, webhook, hook].into_iter().flatten().collect()
}

/// Returns the findings.
pub fn findings(facts: &Secrets) -> Vec<Finding> {
    facts.needs.iter().map(|need| finding(need, facts)).collect()
}

fn finding(need: &SecretNeed, facts: &Secrets) -> Finding {
    let topic = Topic::Secrets;
    let SecretNeed { namespace, name, used_for, pipeline, .. } = need;
    let what = format!("Secret {namespace}/{name}");
    let for_whom = match used_for {
        SecretUse::Hook => format!("the hooks of pipeline {pipeline}"),
        strategy => format!("the strategy {} of pipeline {pipeline}", strategy.name()),
    };
    let key = ObjectName { namespace: namespace.clone(), name: name.clone() };
    let secret = match facts.found.get(&key).unwrap_or(&Reading::Absent) {
        Reading::Known(secret) => secret,
        Reading::Absent => {
            let message = format!("{what} (for {for_whom}) does not exist");
            return Finding::error(topic, message).fix(format!("create it: {}", page(*used_for)));
        }
        unread => {
            let finding = unread.unread(topic, &format!("Secrets in namespace {namespace}"));
            return finding.unwrap_or_else(|| Finding::ok(topic, what));
        }
    };
    if let Some(why) = locked(secret, *used_for) {
        let message = format!("{what} is not for {for_whom}: {why}");
        return Finding::error(topic, message).fix("docs/operations.md#who-may-use-a-secret");
    }
    match problem(need, &secret.keys) {
        Some(problem) => {
            Finding::error(topic, format!("{what} (for {for_whom}) {problem}")).fix(page(*used_for))
        }
        None => Finding::ok(topic, format!("{what} has keys for {for_whom}")),
    }
}

/// Returns why the controller refuses a Secret for this use.
fn locked(secret: &Secret, used_for: SecretUse) -> Option<String> {
    let used_by = secret.used_by.as_deref();
    used_for.lock(&secret.type_, used_by).map(|lock| match lock {
        SecretLock::Annotation => format!("its annotation {USED_BY} is \"{}\"", used_by.unwrap_or_default()),
        SecretLock::Type => format!("its type is {}, and it has no annotation {USED_BY}", secret.type_),
    })
}
