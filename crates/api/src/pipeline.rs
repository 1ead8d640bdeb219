//! The `Pipeline`: which environments an application goes through, on which clusters, and how a
//! revision gets from one to the next. The field shapes of the Go predecessor are kept.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::promotion::Phase;

/// Continuous delivery of one application through an ordered list of environments.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pipelines.weave.works",
    version = "v1alpha1",
    kind = "Pipeline",
    namespaced,
    status = "PipelineStatus",
    shortname = "pl",
    category = "all",
    category = "fluxcd",
    derive = "PartialEq",
    derive = "Default",
    doc = "Pipeline names the environments an application goes through, in order, and how each revision is promoted from one to the next.",
    printcolumn(name = "Application", type_ = "string", json_path = ".spec.appRef.name"),
    printcolumn(name = "Environments", type_ = "string", json_path = ".status.summary.environments"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Promoting", type_ = "string", json_path = ".status.summary.promoting"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSpec {
    /// Pause: the pipeline is still observed and shown, but nothing is started, pushed or opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// The one application of this pipeline, under the same kind and name in every target's
    /// namespace. The API version is not compared: the version that each cluster serves is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_ref: Option<AppRef>,
    /// What makes a revision of this pipeline: `chart`, `app`, `images`, `tag`, `digest`, `source`
    /// or `image:<repository>`. Default: `chart` for a HelmRelease; `tag` for a Kustomization from
    /// an OCIRepository; `images` for a Kustomization from a GitRepository whose workloads show
    /// images, and `source` for one whose workloads show none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.all(t, t in ['chart', 'app', 'images', 'tag', 'digest', 'source'] || (t.startsWith('image:') && t.size() > 6))").message("tracks knows chart, app, images, tag, digest, source and image:<repository>"))]
    pub tracks: Vec<String>,
    /// The environments, in the order in which a revision goes through them.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        validation = Rule::new("self.all(e, self.exists_one(x, x.name == e.name))").message("two environments have the same name: give each its own"),
        // Rules know no index of the element they look at: the places are counted out.
        validation = Rule::new("[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].all(i, i >= self.size() || !has(self[i].after) || self[i].after.all(a, [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].exists(j, j < i && self[j].name == a)))").message("after may only name environments that stand before it in the list: correct the name, move the environment down, or take the name out of after")
    )]
    pub environments: Vec<Environment>,
    /// How to promote into each environment that does not say so itself. Without it here and there,
    /// the pipeline only shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionPolicy>,
}

impl PipelineSpec {
    /// How revisions are promoted into an environment: as it says itself, else as the pipeline does.
    pub fn policy<'a>(&'a self, environment: &'a Environment) -> Option<&'a PromotionPolicy> {
        environment.promotion.as_deref().or(self.promotion.as_ref())
    }

    /// The names of the environments whose revisions come into the one at this place in the list.
    pub fn after(&self, at: usize) -> Vec<&str> {
        let named = self.environments.get(at).map_or(&[][..], |e| &e.after);
        let before = at.checked_sub(1).filter(|_| named.is_empty()).and_then(|at| self.environments.get(at));
        named.iter().map(|name| name.0.as_str()).chain(before.map(|e| e.name.as_str())).collect()
    }
}

/// Names a Flux object by kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppRef {
    /// API group and version, for example `helm.toolkit.fluxcd.io/v2`. Only the group counts.
    pub api_version: String,
    /// `HelmRelease` or `Kustomization`.
    pub kind: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// One step on the way of a revision, for example dev or prod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// A DNS-1123 label, unique in the pipeline.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("an environment's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub name: String,
    /// Where the application runs in this environment.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.all(t, !has(t.name) || self.exists_one(x, has(x.name) && x.name == t.name))").message("two targets of this environment have the same name: give each its own"))]
    pub targets: Vec<Target>,
    /// The environments whose revisions come here; default is the one before it in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub after: Vec<EnvironmentName>,
    /// How to promote into this environment; replaces the pipeline's own promotion as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Box<PromotionPolicy>>,
}

/// An environment's name where another environment refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EnvironmentName(#[schemars(length(min = 1, max = 63))] pub String);

/// One namespace on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Unique in its environment; default is made from the cluster's name and the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a target's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub name: Option<String>,
    /// The namespace in which the application's Flux objects are.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a namespace's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub namespace: String,
    /// The cluster; absent, it is the cluster that holds the Pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// Further members of this target, by kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub workloads: Vec<WorkloadRef>,
}

