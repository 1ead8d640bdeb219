//! Which charts and images run on which clusters, in which versions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::fleet::observed_cluster::ObservedCluster;
use sluice_core::fleet::{ClusterKey, Fact, Kind, ObjectKey};
use sluice_core::image;
use sluice_core::observed::Health;

use super::{cluster_name, object_name};

/// A chart or an image that an object on a cluster runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningVersion {
    /// The chart, or the image without its tag.
    pub name: String,
    /// The version of the chart, or the tag or digest of the image.
    pub version: String,
    /// The cluster, as `namespace/name` of its GitopsCluster; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The object that runs it, as `Kind/name`.
    pub object: String,
    /// The Kustomization or HelmRelease that made the object, as `Kind/name`; empty if Flux did not make it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub made_by: String,
    /// The health of the object.
    pub health: Health,
    /// Whether most objects with the same name in the same namespace on other clusters run another version.
    #[serde(default, skip_serializing_if = "is_false")]
    pub outlier: bool,
}

/// The charts or images of all clusters that the caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The rows, ordered by name, cluster, namespace and object.
    pub items: Vec<RunningVersion>,
    /// Clusters that the caller may see and of which the rows are missing, because they cannot be read now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadCluster>,
    /// Present if there are more rows: the parameter of the next request.
    #[serde(rename = "continue", default, skip_serializing_if = "String::is_empty")]
    pub continue_: String,
}

/// A cluster that cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadCluster {
    /// The cluster, as `namespace/name` of its GitopsCluster; empty for the hub.
    pub cluster: String,
    /// Why it cannot be read, and what to do.
    pub why: String,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

impl RunningVersion {
    /// Returns what rows are ordered by. No two rows of an answer have the same.
    pub fn order(&self) -> [&str; 5] {
        [&self.name, &self.cluster, &self.namespace, &self.object, &self.version]
    }
}

/// Returns the chart that a release on a cluster runs; `None` for other objects. [`mark_outliers`] completes the rows.
pub fn chart(
    key: &ClusterKey,
    cluster: &ObservedCluster,
    (release, fact): (&ObjectKey, &Fact),
) -> Option<RunningVersion> {
    let Fact::Flux(flux) = fact else { return None };
    if release.kind != Kind::HelmRelease || flux.version.is_empty() {
        return None;
    }
    // A chart that is an OCI artifact has the name of its source.
    let source = flux.source.as_ref().map_or(release.name.as_str(), |source| &source.name);
    let chart = if flux.content.is_empty() { source } else { &flux.content };
    let version = (chart.to_string(), flux.version.clone());
    Some(row(version, key, (release, flux.status.health), cluster))
}

/// Returns the images that a workload on a cluster runs, each once. [`mark_outliers`] completes the rows.
pub fn images(
    key: &ClusterKey,
    cluster: &ObservedCluster,
    (workload, fact): (&ObjectKey, &Fact),
) -> Vec<RunningVersion> {
    let Fact::Workload(running) = fact else { return Vec::new() };
    let mut images: Vec<(String, String)> = running.images.iter().map(|i| image::parts(i)).collect();
    images.sort();
    images.dedup();
    let state = (workload, running.status.health);
    images.into_iter().map(|version| row(version, key, state, cluster)).collect()
}

fn row(
    (name, version): (String, String),
    key: &ClusterKey,
    (object, health): (&ObjectKey, Health),
    cluster: &ObservedCluster,
) -> RunningVersion {
    RunningVersion {
        name,
        version,
        cluster: cluster_name(key),
        namespace: object.namespace.clone(),
        object: object_name(object),
        made_by: cluster.owner_of(object).map(|(owner, _)| object_name(owner)).unwrap_or_default(),
        health,
        outlier: false,
    }
}

/// Orders the rows of all clusters by name, cluster, namespace, object and version, and marks those that run another version than most of
/// the same name in the same namespace. Where no version is run by more than half, nothing is marked.
pub fn mark_outliers(rows: &mut [RunningVersion]) {
    let mut counts: BTreeMap<(&str, &str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for row in rows.iter() {
        let place = (row.name.as_str(), row.namespace.as_str(), row.object.as_str());
        *counts.entry(place).or_default().entry(&row.version).or_default() += 1;
    }
    let usual = |row: &RunningVersion| {
        let versions = counts.get(&(row.name.as_str(), row.namespace.as_str(), row.object.as_str()))?;
        let all: usize = versions.values().sum();
        versions.iter().find(|(_, count)| **count * 2 > all).map(|(version, _)| *version)
    };
    let outliers: Vec<bool> =
        rows.iter().map(|row| usual(row).is_some_and(|version| version != row.version)).collect();
    for (row, outlier) in rows.iter_mut().zip(outliers) {
        row.outlier = outlier;
    }
    rows.sort_by(|a, b| a.order().cmp(&b.order()));
}
