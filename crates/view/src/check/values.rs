//! The values that promotions set: does the repository have them?

use super::reading::count;
use super::{Finding, Topic};

/// The values of a checkout.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// The address of the repository, as strategies name it.
    pub repository: String,
    /// What was found for each environment whose strategy names the repository.
    pub environments: Vec<EnvironmentValues>,
    /// The addresses of other repositories that strategies name.
    pub other_repositories: Vec<String>,
}

/// The values of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentValues {
    /// The pipeline, as `namespace/name`.
    pub pipeline: String,
    /// The name of the environment.
    pub environment: String,
    /// The number of values, or why they cannot be set.
    pub found: Result<usize, String>,
}

/// Returns the findings.
pub fn findings(facts: &Values) -> Vec<Finding> {
    let topic = Topic::Values;
    let mut findings = Vec::new();
    for EnvironmentValues { pipeline, environment, found } in &facts.environments {
        if let Err(why) = found {
            let message = format!("{environment} of pipeline {pipeline}: {why}");
            findings.push(Finding::error(topic, message).fix("docs/setting-values.md"));
        }
    }
    let found: Vec<usize> = facts.environments.iter().filter_map(|one| one.found.clone().ok()).collect();
    if facts.environments.is_empty() {
        findings.push(Finding::ok(topic, "no checked pipeline sets values in a repository"));
    } else if !found.is_empty() {
        let (values, environments) = (count(found.iter().sum(), "value"), count(found.len(), "environment"));
        let message = format!("{} has {values} to set, for {environments}", facts.repository);
        findings.push(Finding::ok(topic, message));
    }
    findings.extend(facts.other_repositories.iter().map(|other| {
        Finding::warning(topic, format!("not checked: the values in {other}"))
            .fix(format!("sluice check --repository {other} --checkout DIR, with a checkout of it"))
    }));
    findings
}
