//! Looks for the values that promotions set, in a checkout.

use std::collections::BTreeMap;
use std::path::Path;

use kube::ResourceExt;
use sluice_api::Pipeline;
use sluice_api::pipeline::Environment;
use sluice_core::repository::{BranchId, Repository};
use sluice_view::check::values::{EnvironmentValues, Values};

use crate::checkout::yaml_files;
use crate::checkout_preview::{EnvironmentPreview, preview};
use crate::exit::{Exit, Failure, Outcome};

/// Looks for the values of the pipelines in a checkout of a repository, or of the only one that they name.
pub(super) fn read(pipelines: &[Pipeline], checkout: &Path, repository: Option<&str>) -> Outcome<Values> {
    let files = yaml_files(checkout)?;
    let mut named = BTreeMap::new();
    for url in pipelines.iter().flat_map(|p| p.spec.environments.iter().filter_map(|e| repository_of(p, e))) {
        named.entry(id(&url)).or_insert(url);
    }
    let (wanted, repository) = match (repository, named.len()) {
        (Some(repository), _) => match named.remove_entry(&id(repository)) {
            Some((wanted, _)) => (wanted, repository.to_owned()),
            None => {
                let hint = format!("the pipelines name {}", listed(&named));
                let why = format!("no pipeline names {repository}");
                return Err(Failure::new(Exit::NotFound, why).hinted(hint));
            }
        },
        (None, 0 | 1) => match named.pop_first() {
            Some(only) => only,
            None => return Ok(Values::default()),
        },
        (None, n) => {
            let hint = format!("add --repository and one of {}", listed(&named));
            let what = format!("the pipelines name {n} repositories: which one is {}?", checkout.display());
            return Err(Failure::new(Exit::Usage, what).hinted(hint));
        }
    };
    let mut environments = Vec::new();
    for pipeline in pipelines {
        let previews = preview(pipeline, None, &files, &[]);
        for (environment, preview) in pipeline.spec.environments.iter().zip(previews) {
            let is_of_checkout = repository_of(pipeline, environment).is_some_and(|url| id(&url) == wanted);
            if preview.skipped.is_none() && is_of_checkout {
                environments.push(values(pipeline, preview));
            }
        }
    }
    Ok(Values { repository, environments, other_repositories: named.into_values().collect() })
}

fn listed(repositories: &BTreeMap<BranchId, String>) -> String {
    repositories.values().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns the address of the repository in which promotions into an environment set values.
fn repository_of(pipeline: &Pipeline, environment: &Environment) -> Option<String> {
    Some(pipeline.spec.policy(environment)?.strategy.as_ref()?.repository()?.url)
}

/// Returns what is equal for all addresses of one repository. A checkout may have any of its branches.
fn id(url: &str) -> BranchId {
    Repository { url: url.into(), branch: String::new() }.id()
}

fn values(pipeline: &Pipeline, preview: EnvironmentPreview) -> EnvironmentValues {
    let found = match preview.error {
        None => Ok(preview.values.len()),
        Some(error) => Err(format!("{}: {}", error.reason, error.message)),
    };
    EnvironmentValues {
        pipeline: format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any()),
        environment: preview.environment,
        found,
    }
}
