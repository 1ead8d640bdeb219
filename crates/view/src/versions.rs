//! Which versions of charts and images run in which environment. In one environment all targets should run the same: a
//! target that runs another version than most is an outlier.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_core::fleet::Kind;
use sluice_core::image;
use sluice_core::observed::Health;

use crate::running::RunningTarget;

/// A HelmRelease or an image in one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionRow {
    /// The HelmRelease, or the image without its tag.
    pub name: String,
    /// The pipeline, as `namespace/name`.
    pub pipeline: String,
    /// The environment.
    pub environment: String,
    /// The version that most targets run; of equally many, the one of the first target.
    pub version: String,
    /// How many targets run it.
    pub targets: usize,
    /// The targets that run another version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<Outlier>,
}

/// A target that runs another version than most targets of its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outlier {
    /// The target.
    pub target: String,
    /// Its cluster; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The version that it runs.
    pub version: String,
}

/// A target of which rows may be missing, because the controller cannot read it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadTarget {
    /// The pipeline, as `namespace/name`.
    pub pipeline: String,
    /// The target, as `environment/target`.
    pub target: String,
    /// Why it cannot be read.
    pub why: String,
}

/// Returns the targets that the controller cannot read now, of one environment or of all.
pub fn unread(pipelines: &[Pipeline], environment: Option<&str>) -> Vec<UnreadTarget> {
    let targets = pipelines.iter().flat_map(RunningTarget::all);
    let wanted = targets.filter(|target| environment.is_none_or(|wanted| target.environment == wanted));
    let unread = wanted.filter_map(|target| {
        let status = target.status?;
        let why = Some(&status.error).filter(|why| status.health == Health::Unknown && !why.is_empty())?;
        let name = format!("{}/{}", target.environment, target.name);
        Some(UnreadTarget { pipeline: target.pipeline, target: name, why: why.clone() })
    });
    unread.collect()
}

/// Returns the chart versions of all HelmReleases, ordered by name and pipeline, the environments in their order.
pub fn charts(pipelines: &[Pipeline]) -> Vec<VersionRow> {
    rows(pipelines, |target| {
        let releases =
            target.workloads().iter().filter(|w| w.kind == Kind::HelmRelease.name() && !w.version.is_empty());
        releases.map(|release| (release.name.clone(), release.version.clone())).collect()
    })
}

/// Returns the tags of all images, ordered by image and pipeline, the environments in their order.
pub fn images(pipelines: &[Pipeline]) -> Vec<VersionRow> {
    rows(pipelines, |target| {
        target.workloads().iter().flat_map(|w| &w.images).map(|i| image::parts(i)).collect()
    })
}

fn rows(
    pipelines: &[Pipeline],
    versions: impl Fn(&RunningTarget<'_>) -> BTreeSet<(String, String)>,
) -> Vec<VersionRow> {
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let targets = RunningTarget::all(pipeline);
        for environment in &pipeline.spec.environments {
            let mut found: BTreeMap<String, Vec<Outlier>> = BTreeMap::new();
            for target in targets.iter().filter(|target| target.environment == environment.name) {
                for (name, version) in versions(target) {
                    let (target, cluster) = (target.name.clone(), target.cluster.clone());
                    found.entry(name).or_default().push(Outlier { target, cluster, version });
                }
            }
            let pipeline = targets.first().map(|target| target.pipeline.clone()).unwrap_or_default();
            rows.extend(
                found.into_iter().map(|(name, all)| row(name, pipeline.clone(), &environment.name, all)),
            );
        }
    }
    // Stable: the environments stay in their order.
    rows.sort_by(|a, b| (&a.name, &a.pipeline).cmp(&(&b.name, &b.pipeline)));
    rows
}

fn row(name: String, pipeline: String, environment: &str, all: Vec<Outlier>) -> VersionRow {
    let count = |version: &str| all.iter().filter(|one| one.version == version).count();
    // The first of equally many: max_by_key returns the last.
    let version = all.iter().rev().max_by_key(|one| count(&one.version)).map(|one| one.version.clone());
    let version = version.unwrap_or_default();
    let targets = count(&version);
    let outliers = all.into_iter().filter(|one| one.version != version).collect();
    VersionRow { name, pipeline, environment: environment.into(), version, targets, outliers }
}
