//! Whether Helm has given up on a revision: it will not try that again.

use super::Lane;
use crate::observed::Member;
use crate::promotion::Promotion;
use crate::revision::Revision;

/// Returns true if Helm has given up on exactly this revision on some target. The promotion still succeeds if the
/// targets run the revision later.
pub(super) fn has_given_up(lane: Lane<'_>, promotion: &Promotion) -> bool {
    lane.environment.targets.iter().any(|name| {
        let target = lane.observed(name).filter(|target| target.error.is_none());
        let last = lane.proofs(name).last().map(|proof| &proof.revision);
        let mut members = target.iter().flat_map(|target| &target.members);
        members.any(|member| gave_up_on(member, &promotion.revision, last))
    })
}

/// Returns true if Helm has given up on the part of a revision that belongs to a member. A failure from before the
/// delivery does not count: it is about a state in which something that the revision changes is as it was. So the
/// failed state must have every facet, except those that are the same in the last proven revision of the target.
fn gave_up_on(member: &Member, revision: &Revision, last: Option<&Revision>) -> bool {
    let own = revision.facets().filter(|(key, _)| (&key.kind, &key.name) == (&member.kind, &member.name));
    let mut is_certain = false;
    for (key, value) in own {
        let tried = member.gave_up.get(&key.facet).is_some_and(|tried| tried == value);
        if !tried && last.and_then(|last| last.value(key)) != Some(value) {
            return false;
        }
        is_certain |= tried;
    }
    is_certain
}
