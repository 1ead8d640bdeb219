//! Looks for the values that promotions set, in a checkout.

use std::collections::BTreeSet;
use std::path::Path;

use kube::ResourceExt;
use sluice_api::Pipeline;
use sluice_api::pipeline::Environment;
use sluice_view::check::values::{EnvironmentValues, Values};

use crate::checkout::yaml_files;
use crate::checkout_preview::{EnvironmentPreview, preview};
use crate::exit::{Exit, Failure, Outcome};

/// Looks for the values of the pipelines in a checkout of a repository, or of the only one that they name.
pub(super) fn read(pipelines: &[Pipeline], checkout: &Path, repository: Option<&str>) -> Outcome<Values> {
    let files = yaml_files(checkout)?;
    let mut named: BTreeSet<&str> = pipelines
        .iter()
        .flat_map(|p| p.spec.environments.iter().filter_map(|e| repository_of(p, e)))
        .collect();
    let repository = match (repository.map(without_suffix), named.len()) {
        (Some(repository), _) if !named.remove(repository) => {
            let hint = format!("the pipelines name {}", listed(&named));
            return Err(Failure::new(Exit::NotFound, format!("no pipeline names {repository}")).hinted(hint));
        }
        (Some(repository), _) => repository,
        (None, 0) => return Ok(Values::default()),
        (None, 1) => named.pop_first().unwrap_or_default(),
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
            if preview.skipped.is_none() && repository_of(pipeline, environment) == Some(repository) {
                environments.push(values(pipeline, preview));
            }
        }
    }
    let other_repositories = named.into_iter().map(String::from).collect();
    Ok(Values { repository: repository.into(), environments, other_repositories })
}

fn listed(repositories: &BTreeSet<&str>) -> String {
    repositories.iter().copied().collect::<Vec<_>>().join(", ")
}

/// Returns the address of the repository in which promotions into an environment set values.
fn repository_of<'a>(pipeline: &'a Pipeline, environment: &'a Environment) -> Option<&'a str> {
    let strategy = pipeline.spec.policy(environment)?.strategy.as_ref()?;
    let of_request = strategy.pull_request.as_ref().map(|s| s.url.as_str());
    of_request.or_else(|| strategy.commit.as_ref().map(|s| s.url.as_str())).map(without_suffix)
}

/// Returns an address without what names the same repository with and without it.
fn without_suffix(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.strip_suffix(".git").unwrap_or(url)
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
