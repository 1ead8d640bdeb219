//! What a pipeline's status says.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::references::ClusterRef;
use crate::promotion::Phase;
use crate::schema::{date_time, is_zero};

/// What runs where, and what is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the Pipeline that this status speaks of.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready`: every target was read and none is Failed. `Reconciling`, `Stalled`, `PromotionPending` and
    /// `Summarized` are present only when true.
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
    /// The revisions that `proofs` of targets refer to, each by its facets. Only in a status that would be too
    /// large with the facets at every target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<BTreeMap<String, String>>,
    /// The clusters of targets that cannot be reached, as the events `ClusterLost` and `ClusterBack` last said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_clusters: Vec<String>,
    /// When a forge last said that something became of a change request: they are looked at then.
    /// Whichever replica was called wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub forge_called: Option<String>,
    /// What the members of targets with `observe: Push` reported last, by
    /// `<environment>/<target>/<kind>/<name>`. Whichever replica took the report wrote it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reports: BTreeMap<String, Report>,
}

/// What a Kustomization or HelmRelease said of itself, in an event that was signed. Every field is
/// always written, so that a merge leaves nothing of an earlier report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When it happened, as the event says.
    #[schemars(schema_with = "date_time")]
    pub time: String,
    /// The object's resource version in the event: of two in one second the higher is the later.
    #[serde(default)]
    pub version: u64,
    /// `Ready`; `Failed`; or `Progressing` while the tests of a release are still to come.
    pub health: Health,
    /// The event's reason.
    #[serde(default)]
    pub reason: String,
    /// What the object said when it is not Ready.
    #[serde(default)]
    pub message: String,
    /// The revision that it last said to run, as Flux writes it.
    #[serde(default)]
    pub revision: String,
    /// That revision's appVersion, if it said one.
    #[serde(default)]
    pub app: String,
    /// That revision's digest, if it said one.
    #[serde(default)]
    pub digest: String,
    /// Its releases are tested: one is Ready when its tests have succeeded, and not before.
    #[serde(default)]
    pub tests: bool,
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

impl fmt::Display for Health {
    /// Writes the word as in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What one target runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The target's name. The predecessor recorded none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The target's namespace. The predecessor recorded none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
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
    /// For a target with `observe: Push`: when its members last said something, the oldest of these
    /// times; absent while one of them has said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub reported: Option<String>,
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
    /// The promotion in hand, where each target is promoted into by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionSummary>,
    /// The revisions that this target has run healthily, oldest first: what promotions rest on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verified>,
    /// The same in short, for a status that would be too large otherwise: for each verified revision its place
    /// in `status.revisions`, its arrival, its run and its time, as `place/arrival/run/time`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proofs: String,
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What is promoted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Where it is.
    #[serde(default)]
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// `open`, `merged`, `closed`, `withdrawn` or `left`, as in the Promotion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}
