//! Gates: the conditions that must be met before a promotion is delivered.

use super::{Facts, Lane};
use crate::pipeline::Policy;
use crate::promotion::{Gate, GateKind, Phase, Promotion};
use crate::revision::Revision;

/// Returns the gates that apply to a promotion, open and closed ones.
pub(super) fn verdicts(lane: Lane<'_>, policy: &Policy, promotion: &Promotion) -> Vec<Gate> {
    let gates = [
        approval(lane, policy, promotion),
        downgrade(lane, policy, promotion),
        unreported(lane, policy, promotion),
    ];
    gates.into_iter().flatten().collect()
}

fn approval(lane: Lane<'_>, policy: &Policy, promotion: &Promotion) -> Option<Gate> {
    let rejected = rejected_otherwise(lane, promotion);
    if !policy.manual && rejected.is_none() {
        return None;
    }
    // A rejection that is not recorded yet came after the approval.
    let open = promotion.approved && rejected.is_none_or(|rejected| rejected.phase == Phase::Rejected);
    let message = if open {
        String::new()
    } else {
        let what = match (rejected, promotion.retries) {
            (Some(rejected), _) => {
                format!("waits for approval, since {} of the same revision was rejected", rejected.name)
            }
            (None, 0) => "waits for approval".into(),
            (None, _) => "waits for a new approval, since earlier approvals do not count any more".into(),
        };
        let namespace = &lane.facts.pipeline.namespace;
        format!("{what}: sluice approve -n {namespace} {}{}", promotion.name, unguarded(lane.facts))
    };
    Some(Gate { open, ..Gate::closed(GateKind::Approval, message) })
}

/// Returns the other promotion of the same revision that was rejected and not promoted since. Neither a caller of
/// `/trigger` nor a revision that comes back may overrule a person who may approve. The same revision may have fewer
/// facets or more: of the workloads of a target that could not be read then, or cannot be read now. A later promotion counts
/// too: an earlier one that was superseded starts again.
pub(super) fn rejected_otherwise<'a>(lane: Lane<'a>, promotion: &Promotion) -> Option<&'a Promotion> {
    let own = &promotion.revision;
    let is_other = |p: &&Promotion| lane.environment.is_of(p) && p.name != promotion.name;
    let is_same = |p: &&Promotion| p.revision.is_run_by(own) || own.is_run_by(&p.revision);
    let same = lane.facts.promotions.iter().filter(is_other).filter(is_same);
    // The delivery of a part overrules the rejection of that part only.
    let decided = same.filter(|p| p.is_rejected() || (p.delivered.is_some() && own.is_run_by(&p.revision)));
    decided.max_by_key(|p| p.order()).filter(|p| p.is_rejected())
}

/// Holds a revision that is older than the running one, or than the last one that was delivered: what the environment
/// shows may lag behind git. A revision that cannot be compared counts as older if the environment has run it before.
fn downgrade(lane: Lane<'_>, policy: &Policy, promotion: &Promotion) -> Option<Gate> {
    if policy.allow_downgrade {
        return None;
    }
    let running = lane.environment.targets.iter().filter_map(|t| lane.ran_last(t));
    let environment = &lane.environment.name;
    let running = running.filter(|r| !promotion.revision.is_run_by(r)).filter(|r| {
        let by_version = promotion.revision.is_older_than(r);
        by_version.unwrap_or_else(|| lane.facts.evidence.has_run(lane.environment, &promotion.revision))
    });
    let running = running.filter_map(|r| r.with_facets_of(&promotion.revision));
    let is_older = |p: &&Promotion| promotion.revision.is_older_than(&p.revision) == Some(true);
    let delivered = last_delivered(lane).into_iter().flatten().find(is_older).map(|p| p.revision.clone());
    let running = newest(running);
    let newer = newest(running.iter().cloned().chain(delivered.clone()));
    let delivered = delivered.filter(|delivered| !running.contains(delivered) && newer.contains(delivered));
    let runs = (!running.is_empty()).then(|| format!("{}, which {environment} runs", named(&running)));
    let was_promoted = delivered.map(|r| format!("{r}, which was promoted into {environment} last"));
    let others: Vec<String> = was_promoted.into_iter().chain(runs).collect();
    if others.is_empty() {
        return None;
    }
    let why = format!("it is older than {}", others.join(", and than "));
    Some(held(
        lane.facts,
        promotion,
        &why,
        Gate { newer, ..Gate::closed(GateKind::Downgrade, String::new()) },
    ))
}

/// How many revisions are compared with each other. Each target of a large environment may run another one.
const MAX_COMPARED: usize = 16;

