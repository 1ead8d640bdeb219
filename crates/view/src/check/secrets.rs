//! The Secrets that strategies and hooks name: does each exist, is it for this use, and does it have the keys?

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::hook_key::{APPROVAL_KEY, CALLBACK_KEY, FORGE_KEY, HMAC_KEY, TRIGGER_KEY};
use sluice_api::pipeline::{Pipeline, Strategy};

use super::{Fact, Finding, Topic};

/// The annotation that restricts the use of a Secret.
pub const USED_BY: &str = "pipelines.weave.works/used-by";

/// The types of Secrets that need no annotation.
const ALLOWED_TYPES: [&str; 4] = ["", "Opaque", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"];

/// What a Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretUse {
    /// The strategy `pull-request`, over https.
    PullRequest,
    /// The strategy `pull-request`, over ssh.
    PullRequestSsh,
    /// The strategy `commit`, over https.
    Commit,
    /// The strategy `commit`, over ssh.
    CommitSsh,
    /// The strategy `webhook`.
    Webhook,
    /// The keys of hooks.
    Hook,
}

impl SecretUse {
    /// Returns the name in the annotation.
    fn name(self) -> &'static str {
        match self {
            SecretUse::PullRequest | SecretUse::PullRequestSsh => "pull-request",
            SecretUse::Commit | SecretUse::CommitSsh => "commit",
            SecretUse::Webhook => "webhook",
            SecretUse::Hook => "hook",
        }
    }

    /// Returns the page that describes the keys.
    fn page(self) -> &'static str {
        match self {
            SecretUse::PullRequest | SecretUse::PullRequestSsh => "docs/forges/README.md",
            SecretUse::Commit | SecretUse::CommitSsh => "docs/strategies/commit.md#the-secret",
            SecretUse::Webhook => "docs/strategies/webhook.md#the-secret",
            SecretUse::Hook => "docs/hooks.md#create-the-keys",
        }
    }

    /// Returns what is wrong with the keys.
    fn problem(self, keys: &BTreeSet<String>) -> Option<String> {
        let has = |key: &str| keys.contains(key);
        let token = || {
            has("token")
                || has("bearerToken")
                || has("password")
                || has("githubAppID") && has("githubAppPrivateKey")
        };
        let ssh = || ["identity", "known_hosts"].into_iter().find(|key| !has(key));
        let lacks = |key: &str| format!("has no key {key}");
        match self {
            SecretUse::PullRequest | SecretUse::Commit if token() => None,
            SecretUse::PullRequest | SecretUse::Commit => {
                Some("has none of the keys token, password, or githubAppID with githubAppPrivateKey".into())
            }
            SecretUse::CommitSsh => ssh().map(lacks),
            SecretUse::PullRequestSsh => match ssh() {
                Some(key) => Some(lacks(key)),
                None if token() => None,
                None => Some("has keys for git, and no token for the forge".into()),
            },
            SecretUse::Webhook if has("proxy") => {
                Some("has the key proxy, which this version refuses".into())
            }
            SecretUse::Webhook => None,
            SecretUse::Hook => {
                let known = [HMAC_KEY, TRIGGER_KEY, APPROVAL_KEY, FORGE_KEY, CALLBACK_KEY];
                let any = known.into_iter().any(has) || keys.iter().any(|key| key.starts_with("report-key."));
                (!any).then(|| format!("has no key for hooks, such as {HMAC_KEY}"))
            }
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
    /// The pipeline that names it.
    pub pipeline: String,
}

/// The uses of Secrets, and the Secrets by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Each use.
    pub needs: BTreeSet<SecretNeed>,
    /// The Secrets that were looked up.
    pub found: BTreeMap<(String, String), Fact<Secret>>,
}

/// Returns the Secrets that a pipeline names.
pub fn needs(pipeline: &Pipeline) -> BTreeSet<SecretNeed> {
    let spec = &pipeline.spec;
    let strategies = spec.environments.iter().filter_map(|e| spec.policy(e)?.strategy.as_ref());
    let need = |(used_for, name): (SecretUse, &String)| SecretNeed {
        namespace: pipeline.metadata.namespace.clone().unwrap_or_default(),
        name: name.clone(),
        used_for,
        pipeline: pipeline.metadata.name.clone().unwrap_or_default(),
    };
    strategies.flat_map(uses).map(need).collect()
}

fn uses(strategy: &Strategy) -> Vec<(SecretUse, &String)> {
    let is_ssh = |url: &str| !url.starts_with("http://") && !url.starts_with("https://");
    let request = strategy.pull_request.as_ref().map(|s| {
        let used_for = if is_ssh(&s.url) { SecretUse::PullRequestSsh } else { SecretUse::PullRequest };
        (used_for, &s.secret_ref.name)
    });
    let commit = strategy.commit.as_ref().and_then(|s| {
        let used_for = if is_ssh(&s.url) { SecretUse::CommitSsh } else { SecretUse::Commit };
        Some((used_for, &s.secret_ref.as_ref()?.name))
    });
    let webhook =
        strategy.webhook.as_ref().and_then(|s| Some((SecretUse::Webhook, &s.secret_ref.as_ref()?.name)));
    let hook = strategy.secret_ref.as_ref().map(|secret| (SecretUse::Hook, &secret.name));
    [request, commit, webhook, hook].into_iter().flatten().collect()
}

/// Returns the findings.
pub fn findings(facts: &Secrets) -> Vec<Finding> {
    facts.needs.iter().map(|need| finding(need, facts)).collect()
}

fn finding(need: &SecretNeed, facts: &Secrets) -> Finding {
    let topic = Topic::Secrets;
    let SecretNeed { namespace, name, used_for, pipeline } = need;
    let what = format!("Secret {namespace}/{name}");
    let for_whom = match used_for {
        SecretUse::Hook => format!("the hooks of pipeline {pipeline}"),
        strategy => format!("the strategy {} of pipeline {pipeline}", strategy.name()),
    };
    let key = (namespace.clone(), name.clone());
    let secret = match facts.found.get(&key).unwrap_or(&Fact::Absent) {
        Fact::Known(secret) => secret,
        Fact::Absent => {
            let message = format!("{what} does not exist: it is for {for_whom}");
            return Finding::error(topic, message).fix(format!("create it: {}", used_for.page()));
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
    match used_for.problem(&secret.keys) {
        Some(problem) => {
            Finding::error(topic, format!("{what} {problem}: it is for {for_whom}")).fix(used_for.page())
        }
        None => Finding::ok(topic, format!("{what} has keys for {for_whom}")),
    }
}

/// Returns why the controller refuses a Secret for this use.
fn locked(secret: &Secret, used_for: SecretUse) -> Option<String> {
    match &secret.used_by {
        Some(used_by) if !used_by.split(',').any(|one| one.trim() == used_for.name()) => {
            Some(format!("its annotation {USED_BY} is \"{used_by}\""))
        }
        None if !ALLOWED_TYPES.contains(&secret.type_.as_str()) => {
            Some(format!("its type is {}, and it has no annotation {USED_BY}", secret.type_))
        }
        _ => None,
    }
}
