//! What is wrong with an installation, and how to fix it. `sluice check` and the API collect the facts; the functions here
//! turn them into findings. A fact that the caller may not read is a finding, not a failure.

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

/// The most requests of the API server for an [`Installation`] whose number does not depend on that of objects.
pub const MAX_INSTALLATION_REQUESTS: usize = 40;

/// What the API server says about an installation.
#[derive(Clone, Debug)]
pub struct Installation<'a> {
    /// The definitions and the admission policy.
    pub definitions: definitions::Definitions,
    /// The controller.
    pub controller: controller::Controller,
    /// The caller's rights.
    pub rights: rights::Rights,
    /// Flux on the hub.
    pub flux: flux::Flux,
    /// The objects of Flux on the hub that have to do with hooks.
    pub hooks: hooks::Hooks<'a>,
    /// The clocks.
    pub clocks: clocks::Clocks,
}

/// All facts that a check needs.
#[derive(Clone, Debug)]
pub struct CheckFacts<'a> {
    /// What the API server says about the installation; `None` if it was not asked.
    pub installation: Option<Installation<'a>>,
    /// The clusters that pipelines name, and those of the checked namespaces.
    pub clusters: Vec<clusters::NamedCluster>,
    /// What the controller says about the clusters.
    pub observed: observed::Observed,
    /// The Secrets that pipelines name; `None` if they are not read.
    pub secrets: Option<pipeline_secrets::Secrets>,
    /// The checked pipelines.
    pub pipelines: pipelines::Pipelines<'a>,
    /// The values in a checkout; `None` if the caller named none.
    pub values: Option<values::Values>,
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
    let mut findings = Vec::new();
    let mut is_installed = true;
    if let Some(Installation { definitions, controller, rights, flux, hooks, clocks }) = &facts.installation {
        is_installed = !matches!(definitions.served, Reading::Absent);
        findings.extend(definitions::findings(definitions));
        findings.extend(controller::findings(controller));
        findings.extend(clocks::findings(clocks));
        if is_installed {
            findings.extend(rights::findings(rights));
            findings.extend(flux::findings(flux));
            findings.extend(hooks::findings(hooks));
        }
    }
    // Without the kinds, findings that would only repeat that are left out.
    if is_installed {
        findings.extend(clusters::findings(&facts.clusters));
        findings.extend(observed::findings(&facts.observed, &facts.clusters));
        findings.extend(facts.secrets.iter().flat_map(pipeline_secrets::findings));
        findings.extend(pipelines::findings(&facts.pipelines));
        findings.extend(facts.values.iter().flat_map(values::findings));
    }
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