/// Returns the different revisions, without those that are older than another one.
fn newest(revisions: impl Iterator<Item = Revision>) -> Vec<Revision> {
    let mut found: Vec<Revision> = Vec::new();
    for revision in revisions {
        let compares = found.len() < MAX_COMPARED;
        if found.contains(&revision) || (compares && found.iter().any(|other| allows(other, &revision))) {
            continue;
        }
        if compares {
            found.retain(|other| !allows(&revision, other));
        }
        found.push(revision);
    }
    found
}

/// How many revisions or targets a message names.
const MAX_NAMED: usize = 3;

/// Returns the first of a list for a message, and how many others there are.
fn named(list: &[impl ToString]) -> String {
    let first: Vec<String> = list.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let others = list.len().saturating_sub(MAX_NAMED);
    let others = match others {
        0 => String::new(),
        1 => " and 1 other".into(),
        _ => format!(" and {others} others"),
    };
    format!("{}{others}", first.join(", "))
}

/// Returns true if an approval to go back from the revision `seen` allows to go back from `now`, which is the same or older.
fn allows(seen: &Revision, now: &Revision) -> bool {
    seen == now || (now.is_older_than(seen) == Some(true) && seen.is_older_than(now) == Some(false))
}

/// Returns the last promotion into the environment that was delivered, also if it failed there afterwards: git still has
/// its revision. The revision of a rejected one was taken back. There are two if an earlier promotion was delivered again, or if
/// a clock was wrong.
fn last_delivered<'a>(lane: Lane<'a>) -> [Option<&'a Promotion>; 2] {
    let is_here = |p: &&Promotion| lane.environment.is_of(p);
    let here = lane.facts.promotions.iter().filter(is_here);
    let is_in_git = |p: &&Promotion| match p.phase {
        Phase::Delivered | Phase::Succeeded => true,
        Phase::Rejected => false,
        _ => p.delivered.is_some(),
    };
    let in_git = here.filter(is_in_git);
    [in_git.clone().max_by_key(|p| p.order()), in_git.max_by_key(|p| (p.delivered, p.order()))]
}

/// Holds a revision if it is unknown what a target runs, because it has not reported yet or was never read: that may be something
/// newer. A promotion that a caller of `/trigger` requested is not held. One that was proposed already is held only for targets
/// that cannot be read: they were added or moved since.
fn unreported(lane: Lane<'_>, policy: &Policy, promotion: &Promotion) -> Option<Gate> {
    if policy.allow_downgrade || promotion.trigger.is_some() {
        return None;
    }
    let is_proposed = promotion.open_request().is_some();
    let environment = &lane.environment.name;
    let unreported = lane.environment.targets.iter().filter_map(|t| {
        let silent = lane
            .observed(t)
            .filter(|shown| shown.is_unknown() || (!is_proposed && shown.has_said_nothing()))?;
        lane.ran_last(t).is_none().then(|| (t.clone(), silent.complaint()))
    });
    let (unreported, complaints): (Vec<String>, Vec<String>) = unreported.unzip();
    let places: Vec<String> = unreported.iter().map(|target| format!("{environment}/{target}")).collect();
    let why = format!("it is unknown what {} runs ({})", named(&places), complaints.first()?);
    let gate = Gate { unreported, ..Gate::closed(GateKind::Unreported, String::new()) };
    Some(held(lane.facts, promotion, &why, gate))
}

/// Returns a note for the message if the API server does not check who approves.
fn unguarded(facts: Facts<'_>) -> String {
    facts
        .unguarded
        .map(|why| format!(" (the API server does not check who approves: {why})"))
        .unwrap_or_default()
}

/// Returns a gate that holds a possible downgrade until a person approves it, with what an approval decides about. An approval
/// from before the gate was recorded was given for something else, for example before the environment was moved ahead by hand.
/// So was one to go back from other revisions, or for other targets.
fn held(facts: Facts<'_>, promotion: &Promotion, why: &str, gate: Gate) -> Gate {
    let is_seen = |seen: &Gate| {
        let covers = |now| seen.newer.iter().any(|newer| newer == now || allows(newer, now));
        gate.newer.iter().all(covers) && gate.unreported.iter().all(|target| seen.unreported.contains(target))
    };
    let open =
        promotion.approved && promotion.gates.iter().any(|seen| seen.kind == gate.kind && is_seen(seen));
    let message = if open {
        String::new()
    } else if promotion.approved {
        format!("was approved before this: {why}")
    } else if promotion.phase == Phase::Proposed {
        // An approval opens only gates that were recorded before the delivery.
        format!("is held: {why}")
    } else {
        format!(
            "is held: {why}; to deliver it: sluice approve -n {} {}{}; to allow all such promotions: \
             promotion.allowDowngrade",
            facts.pipeline.namespace,
            promotion.name,
            unguarded(facts)
        )
    };
    Gate { open, message, ..gate }
}
