//! How a revision is delivered: exactly one of four ways, each with its settings.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Exactly one way of delivering a revision, and the key for webhook calls about this pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.pull__dash__request), has(self.commit), has(self.notification), has(self.webhook)].filter(x, x).size() == 1").message("a strategy is exactly one of pull-request, commit, notification and webhook"))]
pub struct Strategy {
    /// Open a pull or merge request that sets the revision; a person or a rule merges it.
    #[serde(default, rename = "pull-request", skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestStrategy>,
    /// Commit the revision straight to a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitStrategy>,
    /// Announce the promotion by an event about this Pipeline that names environment and revision; whoever
    /// listens (Flux's notification-controller passes it on) promotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<NotificationStrategy>,
    /// Call an address with a signed description of the promotion; the other side promotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookStrategy>,
    /// Secret in the Pipeline's namespace whose key `hmac-key` authenticates calls to this
    /// pipeline's hook; while it is rotated, `hmac-key-previous` is good too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Take calls to this pipeline's hook that nobody has signed. They only make Sluice look at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unsigned: bool,
}

/// Which forge to open a change request on, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestStrategy {
    /// The kind of forge. `bitbucket` is Bitbucket Cloud, `bitbucket-server` Bitbucket Data Center.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "github", "gitlab", "gitea", "forgejo", "bitbucket", "bitbucket-server", "azure-devops"
    ]))]
    pub forge: String,
    /// The repository's address as for `git clone`, by https or ssh.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The branch that change requests are opened against. Default `main`.
    #[serde(default = "main_branch")]
    #[schemars(length(min = 1, max = 255))]
    pub base_branch: String,
    /// Secret in the Pipeline's namespace: `token` for the forge; for git `username` and
    /// `password`, or `identity` and `known_hosts`; optionally `caFile`.
    pub secret_ref: SecretRef,
    /// `Environment`: one change request for all targets of the environment. `Target`: one for each of
    /// them, merged one by one; then every marker names its `"target"`. Default Environment.
    #[serde(default, skip_serializing_if = "Per::is_environment")]
    pub per: Per,
}

/// What one change request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    /// All targets of an environment.
    #[default]
    Environment,
    /// One target.
    Target,
}

impl Per {
    fn is_environment(&self) -> bool {
        *self == Per::Environment
    }
}

fn main_branch() -> String {
    "main".into()
}

/// Which branch to commit to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitStrategy {
    /// The repository's address as for `git clone`, by https or ssh.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The branch to commit to. Default `main`.
    #[serde(default = "main_branch")]
    #[schemars(length(min = 1, max = 255))]
    pub branch: String,
    /// Secret in the Pipeline's namespace: `username` and `password`, or `identity` and
    /// `known_hosts`; optionally `caFile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// Has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationStrategy {}

/// Whom to call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStrategy {
    /// The address that is called, by https. Addresses that are not public are refused unless the
    /// controller's flags allow them.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Secret in the Pipeline's namespace with the keys of a Flux generic Provider, each optional:
    /// `token` signs the body, `headers` is a YAML map of further headers, `address` replaces `url`;
    /// also `username` and `password`, and `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// Names a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
