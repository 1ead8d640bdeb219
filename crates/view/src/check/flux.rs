//! Flux on the hub: its version, its Deployments, and whether helm-controller lists the objects of a HelmRelease.
//!
//! The labels are those of Flux's own manifests. `flux check` reads them, too
//! ([check.go](https://github.com/fluxcd/flux2/blob/main/cmd/flux/check.go),
//! [cluster_info.go](https://github.com/fluxcd/flux2/blob/main/cmd/flux/cluster_info.go)).

use super::controller::Deployment;
use super::reading::count;
use super::{Finding, Reading, Topic};

/// The label of all objects of Flux.
pub const LABEL: &str = "app.kubernetes.io/part-of=flux";
/// The definition whose label says the version of Flux.
pub const VERSIONED_CRD: &str = "gitrepositories.source.toolkit.fluxcd.io";
/// The label with the version of Flux.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The first minor version 1.x of helm-controller with an inventory in the status of a HelmRelease.
const INVENTORY_SINCE: u64 = 5;

/// Flux on the hub.
#[derive(Clone, Debug)]
pub struct Flux {
    /// Known if the API server serves one of Flux's kinds of workloads.
    pub served: Reading<()>,
    /// The version in the label of the definition, if it has one.
    pub version: Reading<Option<String>>,
    /// The Deployments of Flux.
    pub deployments: Reading<Vec<Deployment>>,
    /// How many targets are on the hub.
    pub targets_here: usize,
}

/// Returns the findings.
pub fn findings(facts: &Flux) -> Vec<Finding> {
    let topic = Topic::Flux;
    if matches!(facts.served, Reading::Absent) {
        return vec![match facts.targets_here {
            0 => Finding::ok(
                topic,
                "Flux is not installed on this cluster, and no checked pipeline has a target here",
            ),
            n => Finding::error(
                topic,
                format!("{} on this cluster need Flux, and it is not installed", count(n, "target")),
            )
            .fix("flux install; see https://fluxcd.io/flux/installation/"),
        }];
    }
    let mut findings: Vec<Finding> = facts.served.unread(topic, "Flux").into_iter().collect();
    match &facts.version {
        Reading::Known(Some(version)) => {
            findings.push(Finding::ok(topic, format!("Flux {version} is installed on this cluster")));
        }
        Reading::Known(None) | Reading::Absent => {
            findings.push(Finding::ok(
                topic,
                "Flux is installed on this cluster; its definitions do not say the version",
            ));
        }
        unread => findings.extend(unread.unread(topic, "the version of Flux")),
    }
    let deployments = facts.deployments.known().map(Vec::as_slice).unwrap_or_default();
    findings.extend(deployments.iter().flat_map(deployment));
    findings.extend(facts.deployments.unread(topic, "the Deployments of Flux"));
    findings
}

fn deployment(deployment: &Deployment) -> Vec<Finding> {
    let topic = Topic::Flux;
    let Deployment { namespace, name, wanted, ready, .. } = deployment;
    let version = deployment.version().map(|version| format!(" {version}")).unwrap_or_default();
    let what = format!("{name}{version} in namespace {namespace}: {ready} of {wanted} replicas are ready");
    let mut findings = vec![match ready < wanted {
        true => {
            Finding::warning(topic, what).fix(format!("kubectl describe deployment {name} -n {namespace}"))
        }
        false => Finding::ok(topic, what),
    }];
    findings.extend(deployment.version().and_then(|version| without_inventory(name, version, "")));
    findings
}

/// Returns the finding that a controller of Flux does not list the objects of a HelmRelease. `place` says on which cluster
/// it runs, as ` on fleet/eu`; it is empty for the hub.
pub(super) fn without_inventory(controller: &str, version: &str, place: &str) -> Option<Finding> {
    let message = format!(
        "helm-controller before 1.5{place} does not list the objects of a HelmRelease: Sluice recognizes them by Helm's \
         annotations"
    );
    (controller == "helm-controller" && is_before_inventory(version)).then(|| {
        Finding::warning(Topic::Flux, message)
            .fix("upgrade Flux; see docs/troubleshooting.md#which-workloads-count-for-a-target")
    })
}

fn is_before_inventory(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(0)), _) => true,
        (Some(Ok(1)), Some(Ok(minor))) => minor < INVENTORY_SINCE,
        _ => false,
    }
}
