//! What is wrong with an installation, and how to fix it. `sluice check` collects the facts; the functions here turn them
//! into findings. A fact that the caller may not read is a finding, not a failure.

pub mod clocks;
pub mod clusters;
pub mod controller;
pub mod definitions;
pub mod flux;
pub mod hooks;
pub mod observed;
pub mod pipeline_secrets;
pub mod pipelines;
mod reading;
pub mod rights;
pub mod values;

pub use reading::{Finding, Reading, Severity, Topic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All facts that a check needs.
#[derive(Clone, Debug)]
pub struct CheckFacts<'a> {
    /// The definitions and the admission policy.
    pub definitions: definitions::Definitions,
    /// The controller.
    pub controller: controller::Controller,
    /// The caller's rights.
    pub rights: rights::Rights,
    /// The clusters that pipelines name, and those of the checked namespaces.
    pub clusters: Vec<clusters::NamedCluster>,
    /// What the controller says about the clusters.
    pub observed: observed::Observed,
    /// Flux on the hub.
    pub flux: flux::Flux,
    /// The Secrets that pipelines name.
    pub secrets: pipeline_secrets::Secrets,
    /// The objects of Flux on the hub that have to do with hooks.
    pub hooks: hooks::Hooks<'a>,
    /// The checked pipelines.
    pub pipelines: pipelines::Pipelines<'a>,
    /// The values in a checkout; `None` if the caller named none.
    pub values: Option<values::Values>,
    /// The clocks.
    pub clocks: clocks::Clocks,
}

/// The findings of a check, in the order of the topics, and in each topic the worst first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckReport {
    /// The number of errors.
    pub errors: usize,
    /// The number of warnings.
    pub warnings: usize,
    /// The findings.
    pub findings: Vec<Finding>,
}

/// Returns the findings for these facts.
pub fn check(facts: &CheckFacts<'_>) -> CheckReport {
    let mut findings = definitions::findings(&facts.definitions);
    let is_installed = !matches!(facts.definitions.served, Reading::Absent);
    findings.extend(controller::findings(&facts.controller));
    if is_installed {
        findings.extend(rights::findings(&facts.rights));
        findings.extend(clusters::findings(&facts.clusters));
        findings.extend(flux::findings(&facts.flux));
        findings.extend(observed::findings(&facts.observed, &facts.clusters));
        findings.extend(pipeline_secrets::findings(&facts.secrets));
        findings.extend(hooks::findings(&facts.hooks));
        findings.extend(pipelines::findings(&facts.pipelines));
        findings.extend(facts.values.iter().flat_map(values::findings));
    }
    findings.extend(clocks::findings(&facts.clocks));
    report(findings)
}

/// Returns the findings that follow from the pipelines and from what the controller has observed, without what needs a
/// kubeconfig.
pub fn check_observed(pipelines: &pipelines::Pipelines<'_>, observed: &observed::Observed) -> CheckReport {
    let of_pipelines = pipelines.found.known().map_or(&[][..], |(pipelines, _)| *pipelines);
    let clusters: Vec<_> = clusters::named(of_pipelines)
        .into_iter()
        .map(|(name, pipelines)| clusters::NamedCluster::observed_only(name, pipelines))
        .collect();
    let mut findings = observed::findings(observed, &clusters);
    findings.extend(pipelines::findings(pipelines));
    report(findings)
}

/// Sorts the findings, and leaves out repeated ones.
fn report(findings: Vec<Finding>) -> CheckReport {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        if !kept.contains(&finding) {
            kept.push(finding);
        }
    }
    kept.sort_by_key(|finding| (finding.topic, std::cmp::Reverse(finding.severity)));
    let count = |severity| kept.iter().filter(|finding| finding.severity == severity).count();
    CheckReport { errors: count(Severity::Error), warnings: count(Severity::Warning), findings: kept }
}
