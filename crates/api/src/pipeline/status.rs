//! The status of a Pipeline.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use sluice_core::Time;
pub use sluice_core::observed::Health;

use super::references::ClusterRef;
use crate::default_field::is_default;
use crate::promotion::{Phase, RecordedRequestState};

/// The observed state of the targets, and the promotions in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the Pipeline that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// `Ready`: every target was read and none is Failed. `Reconciling`, `Stalled`, `PromotionPending` and
    /// `Summarized` are present only when true.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Summaries for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The environments, by name. One writer owns the whole map: otherwise `managedFields` would be larger than the map, in
    /// every list and every watch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub environments: BTreeMap<String, EnvironmentStatus>,
    /// The revisions that `proofs` of targets refer to, each by its facets. Present only in a status that would be
    /// too large with the facets at every target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<BTreeMap<String, String>>,
    /// The clusters that cannot be reached, by the last events `ClusterLost` and `ClusterBack`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_clusters: Vec<String>,
    /// When a forge last reported a change of a change request. Sluice then reads the change requests. The replica that was
    /// called writes the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forge_called: Option<Time>,
    /// The last reports of the members of targets with `observe: Push`, by `<environment>/<target>/<kind>/<name>`. The
    /// replica that received the report writes it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reports: BTreeMap<String, Report>,
}

impl PipelineStatus {
    /// Returns the verified revisions of a target, oldest first, from either form.
    pub fn verified_by(&self, target: &TargetStatus) -> Vec<Verified> {
        let shared = target.proofs.split_whitespace().filter_map(|text| {
            let mut parts = text.splitn(4, '/');
            let mut next = || parts.next();
            let facets = self.revisions.get(next()?.parse::<usize>().ok()?)?.clone();
            let (arrival, run) = (next()?.parse().ok()?, next()?.parse().ok()?);
            Some(Verified { facets, arrival, run, at: next()?.parse().ok()? })
        });
        shared.chain(target.verified.iter().cloned()).collect()
    }

    /// Returns the revision that a target has run last without being healthy with it, from either form.
    pub fn unverified_at(&self, target: &TargetStatus) -> Option<BTreeMap<String, String>> {
        let shared = || {
            let mut indices = target.proofs.split_whitespace().filter_map(|text| text.parse::<usize>().ok());
            self.revisions.get(indices.next()?).cloned()
        };
        target.unverified.clone().or_else(shared)
    }
}

/// A report of a Kustomization or HelmRelease, from a signed event. All fields are always written, so that a merge leaves
/// nothing of an earlier report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The time in the event.
    pub time: Time,
    /// The object's resource version in the event. Of two events in one second, the higher version is the later one.
    #[serde(default)]
    pub version: u64,
    /// `Ready`; `Failed`; or `Progressing` while the tests of a release are still to come.
    pub health: Health,
    /// The event's reason.
    #[serde(default)]
    pub reason: String,
    /// The message of the event if the object is not Ready.
    #[serde(default)]
    pub message: String,
    /// The last reported revision, as Flux writes it.
    #[serde(default)]
    pub revision: String,
    /// The appVersion of that revision, if it was reported.
    #[serde(default)]
    pub app: String,
    /// The digest of that revision, if it was reported.
    #[serde(default)]
    pub digest: String,
    /// True if Helm tests the releases: a release is Ready only after its tests have succeeded.
    #[serde(default)]
    pub tests: bool,
}

/// The summaries of a pipeline, one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The environments with their revisions, in order.
    pub environments: String,
    /// The promotions in progress; empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promoting: String,
}

/// The state of one environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStatus {
    /// The worst health of its targets.
    #[serde(default)]
    pub health: Health,
    /// The revision, if all targets run the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why nothing is promoted into this environment now, although something could be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason of the message, one word, as in the condition `PromotionPending`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The targets, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
    /// The revision that waits for an approval.
    #[serde(default)]
    pub waiting_approval: WaitingApproval,
    /// The promotion in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionSummary>,
}

/// The state of one target.
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
    /// When the health last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// For a target with `observe: Push`: the time of the last report, the oldest of all members. Absent until every member
    /// has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Time>,
    /// True if every member was read and is Ready.
    #[serde(default)]
    pub ready: bool,
    /// The revision that the target runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why the target could not be read or is not healthy, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The members of the target and the workloads that they made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadStatus>,
    /// The promotion in progress, if each target is promoted into separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionSummary>,
    /// The revisions that this target has run healthily, oldest first. Promotions need them as proofs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verified>,
    /// The revision that this target has run last, by its facets, if it has not been healthy with it since it began to run it.
    /// It has the facets of workloads, too, that have disappeared from the target. While something cannot be read, Sluice assumes
    /// that it still runs this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<BTreeMap<String, String>>,
    /// The same in short form, for a status that would be too large otherwise: for each verified revision its index in
    /// `status.revisions`, its arrival, its run and its time, as `index/arrival/run/time`, and `index` for the one that is
    /// not verified.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proofs: String,
}

impl TargetStatus {
    /// Returns true if the predecessor wrote the status: it recorded neither name nor namespace.
    pub fn is_of_predecessor(&self) -> bool {
        self.name.is_empty() && self.namespace.is_empty()
    }

    /// Returns the health. The predecessor recorded only whether a target is ready.
    pub fn shown_health(&self) -> Health {
        if self.is_of_predecessor() && self.ready { Health::Ready } else { self.health }
    }
}

/// Reads the readable conditions. The API server accepts times that cannot be parsed.
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
    /// The cluster, unless it is the cluster with the Pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
}

/// A workload of a target: a Flux object, or a workload that it made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Kustomization, HelmRelease, Deployment, StatefulSet, DaemonSet or CronJob.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The chart version, tag or revision of a Flux object; the image tags of a Deployment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The health of the workload.
    #[serde(default)]
    pub health: Health,
    /// The message of its condition if it is not Ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The images of its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// A revision that a target has run healthily.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The revision by its facets: `HelmRelease/podinfo:chart` to `6.1.8`.
    pub facets: BTreeMap<String, String>,
    /// The number of its arrival, counted over the whole pipeline.
    pub arrival: u64,
    /// How many times the target had come back to this revision before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run: u32,
    /// When the revision was first seen healthy.
    pub at: Time,
}

/// The revision that waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingApproval {
    /// The revision; empty if none waits.
    #[serde(default)]
    pub revision: String,
}

/// A summary of the promotion in progress. The Promotion object has all details.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSummary {
    /// The Promotion's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The promoted revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The phase of the promotion.
    #[serde(default)]
    pub phase: Phase,
    /// What the promotion waits for, or what failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The change request of the promotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestSummary>,
}

/// A summary of a change request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullRequestSummary {
    /// The address of the change request, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// `open`, `merged`, `closed`, `withdrawn` or `left`, as in the Promotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub state: Option<RecordedRequestState>,
}
