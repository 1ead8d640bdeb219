//! Which promotion takes the place of another: a newer revision supersedes an older one, before and after its delivery.

use super::start::start;
use super::unrecorded_delivery::find_delivery;
use super::wait::record_wait;
use super::{Decision, Lane};
use crate::evidence::Candidate;
use crate::pipeline::Policy;
use crate::promotion::{Phase, Promotion};

/// Supersedes the open promotion by one of the candidate, if the candidate is not older, after a look for its delivery. Without an
/// open promotion, starts one.
pub(super) fn replace(
    lane: Lane<'_>,
    policy: &Policy,
    (open, promotions): (Option<&Promotion>, &[&Promotion]),
    candidate: &Candidate,
    decision: &mut Decision,
) {
    if let Some(open) = open
        && open.arrival > candidate.arrival
    {
        // The proof of the newer revision may be lost, for example with the status. The older candidate does
        // not replace it, and a record alone does not deliver a revision that nothing proves.
        let message = format!(
            "{} waits: it is not proven in {}, and {} is older; it continues when enough targets run it healthily, \
             or a newer revision takes its place",
            open.revision,
            lane.environment.depends_on.join(", "),
            candidate.revision
        );
        return wait_for_proof(lane, policy, open, message, decision);
    }
    if open.is_some_and(|open| find_delivery(lane, open, decision)) {
        return;
    }
    let next = start(lane, policy, promotions, candidate, decision);
    if let Some(open) = open {
        let message = format!("{} replaced it", candidate.revision);
        decision.record(open, Phase::Superseded, "Superseded", message);
    }
    decision.actions.extend(next);
}

/// Keeps the open promotion while nothing at all is proven in the environments before this one.
pub(super) fn wait_for_any_proof(lane: Lane<'_>, policy: &Policy, open: &Promotion, decision: &mut Decision) {
    let message = format!(
        "{} waits: it is not proven in {}, and no other revision is; it continues when enough targets run it healthily",
        open.revision,
        lane.environment.depends_on.join(", ")
    );
    wait_for_proof(lane, policy, open, message, decision);
}

/// Notes and records that an open promotion is not proven any more.
fn wait_for_proof(
    lane: Lane<'_>,
    policy: &Policy,
    open: &Promotion,
    message: String,
    decision: &mut Decision,
) {
    record_wait(lane, policy, open, message.clone(), decision);
    decision.note(lane.environment, "NotProven", message);
}

/// Removes the open promotion that continues from all open ones: the newest one, or an earlier one that has started again
/// because its revision has become the newest since. The later one may still be in the process of being recorded.
pub(super) fn take_current<'a>(
    open: &mut Vec<&'a Promotion>,
    proven: Option<&Candidate>,
) -> Option<&'a Promotion> {
    let newest = open.pop()?;
    let candidate = proven.filter(|candidate| candidate.arrival > newest.arrival);
    let is_wanted = |p: &&Promotion| is_candidate(p, candidate);
    let wanted = open.iter().rposition(is_wanted).filter(|_| !is_wanted(&newest));
    Some(wanted.map_or(newest, |index| std::mem::replace(&mut open[index], newest)))
}

/// Supersedes the open promotions that the current one has replaced. A promotion that was replaced while it was being
/// recorded could not be superseded then.
pub(super) fn supersede_replaced(
    lane: Lane<'_>,
    replaced: &[&Promotion],
    current: Option<&Promotion>,
    decision: &mut Decision,
) {
    let Some(current) = current else { return };
    for promotion in replaced {
        if !find_delivery(lane, promotion, decision) {
            let message = format!("{} replaced it", current.revision);
            decision.record(promotion, Phase::Superseded, "Superseded", message);
        }
    }
}

/// Returns true if a promotion is of the candidate.
pub(super) fn is_candidate(promotion: &Promotion, proven: Option<&Candidate>) -> bool {
    proven.is_some_and(|c| c.run == promotion.run && promotion.revision.is_run_by(&c.revision))
}

/// Supersedes a delivered promotion if a later one was delivered before it was seen healthy.
pub(super) fn supersede_delivered(
    all: &[&Promotion],
    proven: Option<&Candidate>,
    promotion: &Promotion,
    decision: &mut Decision,
) -> bool {
    // A promotion that is wanted again was resumed in place of the later ones.
    let is_wanted = is_candidate(promotion, proven);
    let later = all.iter().find(|p| p.order() > promotion.order() && !is_wanted && p.was_delivered());
    if let Some(newer) = later {
        let message = format!("{} came before it was seen healthy", newer.revision);
        decision.record(promotion, Phase::Superseded, "Superseded", message);
    }
    later.is_some()
}

/// Supersedes the promotions that were requested before the newest one. Nobody looks for their deliveries: calls can come faster
/// than looks.
pub(super) fn supersede_earlier(earlier: &[(&Promotion, bool)], newest: &Promotion, decision: &mut Decision) {
    for (promotion, settled) in earlier {
        if promotion.phase.is_open() && !settled {
            let message = format!("a later call requested {}", newest.revision);
            decision.record(promotion, Phase::Superseded, "Superseded", message);
        }
        let key = newest.trigger.as_deref().unwrap_or_default();
        let why = format!(
            "a later call (key {key}) requested {}; to promote this revision, call /trigger again with another key",
            newest.revision
        );
        if promotion.phase.has_ended() {
            decision.decline_retry(promotion, &why);
        }
    }
}
