//! The fields of Flux's objects that Sluice reads, in all API versions. Every field may be absent, so that objects of
//! unknown versions of Flux can be read.

mod condition;
pub mod image;
pub mod notification;
mod source;
mod source_ref;
pub mod trigger_facts;

use kube::core::Object;
use serde::{Deserialize, Serialize};
use sluice_core::chart_version::without_build_metadata;

pub use condition::FluxCondition;
pub use source::{
    Artifact, ORIGIN_REVISION, ORIGIN_SOURCE, Source, SourceReference, SourceSpec, SourceStatus,
};
pub use source_ref::SourceRef;

/// `kustomize.toolkit.fluxcd.io`, v1 or older.
pub type Kustomization = Object<KustomizationSpec, FluxStatus>;
/// `helm.toolkit.fluxcd.io`, v2, v2beta2 or v2beta1.
pub type HelmRelease = Object<HelmReleaseSpec, FluxStatus>;

/// Group of Kustomization.
pub const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// Group of HelmRelease.
pub const HELM_GROUP: &str = "helm.toolkit.fluxcd.io";

/// Returns the namespace and name of an object.
pub fn name_of<S: Clone, T: Clone>(object: &Object<S, T>) -> (String, String) {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The fields that Sluice reads of a Kustomization's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KustomizationSpec {
    /// True if Flux does not reconcile the object.
    pub suspend: bool,
    /// The source of the manifests.
    pub source_ref: SourceRef,
    /// The folder in the source.
    pub path: String,
    /// True if Ready means that all objects it made are healthy.
    pub wait: bool,
    /// The objects that are healthy if the condition is Ready.
    pub health_checks: Vec<HealthCheck>,
    /// Present if Flux applies the manifests to another cluster.
    pub kube_config: Option<KubeConfigRef>,
}

/// A reference to an object whose health a Kustomization waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthCheck {
    /// The object's kind.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The object's namespace.
    pub namespace: String,
}

/// A reference to the kubeconfig of another cluster. Only its presence is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeConfigRef {}

/// The fields that Sluice reads of a HelmRelease's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmReleaseSpec {
    /// True if Flux does not reconcile the object.
    pub suspend: bool,
    /// A chart by name and version.
    pub chart: Option<ChartTemplate>,
    /// An OCIRepository, HelmChart or ExternalArtifact that is the chart.
    pub chart_ref: Option<SourceRef>,
    /// Present if Helm installs the chart into another cluster.
    pub kube_config: Option<KubeConfigRef>,
    /// The name of the Helm release; default is `[<targetNamespace>-]<name>`.
    pub release_name: Option<String>,
    /// The namespace of the Helm release; default is that of the HelmRelease.
    pub target_namespace: Option<String>,
    /// How Helm installs.
    pub install: HelmAction,
    /// How Helm upgrades.
    pub upgrade: HelmAction,
    /// How Helm rolls back.
    pub rollback: HelmAction,
    /// The values of the chart in the object itself.
    pub values: Option<serde_json::Value>,
}

/// The settings of one of Helm's actions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmAction {
    /// True if Helm reports success before the objects of the release are ready.
    pub disable_wait: bool,
}

/// The chart template of a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChartTemplate {
    /// Its spec.
    pub spec: ChartSpec,
}

/// The chart of a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartSpec {
    /// The name of the chart, or its path in a git repository.
    pub chart: String,
    /// The version, or a range of versions.
    pub version: String,
    /// The source of the chart.
    pub source_ref: SourceRef,
}

/// The status of a Kustomization or HelmRelease, in every version of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FluxStatus {
    /// The last reconciled generation; -1 before the first.
    pub observed_generation: Option<i64>,
    /// Its conditions.
    pub conditions: Vec<FluxCondition>,
    /// Kustomization, and HelmRelease before v2: the last applied revision.
    pub last_applied_revision: Option<String>,
    /// Kustomization, since Flux 2.5: the revision that the last applied artifact was built from, as its maker says.
    pub last_applied_origin_revision: Option<String>,
    /// The last attempted revision.
    pub last_attempted_revision: Option<String>,
    /// HelmRelease: the digest of the last attempted OCI artifact.
    pub last_attempted_revision_digest: Option<String>,
    /// HelmRelease: the HelmChart that Flux made for it, as `<namespace>/<name>`.
    pub helm_chart: Option<String>,
    /// The objects that it made.
    pub inventory: Option<FluxInventory>,
    /// HelmRelease: the releases, newest first. Kustomization (since Flux 2.7): the applied revisions, which Sluice does not
    /// read.
    pub history: Vec<HelmSnapshot>,
}

impl FluxStatus {
    /// Returns the newest deployed release of a HelmRelease.
    pub fn deployed(&self) -> Option<&HelmSnapshot> {
        self.history.iter().filter(|s| s.status == "deployed").max_by_key(|s| s.version)
    }

    /// Returns the version of the chart that a HelmRelease runs, without build metadata; `None` if it is not known.
    pub fn chart_version(&self) -> Option<&str> {
        let newest = self.deployed().map(|snapshot| snapshot.chart_version.as_str());
        let version =
            newest.filter(|version| !version.is_empty()).or(self.last_applied_revision.as_deref())?;
        Some(without_build_metadata(version)).filter(|version| !version.is_empty())
    }
}

/// The objects that a Kustomization or HelmRelease made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FluxInventory {
    /// One entry for each object.
    pub entries: Vec<InventoryEntry>,
}

/// One object of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InventoryEntry {
    /// `<namespace>_<name>_<group>_<kind>`; names have no underscore in them.
    pub id: String,
}

impl InventoryEntry {
    /// Returns namespace, name, group and kind of the object.
    pub fn object(&self) -> Option<(&str, &str, &str, &str)> {
        let (namespace, rest) = self.id.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        Some((namespace, name, group, kind))
    }
}

/// One release in the history of a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmSnapshot {
    /// The name of the Helm release.
    pub name: String,
    /// The namespace of the Helm release.
    pub namespace: String,
    /// Helm's number for the release.
    pub version: i64,
    /// deployed, superseded, failed and so on.
    pub status: String,
    /// The chart's version, possibly with a digest as build metadata.
    pub chart_version: String,
    /// The chart's appVersion.
    pub app_version: Option<String>,
    /// The digest of the OCI artifact that the chart came from.
    pub oci_digest: Option<String>,
}

/// Labels of a workload with the name and namespace of the Kustomization that made it.
pub const KUSTOMIZE_OWNER: [&str; 2] =
    ["kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace"];
/// Labels of a workload with the name and namespace of the HelmRelease that made it.
pub const HELM_OWNER: [&str; 2] = ["helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace"];
/// Annotations of the objects of a Helm release with its name and namespace. Source: Helm,
/// `pkg/action/validate.go`.
pub const HELM_RELEASE: [&str; 2] = ["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"];
/// The annotation that is `disabled` on objects that Flux must not reconcile.
pub const RECONCILE_ANNOTATION: &str = "kustomize.toolkit.fluxcd.io/reconcile";
