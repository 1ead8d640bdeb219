//! Which targets of a pipeline read the branch that promotions write to.

use super::facts::Facts;
use crate::observed::Member;
use crate::repository::Repository;
use crate::revision::Facet;
use crate::tracks::DefaultFacet;

/// Which targets of a pipeline read the branch that promotions into an environment write to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readers {
    /// Whether a target reads it.
    pub is_read: bool,
    /// The first target, by environment and name, that may read it, as far as is known.
    pub may_read: Option<(String, String)>,
}

impl Readers {
    /// Looks at all targets and their members. There may be a hundred thousand.
    pub(super) fn of(facts: Facts<'_>, written: &Repository) -> Readers {
        let all = || facts.pipeline.environments.iter().flat_map(|e| e.targets.iter().map(move |t| (e, t)));
        let is_read = all().any(|(e, t)| {
            let members = facts.observed.target(&e.name, t).map_or(&[][..], |t| &t.members);
            members.iter().any(|m| m.source.as_ref().is_some_and(|s| s.is_same(written)))
        });
        let mut unseen = all().filter(|(e, t)| may_read(facts, &e.name, t, written));
        Readers { is_read, may_read: unseen.next().map(|(e, t)| (e.name.clone(), t.clone())) }
    }
}

/// Returns true if a target may read a branch, as far as is known. For a target that cannot be read, the last revision
/// that it has proven counts.
fn may_read(facts: Facts<'_>, environment: &str, target: &str, written: &Repository) -> bool {
    let shown = facts.observed.target(environment, target).filter(|t| t.error.is_none());
    let follows = |revision: &str| branch(revision) == Some(&written.branch);
    let unseen = |m: &Member| m.source.is_none() && m.default_facet == DefaultFacet::Images;
    let has_followed = || {
        facts.evidence.of(environment, target).last().is_some_and(|proof| {
            proof.revision.facets().any(|(key, value)| key.facet == Facet::Source && follows(value))
        })
    };
    match shown {
        Some(target) => {
            let mut unseen = target.members.iter().filter(|m| unseen(m));
            // A member without facets has workloads that are not observed yet.
            unseen
                .any(|m| m.facets.get(&Facet::Source).map_or_else(has_followed, |revision| follows(revision)))
        }
        None => has_followed(),
    }
}

/// Returns the branch in a git revision as Flux prints it: `main@sha1:…`, `refs/heads/main@sha1:…`, and `main/…` before
/// version 0.40. `None` for a revision without a name, such as `sha1:…`.
fn branch(revision: &str) -> Option<&str> {
    let is_hash = |text: &str| text.len() >= 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let name = match revision.rsplit_once('@') {
        Some((name, _)) => name,
        None => revision.rsplit_once('/').filter(|(_, hash)| is_hash(hash))?.0,
    };
    Some(name.strip_prefix("refs/heads/").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_is_read_from_every_form_of_a_git_revision() {
        let hash = "a".repeat(40);
        for (revision, expected) in [
            ("main@sha1:aa", Some("main")),
            ("refs/heads/team/main@sha1:aa", Some("team/main")),
            ("a@b@sha1:aa", Some("a@b")),
            (&format!("team/main/{hash}"), Some("team/main")),
            ("sha1:aa", None),
            ("team/main", None),
        ] {
            assert_eq!(branch(revision), expected, "{revision}");
        }
    }
}
