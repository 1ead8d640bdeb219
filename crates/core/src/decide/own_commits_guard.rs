//! The guard against endless promotions: a pipeline that tracks the revision of a source and commits to the same source
//! would promote its own commits.

use super::{Lane, Note};
use crate::pipeline::Policy;
use crate::revision::{Facet, Revision};

/// Returns why nothing may be written for this environment now: by [`refusal`] or [`unseen_source`].
pub(super) fn held(lane: Lane<'_>, policy: &Policy, revision: &Revision) -> Option<Note> {
    refusal(lane, policy, revision).or_else(|| unseen_source(lane, policy, revision))
}

/// Returns why nothing can be promoted into this environment until its owner changes the pipeline.
pub(super) fn refusal(lane: Lane<'_>, policy: &Policy, revision: &Revision) -> Option<Note> {
    if let Some(refused) = &policy.refused {
        return Some(Note { reason: "StrategyRefused", message: refused.clone() });
    }
    let written = policy.writes_to.as_ref().filter(|_| is_by_source(revision))?;
    lane.shared.readers(lane.facts, written).is_read.then(|| Note {
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
    let (unseen, target) = lane.shared.readers(lane.facts, written).may_read.as_ref()?;
    Some(Note {
        reason: "SourceNotReadable",
        message: format!(
            "{revision} waits: Sluice cannot read the GitRepository of {unseen}/{target}, which follows branch {branch}. \
             It may be the branch {branch} of {url} that promotions into {into} commit to. Let Sluice read this \
             GitRepository, promote into a branch of another name, or set spec.tracks to what should be promoted, for \
             example [images]",
            branch = written.branch,
            into = lane.environment.name,
            url = written.url,
        ),
    })
}

fn is_by_source(revision: &Revision) -> bool {
    revision.facets().any(|(key, _)| key.facet == Facet::Source)
}
