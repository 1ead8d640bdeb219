//! The strategies to deliver a revision, with their settings.

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::pipeline::MergeMode;
use sluice_core::repository::Repository;
use sluice_core::setters::Update;

use super::cross_field_rules;
use super::references::SecretRef;
use crate::default_field::is_default;

/// Exactly one strategy to deliver a revision, and the Secret with the keys for calls of the hook server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = cross_field_rules::strategy_is_exactly_one())]
pub struct Strategy {
    /// Open a pull or merge request that sets the revision; a person or a rule merges it.
    #[serde(default, rename = "pull-request", skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestStrategy>,
    /// Commit the revision directly to a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitStrategy>,
    /// Publish an event about this Pipeline with environment and revision. A receiver of the event, for example by Flux's
    /// notification-controller, promotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<NotificationStrategy>,
    /// Call an address with a signed description of the promotion. The receiver promotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookStrategy>,
    /// Secret in the Pipeline's namespace with the keys for calls of the hook server. Each key is accepted for one
    /// purpose only: `hmac-key` signs events of Flux, `report-key.<cluster>` the reports of one cluster with
    /// `observe: Push`, `trigger-key` calls of `/trigger`, `approval-key` calls of `/approval`; a forge shows
    /// `forge-key`; tokens for call-backs are made from `callback-key`. While a key is rotated, the old one is
    /// accepted as `hmac-key-previous`, `report-key-previous.<cluster>` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Accept unsigned calls to this pipeline's hook. They only make Sluice observe the targets immediately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unsigned: bool,
}

impl Strategy {
    /// Returns the list of values to set, if the strategy has one.
    pub fn updates(&self) -> &[Update] {
        let request = self.pull_request.iter().map(|s| &s.update);
        request.chain(self.commit.iter().map(|s| &s.update)).next().map_or(&[], Vec::as_slice)
    }

    /// Returns the repository and the branch that get the values, if the strategy sets values.
    pub fn repository(&self) -> Option<Repository> {
        let of_request = self.pull_request.as_ref().map(|s| (&s.url, &s.base_branch));
        let (url, branch) = of_request.or(self.commit.as_ref().map(|s| (&s.url, &s.branch)))?;
        Some(Repository { url: url.clone(), branch: branch.clone() })
    }
}

