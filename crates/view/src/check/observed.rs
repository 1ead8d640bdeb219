//! What the controller has observed on the clusters of the checked pipelines: can it read them, and which controllers of
//! Flux run there? Only the controller can read them.

use super::clusters::NamedCluster;
use super::flux::without_inventory;
use super::{Finding, Topic};
use crate::fleet::observed_clusters::{ClusterReadability, ObservedClusterRow};
use crate::fleet::versions::RunningVersion;
use sluice_core::observed::Health;

/// A part of the names of the images of Flux's controllers, for the request to the API.
pub const IMAGE_NAME_PART: &str = "-controller";

/// The controllers of Flux, as their images are named
/// ([manifests](https://github.com/fluxcd/flux2/tree/main/manifests/bases)).
const CONTROLLERS: [&str; 6] = [
    "helm-controller",
    "image-automation-controller",
    "image-reflector-controller",
    "kustomize-controller",
    "notification-controller",
    "source-controller",
];

/// What the controller is asked.
const QUESTION: &str = "whether the controller can read the clusters, and which Flux they run";

/// The answer of the controller.
#[derive(Clone, Debug, Default)]
pub enum Observed {
    /// There are no clusters to ask about.
    #[default]
    NoClusters,
    /// The controller could not be asked, or cannot answer this caller.
    Unanswered {
        /// Why there is no answer.
        why: String,
        /// What to do.
        fix: Option<String>,
    },
    /// The controller has answered.
    Answered {
        /// The clusters that the caller may see.
        clusters: Vec<ObservedClusterRow>,
        /// The images with [`IMAGE_NAME_PART`] in their name.
        images: Vec<RunningVersion>,
    },
}

/// Returns the findings about these clusters.
pub fn findings(observed: &Observed, clusters: &[NamedCluster]) -> Vec<Finding> {
    match observed {
        Observed::NoClusters => Vec::new(),
        Observed::Unanswered { why, fix } => {
            let message = format!("not checked: {QUESTION}; {why}");
            let fix = fix.clone().unwrap_or_else(|| "docs/fleet.md#reach-the-controller".into());
            vec![Finding::warning(Topic::Clusters, message).fix(fix)]
        }
        Observed::Answered { clusters: rows, images } => {
            let there = clusters.iter().filter(|cluster| cluster.may_exist());
            there.flat_map(|cluster| of_cluster(cluster, rows, images)).collect()
        }
    }
}

fn of_cluster(
    cluster: &NamedCluster,
    rows: &[ObservedClusterRow],
    images: &[RunningVersion],
) -> Vec<Finding> {
    let topic = Topic::Clusters;
    let name = format!("{}/{}", cluster.namespace, cluster.name);
    let Some(row) = rows.iter().find(|row| row.name == name) else {
        if cluster.pipelines.is_empty() {
            return Vec::new();
        }
        let message = format!(
            "the controller does not show GitopsCluster {name}: it does not observe it, or you may not get it"
        );
        return vec![Finding::warning(topic, message).fix(format!(
            "kubectl auth can-i get gitopsclusters/{} -n {}; see docs/operations.md#choose-what-sluice-observes",
            cluster.name, cluster.namespace
        ))];
    };
    let unread = match row.state {
        ClusterReadability::Up => None,
        ClusterReadability::Partial => {
            let message = format!("the controller cannot read all of {name}: {}", row.message);
            Some(Finding::warning(topic, message).fix("docs/operations.md#choose-what-sluice-observes"))
        }
        ClusterReadability::Connecting => {
            let message = format!("the controller has not read {name} yet");
            return vec![Finding::warning(topic, message).fix("wait a moment, and check again")];
        }
        ClusterReadability::Lost => {
            let message = format!("the controller cannot read {name}: {}", row.message);
            return vec![Finding::error(topic, message).fix("docs/operations.md#add-a-cluster")];
        }
    };
    let mut findings: Vec<Finding> = unread.into_iter().collect();
    findings.extend(flux(cluster, &name, images));
    findings
}

/// Returns the findings about Flux on a cluster.
fn flux(cluster: &NamedCluster, name: &str, images: &[RunningVersion]) -> Vec<Finding> {
    let topic = Topic::Flux;
    let mut controllers: Vec<(&str, &RunningVersion)> = images
        .iter()
        .filter(|image| image.cluster == name)
        .map(|image| (image.name.rsplit('/').next().unwrap_or_default(), image))
        .filter(|(controller, _)| CONTROLLERS.contains(controller))
        .collect();
    controllers.sort_by_key(|(controller, image)| (*controller, &image.version));
    if controllers.is_empty() {
        let message = format!("the controller sees no Deployment of Flux on {name}");
        let fix =
            "if Flux is missing there: flux install; if not: docs/operations.md#choose-what-sluice-observes";
        return vec![match cluster.pipelines.is_empty() {
            true => Finding::ok(topic, format!("{message}, and no checked pipeline has a target there")),
            false => Finding::warning(topic, message).fix(fix),
        }];
    }
    let mut versions: Vec<String> =
        controllers.iter().map(|(controller, image)| format!("{controller} {}", version(image))).collect();
    versions.dedup();
    let mut findings = vec![Finding::ok(topic, format!("{name} runs {}", versions.join(", ")))];
    let place = format!(" on {name}");
    for (controller, image) in controllers {
        let object = image.object.to_lowercase();
        if image.health != Health::Ready {
            let message = format!("{object} in namespace {}{place} is {}", image.namespace, image.health);
            let fix = format!("on that cluster: kubectl describe {object} -n {}", image.namespace);
            findings.push(Finding::warning(topic, message).fix(fix));
        }
        findings.extend(without_inventory(controller, version(image), &place));
    }
    findings
}

/// Returns the version of an image, without `v`.
fn version(image: &RunningVersion) -> &str {
    image.version.strip_prefix('v').unwrap_or(&image.version)
}
