//! The facts of a GitRepository.

use sluice_api::flux::Source;
use sluice_core::repository::Repository;

use super::Fact;

/// Returns the facts of a GitRepository. If it names a tag, a range or a commit, Flux ignores the branch, and the
/// branch here is empty.
pub fn facts(object: &Source) -> Fact {
    let reference = object.spec.reference.clone().unwrap_or_default();
    let pinned = reference.tag.or(reference.semver).or(reference.commit).is_some();
    let branch = match (reference.name, reference.branch) {
        (Some(name), _) => name.strip_prefix("refs/heads/").unwrap_or_default().to_string(),
        _ if pinned => String::new(),
        (None, branch) => branch.unwrap_or_else(|| "master".into()),
    };
    Fact::Source(Repository { url: object.spec.url.clone(), branch })
}