/// The forge and repository of change requests, and their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = cross_field_rules::draft_is_not_merged(),
    validation = cross_field_rules::forge_has_a_merge_queue(),
    validation = cross_field_rules::forge_has_labels(),
    validation = cross_field_rules::forge_has_assignees(),
    validation = cross_field_rules::reviewers_of_bitbucket_are_ids(),
    validation = cross_field_rules::reviewers_of_azure_devops_are_ids()
)]
pub struct PullRequestStrategy {
    /// The kind of forge. `bitbucket` is Bitbucket Cloud, `bitbucket-server` Bitbucket Data Center.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "github", "gitlab", "gitea", "forgejo", "bitbucket", "bitbucket-server", "azure-devops"
    ]))]
    pub forge: String,
    /// The repository's address as for `git clone`, by https or ssh.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = repository_address())]
    pub url: String,
    /// The address of the forge's API, if it does not follow from `url`: for SSH, if the API has another port or path than
    /// https at the same host. For example `https://git.example.com:8443/api/v1`; docs/forges/README.md lists the path of
    /// each forge.
    #[serde(default, rename = "apiURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#@[:space:]]+(/[^?#[:space:]]*)?$')").message("apiURL is the address of the forge's API, without user, query and fragment: write for example https://git.example.com:8443/api/v1"))]
    pub api_url: Option<String>,
    /// The branch that change requests are opened against. Default `main`.
    #[serde(default = "main_branch")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = branch_name())]
    pub base_branch: String,
    /// Secret in the Pipeline's namespace: `token` for the forge, or `githubAppID` and
    /// `githubAppPrivateKey`; for git, if that is not enough, `username` and `password`, or
    /// `identity` and `known_hosts`; optionally `caFile`; to sign commits `signingKey`.
    pub secret_ref: SecretRef,
    /// The values to set, for repositories without markers. Markers are then ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub update: Vec<Update>,
    /// The labels of the change request. Labels that people add are kept. Missing labels are created in the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 50)))]
    #[x_kube(validation = Rule::new("self.all(l, l.matches('^[^,[:cntrl:]]+$'))").message("a label is one line without a comma"))]
    pub labels: Vec<String>,
    /// The requested reviewers, by their names on the forge; on GitHub and Gitea also teams, as `organization/team`. A
    /// reviewer that the forge refuses is reported in the status, and the change request is still opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 100)))]
    #[x_kube(validation = Rule::new("self.all(a, a.matches('^[^@[:space:]][^[:space:]]*$'))").message("reviewers are names of accounts, without @ and blanks"))]
    pub reviewers: Vec<String>,
    /// The assignees, by their names on the forge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 100)))]
    #[x_kube(validation = Rule::new("self.all(a, a.matches('^[^@[:space:]][^[:space:]]*$'))").message("assignees are names of accounts, without @ and blanks"))]
    pub assignees: Vec<String>,
    /// Open the change request as a draft, which a person marks as ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// The title of the change request, one line, with placeholders: `{namespace}`, `{pipeline}`, `{environment}`, `{target}`,
    /// `{revision}`, `{replaces}` and `{promotion}`. `{{` is a brace. Default
    /// `Promote {namespace}/{pipeline} to {revision} in {environment}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = Rule::new("self.replace('{{', '').replace('}}', '').findAll('[{][^}]*[}]').all(v, v in ['{namespace}', '{pipeline}', '{environment}', '{target}', '{revision}', '{replaces}', '{promotion}'])").message("title may have {namespace}, {pipeline}, {environment}, {target}, {revision}, {replaces}, {promotion}; write {{ and }} for braces"))]
    pub title: Option<String>,
    /// The body of the change request in Markdown, with the placeholders of the title, and `{evidence}`, `{changes}` and
    /// `{usual}`, which is the default body. Sluice adds the mark by which it finds the change request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4000))]
    #[x_kube(validation = Rule::new("self.replace('{{', '').replace('}}', '').findAll('[{][^}]*[}]').all(v, v in ['{namespace}', '{pipeline}', '{environment}', '{target}', '{revision}', '{replaces}', '{promotion}', '{evidence}', '{changes}', '{usual}'])").message("body may have {namespace}, {pipeline}, {environment}, {target}, {revision}, {replaces}, {promotion}, {evidence}, {changes}, {usual}; write {{ and }} for braces"))]
    pub body: Option<String>,
    /// The source branch. It ends with `{namespace}/{pipeline}/{environment}`, so that each environment has its own
    /// branch; or `promotion-{namespace}-{pipeline}-{environment}`, the branch of Weave's
    /// pipeline-controller, whose open change requests are then updated in place. Default
    /// `sluice/{namespace}/{pipeline}/{environment}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self == 'promotion-{namespace}-{pipeline}-{environment}' || self.matches('^([A-Za-z0-9_][A-Za-z0-9._-]*/)*[{]namespace[}]/[{]pipeline[}]/[{]environment[}]$') && !self.contains('..') && !self.contains('./') && !self.contains('.lock/')").message("branch has to end with {namespace}/{pipeline}/{environment}, so that each environment has its own branch: write for example deploy/{namespace}/{pipeline}/{environment}"))]
    pub branch: Option<String>,
    /// When Sluice merges the change request: `Never`; `WhenGreen`, when it has the checks and approvals that the forge
    /// requires; or `Queue`, by the merge queue of GitHub or Bitbucket Cloud or the merge train of GitLab. Sluice merges only
    /// the commit that it pushed. Default `Never`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub merge: MergeMode,
    /// Delete the source branch after the merge, unless another user has pushed to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete_branch: bool,
    /// Report the progress of the promotion as a commit status of the merged commit. This needs a permission that not every
    /// token has: see docs/strategies/pull-request.md. A failed report delays no promotion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commit_statuses: bool,
    /// `Environment`: one change request for all targets of the environment. `Target`: one for each target, merged
    /// separately; every marker then names its `"target"`. Default Environment.
    #[serde(default, skip_serializing_if = "is_default")]
    pub per: Per,
}

/// The targets of one change request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    /// All targets of an environment.
    #[default]
    Environment,
    /// One target.
    Target,
}

fn main_branch() -> String {
    "main".into()
}

/// The repository and branch to commit to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitStrategy {
    /// The repository's address as for `git clone`, by https or ssh.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = repository_address())]
    pub url: String,
    /// The branch to commit to. Default `main`.
    #[serde(default = "main_branch")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = branch_name())]
    pub branch: String,
    /// Secret in the Pipeline's namespace: `username` and `password`, or `token`, or `identity` and
    /// `known_hosts`, or `githubAppID` and `githubAppPrivateKey`; optionally `caFile`; to sign commits
    /// `signingKey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// The values to set, for repositories without markers. Markers are then ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub update: Vec<Update>,
}

/// The notification strategy, which has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationStrategy {}

/// The address to call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStrategy {
    /// The address that is called, by https. Addresses that are not public are refused unless the
    /// controller's flags allow them.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#[:space:]]')").message("write https:// and the address that is called"))]
    pub url: String,
    /// Secret in the Pipeline's namespace with the keys of a Flux generic Provider, each optional:
    /// `token` signs the body, `headers` is a YAML map of further headers, `address` replaces `url`;
    /// also `username` and `password`, and `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// The rule for the address of a repository.
fn repository_address() -> Rule {
    Rule::new("self.matches('^(https?|ssh)://[^/[:space:]]+/[^[:space:]]') || self.matches('^[^-/:@?#[:space:]][^/:@?#[:space:]]*@[^/:?#[:space:]]+:[^:[:space:]][^[:space:]]*$')").message("write https://host/owner/repository.git, ssh://git@host/owner/repository.git or git@host:owner/repository.git")
}

/// The rule for the name of a branch.
fn branch_name() -> Rule {
    Rule::new("!self.startsWith('refs/')")
        .message("write the name of the branch without refs/heads/, for example main")
}
