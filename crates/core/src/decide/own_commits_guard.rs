//! The guard against endless promotions: a pipeline that tracks the revision of a source and commits to the same source
//! would promote its own commits.

use super::{Facts, Lane, Note};
use crate::observed::Member;
use crate::pipeline::Policy;
use crate::repository::Repository;
use crate::revision::{Facet, Revision};
use crate::tracks::DefaultFacet;

/// Returns why nothing may be written for this environment now: by [`refusal`] or [`unseen_source`].
pub(super) fn held(lane: Lane<'_>, policy: &Policy, revision: &Revision) -> Option<Note> {
    refusal(lane, policy, revision).or_else(|| unseen_source(lane, policy, revision))
}

/// Returns why nothing can be promoted into this environment until its owner changes the pipeline.
pub(super) fn refusal(lane: Lane<'_>, policy: &Policy, revision: &Revision) -> Option<Note> {
    if let Some(refused) = &policy.refused {
        return Some(Note { reason: "StrategyRefused", message: refused.clone() });
    }
    let written = policy.writes_to.as_ref()?;
    let reads_it =
        lane.facts.pipeline.environments.iter().flat_map(|e| e.targets.iter().map(move |t| (e, t))).any(
            |(e, t)| {
                let members = lane.facts.observed.target(&e.name, t).map_or(&[][..], |t| &t.members);
                members.iter().any(|m| m.source.as_ref().is_some_and(|s| s.is_same(written)))
            },
        );
    (is_by_source(revision) && reads_it).then(|| Note {
        reason: "PromotesItsOwnCommits",
        message: format!(
            "{} tracks the revision of the source, and {} is promoted into by commits to {} (branch {}), \
             which the targets read: it would promote its own commits for ever. Set spec.tracks to what \
             should be promoted, for example [images], or promote into another branch",
            lane.facts.pipeline.name, lane.environment.name, written.url, written.branch
        ),
    })
}

/// Returns why it is unknown whether the targets read the branch that the promotion writes to: a source that cannot be
/// read follows a branch of the same name. Nothing is written until the source can be read.
pub(super) fn unseen_source(lane: Lane<'_>, policy: &Policy, revision: &Revision) -> Option<Note> {
    let written = policy.writes_to.as_ref().filter(|_| is_by_source(revision))?;
    let all = lane.facts.pipeline.environments.iter().flat_map(|e| e.targets.iter().map(move |t| (e, t)));
    let mut places = all.filter(|(e, t)| may_read(lane.facts, &e.name, t, written));
    let (unseen, target) = places.next()?;
    let unseen = &unseen.name;
    Some(Note {
        reason: "SourceNotReadable",
        message: format!(
            "{revision} waits: {unseen}/{target} follows a branch {branch} of a repository that cannot be seen, and \
             {into} is promoted into by commits to branch {branch} of {url}: these may be the same. Let Sluice \
             read the GitRepository of {unseen}/{target}, promote into a branch of another name, or set spec.tracks \
             to what moves on, for example [images]",
            branch = written.branch,
            into = lane.environment.name,
            url = written.url,
        ),
    })
}

fn is_by_source(revision: &Revision) -> bool {
    revision.facets().any(|(key, _)| key.facet == Facet::Source)
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