/// Names a GitopsCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Accepted and not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `GitopsCluster`.
    #[schemars(extend("enum" = ["GitopsCluster"]))]
    pub kind: String,
    /// The GitopsCluster's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; default is the Pipeline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Names a member of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// `Kustomization` or `HelmRelease`.
    #[schemars(extend("enum" = ["Kustomization", "HelmRelease"]))]
    pub kind: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How revisions are promoted into an environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.pullRequest)").message("promotion.pullRequest is an older form: write promotion: {strategy: {pull-request: {type: github, url: ..., baseBranch: main, secretRef: {name: ...}}}}"),
    validation = Rule::new("!has(self.pull__dash__request) && !has(self.notification)").message("the strategy has a level of its own: write promotion: {strategy: {pull-request: {...}}} or promotion: {strategy: {notification: {}}}"),
    validation = Rule::new("!has(self.webhook)").message("promotion.webhook is an older form: write promotion: {strategy: {webhook: {url: ..., secretRef: {name: ...}}}}"),
    validation = Rule::new("has(self.strategy) || has(self.pullRequest) || has(self.pull__dash__request) || has(self.notification) || has(self.webhook)").message("promotion needs a strategy: write promotion: {strategy: {pull-request: {...}}} or one of commit, notification, webhook")
)]
pub struct PromotionPolicy {
    /// A person approves each revision before it goes into the environment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub manual: bool,
    /// Of each environment it comes after, how many targets must have run the revision healthily:
    /// a number, or a percentage such as `100%`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent")]
    pub min_ready_targets: Option<IntOrPercent>,
    /// Promote a revision that is older than what the environment runs without asking.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_downgrade: bool,
    /// How long a delivered revision may take to run healthily before its promotion counts as
    /// Failed, as a duration such as `30m`. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$') && self.matches('[1-9]')").message("timeout is a duration such as 30m or 1h30m: hours, minutes and seconds in this order, and more than none"))]
    pub timeout: Option<String>,
    /// How a revision is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Older form; refused with the form to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub pull_request: Option<serde_json::Value>,
    /// Older form; refused with the form to write.
    #[serde(default, rename = "pull-request", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub pull_request_without_strategy: Option<serde_json::Value>,
    /// Older form; refused with the form to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub notification: Option<serde_json::Value>,
    /// Older form; refused with the form to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub webhook: Option<serde_json::Value>,
}

/// A count of targets, absolute or as a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// So many targets.
    Count(u32),
    /// So many percent of the targets, rounded up; ends in `%`.
    Percent(String),
}

fn int_or_percent(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 && self <= 128 : self.matches('^(100|[1-9][0-9]?)%$')",
            "message": "minReadyTargets is a number from 1 to 128, or a percentage from 1% to 100%"
        }]
    })
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

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

/// What runs where, and what is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the Pipeline that this status speaks of.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready`: every target could be read. `Reconciling`, `Stalled` and `PromotionPending` are
    /// present only when true.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One line each, for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// By environment name. One writer owns all of it: the bookkeeping of who owns which field would
    /// otherwise be larger than what it is about, in every list and every watch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub environments: BTreeMap<String, EnvironmentStatus>,
}

/// The pipeline in one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Each environment with what it runs, in order.
    pub environments: String,
    /// What is being promoted where; empty when nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promoting: String,
}

/// What one environment runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStatus {
    /// The worst health of its targets.
    #[serde(default)]
    pub health: Health,
    /// The revision, when all targets agree on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why nothing moves into this environment now, when something could.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// In the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
    /// The revision that waits for a person's approval; empty when none does.
    #[serde(default)]
    pub waiting_approval: WaitingApproval,
    /// The promotion in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionSummary>,
}

/// Flux's own words for how a workload does. The order is from best to worst.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Health {
    /// Runs what it should, healthily.
    Ready,
    /// On its way.
    Progressing,
    /// Flux does not reconcile it: somebody suspended it.
    Suspended,
    /// Not looked at by Flux yet.
    Pending,
    /// Went wrong.
    Failed,
    /// Could not be read; never counts as healthy.
    #[default]
    Unknown,
}

/// What one target runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The target's name.
    pub name: String,
    /// The target's namespace.
    pub namespace: String,
    /// The application's object and its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_app_ref: Option<ClusterAppRef>,
    /// The worst health of its workloads.
    #[serde(default)]
    pub health: Health,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub since: Option<String>,
    /// Whether every member was read and is Ready.
    #[serde(default)]
    pub ready: bool,
    /// What it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why it could not be read, or what is wrong with it, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The members of the target and what they made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadStatus>,
    /// The revisions that this target has run healthily, oldest first: what promotions rest on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verified>,
}

/// A pattern and no format: where a text has a format, the API server lets lists in as well.
pub(crate) fn date_time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let pattern =
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$";
    schemars::json_schema!({ "type": "string", "pattern": pattern })
}

/// Conditions as far as they can be read: what the API server takes for a time is not always one.
fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|condition| serde_json::from_value(condition).ok()).collect())
}

/// An application's object on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAppRef {
    /// API version as the Pipeline names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind as the Pipeline names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name as the Pipeline names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The cluster, unless it is the one that holds the Pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
}

/// A workload of a target: a Flux object, or what it made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Kustomization, HelmRelease, Deployment, StatefulSet, DaemonSet or CronJob.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Chart version, tag or revision of a Flux object; the image tags of a Deployment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// How it does.
    #[serde(default)]
    pub health: Health,
    /// What it says about itself when it is not Ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The images it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// A revision that a target has run healthily.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The revision by its facets: `HelmRelease/podinfo:chart` to `6.1.8`.
    pub facets: BTreeMap<String, String>,
    /// Its place in the order in which revisions arrived, over the whole pipeline.
    pub arrival: u64,
    /// How many times the target had come back to this revision before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run: u32,
    /// When it was first seen healthy.
    #[schemars(schema_with = "date_time")]
    pub at: String,
}

pub(crate) fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The revision that waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingApproval {
    /// Empty when none does.
    #[serde(default)]
    pub revision: String,
}

/// The promotion in hand, in short; the Promotion object has the whole story.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSummary {
    /// The Promotion's name.
    pub name: String,
    /// What is promoted.
    pub revision: String,
    /// Where it is.
    pub phase: Phase,
    /// What it waits for, or what went wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its change request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestSummary>,
}

/// A change request, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullRequestSummary {
    /// Where to look at it.
    pub url: String,
    /// `open`, `merged`, `closed`, `withdrawn` or `left`, as in the Promotion.
    pub state: String,
}
