//! The decision for one environment, or for one target of it that is promoted into by itself: what
//! becomes of the promotions into it, and whether another one is due.

use std::collections::BTreeSet;

use super::guard::{held, refusal, unseen_source};
use super::{Action, Decision, Facts, Intent, Move, Note, gates, triggered};
use crate::evidence::{Candidate, Shortfall};
use crate::model::{CALLBACK_FAILED, Environment, Phase, Policy, Promotion, Said, promotion_name};
use crate::revision::Revision;
use crate::world::{Health, Member, Target};

pub(super) fn decide(facts: Facts<'_>, environment: &Environment, decision: &mut Decision) {
    let mut promotions: Vec<&Promotion> = facts.promotions.iter().filter(|p| environment.is_of(p)).collect();
    promotions.sort_by_key(|p| p.line());
    let proven = environment.policy.as_ref().filter(|_| !environment.after.is_empty());
    let proven = proven.and_then(|p| facts.evidence.candidate(facts.pipeline, environment, p.min_ready));
    let proven = proven.map(|candidate| as_rejected(candidate, &promotions));
    let mut settle = |p| settle(facts, environment, (&promotions, proven.as_ref()), p, decision);
    let settled: Vec<bool> = promotions.iter().map(|p| settle(p)).collect();
    let open =
        promotions.iter().zip(&settled).rev().find(|(p, done)| p.phase.is_open() && !**done).map(|(p, _)| *p);
    let Some(policy) = &environment.policy else {
        if let Some(open) = open {
            cancel(facts, open, "the pipeline says no longer how to promote here".into(), decision);
        }
        return;
    };
    // One that has strayed is withdrawn, which looks at it too.
    let followed =
        |p: &&Promotion| p.open_request().is_some() && (facts.pipeline.suspended || !p.has_strayed());
    if let Some(open) = open.filter(followed) {
        decision.actions.push(Action::Follow { promotion: open.name.clone(), may_merge: false });
    }
    if facts.pipeline.suspended {
        return;
    }
    if environment.after.is_empty() {
        let all: Vec<(&Promotion, bool)> = promotions.into_iter().zip(settled).collect();
        return triggered::decide(facts, environment, policy, &all, decision);
    }
    let upcoming = facts.evidence.upcoming(facts.pipeline, environment, policy.min_ready, proven.as_ref());
    if let Some(short) = upcoming {
        note(decision, environment, "WaitingForTargets", waiting_for(facts, &short));
    }
    let Some(candidate) = proven.and_then(|c| fit(facts, environment, c, decision)) else { return };
    promotions.iter().for_each(|p| refuse_retry(facts, environment, p, &candidate, decision));
    let current = promotions.iter().filter(|p| p.revision == candidate.revision && p.run == candidate.run);
    current.for_each(|p| check_delivered(facts, environment, policy, p, decision));
    match open {
        Some(open) if open.revision == candidate.revision => {
            proceed(facts, environment, policy, open, decision)
        }
        // The proof of the newer revision may be lost, for example with the status. The older candidate does
        // not replace it; and a record alone does not deliver what nothing proves.
        Some(open) if open.arrival > candidate.arrival => {
            let message = format!(
                "{} waits: it is not proven in {}, and {} is older; it goes on when enough targets run it healthily, \
                 or a newer revision takes its place",
                open.revision,
                environment.after.join(", "),
                candidate.revision
            );
            note(decision, environment, "NotProven", message);
        }
        _ => replace(facts, environment, policy, open, &promotions, &candidate, decision),
    }
}

/// The candidate in the run that was rejected, if its revision was: it stays rejected when it comes back.
fn as_rejected(candidate: Candidate, promotions: &[&Promotion]) -> Candidate {
    let newest = promotions.iter().rev().find(|p| p.revision.is_run_by(&candidate.revision));
    let run = newest.filter(|p| p.phase == Phase::Rejected).map_or(candidate.run, |p| p.run);
    Candidate { run, ..candidate }
}

/// Ends a promotion that is not wanted any more.
pub(super) fn cancel(facts: Facts<'_>, promotion: &Promotion, message: String, decision: &mut Decision) {
    if !facts.pipeline.suspended {
        decision.record(promotion, Phase::Cancelled, "NotWanted", message);
    }
}

/// Ends what has come to its end: seen healthy, overtaken, or not healthy in time. Says whether it
/// did.
fn settle(
    facts: Facts<'_>,
    environment: &Environment,
    (all, proven): (&[&Promotion], Option<&Candidate>),
    promotion: &Promotion,
    decision: &mut Decision,
) -> bool {
    let late = promotion.phase == Phase::Failed && promotion.delivered.is_some();
    let may_reject = promotion.phase.is_open() || promotion.phase == Phase::Failed;
    let rejected = promotion.rejected.as_ref().filter(|_| may_reject);
    if promotion.phase.has_ended() && !late && rejected.is_none() {
        return false;
    }
    let runs_now = (late || !promotion.phase.has_ended()) && runs(facts, environment, &promotion.revision);
    if runs_now && facts.evidence.has_settled(environment, &promotion.revision) {
        let message = format!("{} runs {}, healthily", environment.name, promotion.revision);
        decision.record(promotion, Phase::Succeeded, "Succeeded", message);
        return true;
    }
    if let Some(why) = rejected {
        // A request for another try that came before the rejection does not undo it.
        let answers = promotion.retry.clone();
        let to = Move { answers, ..Move::of(promotion, Phase::Rejected, "Rejected", why.clone()) };
        decision.actions.push(Action::Move(to));
        return true;
    }
    if let Some(said) = promotion.said.as_ref().filter(|said| !late || matches!(said, Said::Fixed(_)))
        && heed(promotion, said, decision)
    {
        return true;
    }
    answer_retry(promotion, decision);
    if promotion.phase != Phase::Delivered {
        return false;
    }
    // What is wanted again was taken up in place of those that came after it.
    let is_wanted =
        proven.is_some_and(|c| c.run == promotion.run && promotion.revision.is_run_by(&c.revision));
    let overtaken = all.iter().find(|p| p.line() > promotion.line() && !is_wanted && has_come(p));
    if let Some(newer) = overtaken {
        let message = format!("{} came before it was seen healthy", newer.revision);
        decision.record(promotion, Phase::Superseded, "Superseded", message);
        return true;
    }
    if has_given_up(facts, environment, promotion) {
        let message = format!("Flux will not try it again: {}", complaint(facts, environment, promotion));
        decision.record(promotion, Phase::Failed, "Unhealthy", message);
        return true;
    }
    let timeout = environment.policy.as_ref().map(|p| p.timeout);
    let deadline = timeout.zip(promotion.delivered).and_then(|(t, d)| d.checked_add(t).ok());
    match deadline {
        Some(deadline) if deadline <= facts.now => {
            let message = format!("not healthy in time: {}", complaint(facts, environment, promotion));
            decision.record(promotion, Phase::Failed, "Unhealthy", message);
            true
        }
        Some(deadline) => {
            decision.wake_at(deadline);
            false
        }
        None => false,
    }
}

/// Answers a request for another try of what has not failed: left as it is, it would count later, when the promotion
/// has ended for another reason.
fn answer_retry(promotion: &Promotion, decision: &mut Decision) {
    match promotion.phase {
        Phase::Proposed => answer(promotion, "its change request is open", decision),
        Phase::Delivered => answer(promotion, "it was delivered, and waits for its targets", decision),
        _ => {}
    }
}

/// Has a promotion looked after that was delivered to a branch, when its revision does not come: a forced
/// push may have removed its commit.
pub(super) fn check_delivered(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotion: &Promotion,
    decision: &mut Decision,
) {
    let waits = matches!(promotion.phase, Phase::Delivered | Phase::Failed) && promotion.delivered.is_some();
    if waits && policy.writes_to.is_some() && !runs(facts, environment, &promotion.revision) {
        decision.actions.push(Action::CheckDelivered { promotion: promotion.name.clone() });
    }
}

/// Whether Helm has given up on exactly this revision on some target. The promotion succeeds all the same if
/// the targets run it after that.
fn has_given_up(facts: Facts<'_>, environment: &Environment, promotion: &Promotion) -> bool {
    environment.targets.iter().any(|name| {
        let target = facts.world.target(&environment.name, name).filter(|target| target.error.is_none());
        let last = facts.evidence.of(&environment.name, name).last().map(|proof| &proof.revision);
        let mut members = target.iter().flat_map(|target| &target.members);
        members.any(|member| gave_up_on(member, &promotion.revision, last))
    })
}

/// Whether Helm has given up on the part of a revision that belongs to a member. A failure from before the
/// delivery does not count: it is about a state in which something that the revision changes is as it was. So the
/// state must have every facet, but for those that are the same in the last proven revision of the target.
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

/// Whether a promotion came to where it goes.
fn has_come(promotion: &Promotion) -> bool {
    matches!(promotion.phase, Phase::Delivered | Phase::Succeeded)
}

/// Takes those who were called at their word: what they have was delivered, and what they say has failed
/// has failed. What they call done still has to be seen. Says whether the promotion is somewhere else.
fn heed(promotion: &Promotion, said: &Said, decision: &mut Decision) -> bool {
    let (reason, words, theirs) = match said {
        Said::Accepted(theirs) => ("Accepted", "the other side has taken it", theirs),
        Said::Done(theirs) | Said::Fixed(theirs) => ("Done", "the other side says that it is done", theirs),
        Said::Failed(theirs) => (CALLBACK_FAILED, "the other side says that it has failed", theirs),
    };
    let words = if theirs.is_empty() { words.into() } else { format!("{words}: {theirs}") };
    let is_resumed = promotion.phase == Phase::Failed && matches!(said, Said::Fixed(_));
    if promotion.phase.is_open() || is_resumed {
        // The call has arrived, whatever came of its answer.
        let message = format!("{words}; waits for the targets to run it");
        decision.record(promotion, Phase::Delivered, reason, message);
        return true;
    }
    if let (Said::Failed(_), Phase::Delivered) = (said, promotion.phase) {
        decision.record(promotion, Phase::Failed, reason, words);
        return true;
    }
    let message = format!("{words}; waits for the targets to run it");
    if promotion.phase == Phase::Delivered && promotion.message != message {
        decision.record(promotion, Phase::Delivered, reason, message);
    }
    false
}

/// The targets that keep a promotion from success, each with its own words.
fn complaint(facts: Facts<'_>, environment: &Environment, promotion: &Promotion) -> String {
    let mut said = Vec::new();
    for name in &environment.targets {
        let shown = facts.world.target(&environment.name, name);
        let words = match shown {
            Some(target) if !target.complaint().is_empty() => target.complaint(),
            Some(target) => match target.revision(&facts.pipeline.tracks) {
                Some(r) if !promotion.revision.is_run_by(&r) => {
                    format!("it still runs {r}; look whether its source has the new commit")
                }
                _ => continue,
            },
            None => "it was not looked at".into(),
        };
        said.push(format!("{name}: {words}"));
    }
    said.join("; ")
}

/// The part of a candidate that this environment has workloads for.
fn fit(
    facts: Facts<'_>,
    environment: &Environment,
    candidate: Candidate,
    decision: &mut Decision,
) -> Option<Candidate> {
    let workloads = workloads(facts, environment, &candidate.revision, decision)?;
    let revision = candidate.revision.restricted_to(&workloads);
    if revision.is_none() {
        let message = format!(
            "{} waits: no workload here has the kind and name of one in {}; workloads are matched by these",
            candidate.revision,
            environment.after.join(", ")
        );
        note(decision, environment, "NoWorkloads", message);
    }
    Some(Candidate { revision: revision?, ..candidate })
}

/// The workloads of an environment by kind and name, or why there are none that a revision could go to.
pub(super) fn workloads<'a>(
    facts: Facts<'a>,
    environment: &Environment,
    revision: &Revision,
    decision: &mut Decision,
) -> Option<BTreeSet<(&'a str, &'a str)>> {
    let shown: Vec<&'a Target> =
        environment.targets.iter().filter_map(|t| facts.world.target(&environment.name, t)).collect();
    let readable: Vec<&'a Target> = shown.iter().copied().filter(|t| t.error.is_none()).collect();
    if readable.is_empty() {
        let why = shown.first().and_then(|t| t.error.clone()).unwrap_or_default();
        let message = format!("{revision} waits: no target can be read: {why}");
        note(decision, environment, "TargetNotReadable", message);
        return None;
    }
    let workloads: BTreeSet<(&'a str, &'a str)> = readable.iter().flat_map(|t| t.workloads()).collect();
    if workloads.is_empty() {
        let message = format!("{revision} waits: no target has a workload of this pipeline yet");
        note(decision, environment, "NoWorkloads", message);
        return None;
    }
    Some(workloads)
}

/// Declines another try of what has ended and is not wanted here.
fn refuse_retry(
    facts: Facts<'_>,
    environment: &Environment,
    ended: &Promotion,
    candidate: &Candidate,
    decision: &mut Decision,
) {
    let why = if runs(facts, environment, &ended.revision) {
        format!("{} runs {} already", environment.name, ended.revision)
    } else if ended.revision != candidate.revision || ended.run != candidate.run {
        format!("{} is what goes into {} now", candidate.revision, environment.name)
    } else {
        return;
    };
    decline(ended, &why, decision);
}

/// Tells a person who asked for another try of what has ended why there will be none.
pub(super) fn decline(ended: &Promotion, why: &str, decision: &mut Decision) {
    if ended.phase.has_ended() {
        answer(ended, why, decision);
    }
}

/// Answers a request for another try, if there is one, with the reason why there will be none.
fn answer(promotion: &Promotion, why: &str, decision: &mut Decision) {
    let Some(token) = &promotion.retry else { return };
    let message = format!("not tried again: {why}");
    let to =
        Move { answers: Some(token.clone()), ..Move::of(promotion, promotion.phase, "NotRetried", message) };
    decision.actions.push(Action::Move(to));
}

/// Takes the open promotion of the current candidate one step further.
pub(super) fn proceed(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    open: &Promotion,
    decision: &mut Decision,
) {
    if open.phase == Phase::Proposed && open.open_request().is_some() && !open.has_strayed() {
        // A gate that has shut since keeps it open, whoever would merge it.
        let gates = gates::verdicts(facts, environment, policy, open);
        if gates.iter().all(|gate| gate.open) && held(facts, environment, policy, &open.revision).is_none() {
            decision.let_merge(open);
        }
        return;
    }
    if let Some(refused) = refusal(facts, environment, policy, &open.revision) {
        cancel(facts, open, refused.message.clone(), decision);
        decision.notes.insert(environment.name.clone(), refused);
        return;
    }
    if let Some(unseen) = unseen_source(facts, environment, policy, &open.revision) {
        decision.notes.insert(environment.name.clone(), unseen);
        return;
    }
    if let Some(stray) = facts.promotions.iter().find(|p| is_in_the_way(environment, p)) {
        let message = format!(
            "{} waits until the change request of {} is closed, which is open where the pipeline proposes nothing \
             any more; of that one: {}",
            open.revision, stray.revision, stray.message,
        );
        return note(decision, environment, "WaitingForWithdrawal", message);
    }
    let gates = gates::verdicts(facts, environment, policy, open);
    let shut: Vec<&str> = gates.iter().filter(|g| !g.open).map(|g| g.message.as_str()).collect();
    if !shut.is_empty() {
        let message = shut.join("; ");
        note(decision, environment, "WaitingForGate", format!("{} {message}", open.revision));
        if open.gates != gates {
            decision.actions.push(Action::Wait { promotion: open.name.clone(), gates, message });
        }
        return;
    }
    if open.gates.iter().any(|gate| !gate.open) && open.gates != gates {
        decision.actions.push(Action::Pass { promotion: open.name.clone(), gates });
    }
    if let Some(token) = &open.retry {
        let message = "a person asked for another try".into();
        let to = Move { answers: Some(token.clone()), ..Move::of(open, Phase::Pending, "Retried", message) };
        decision.actions.push(Action::Move(to));
        return;
    }
    match open.next_attempt {
        Some(time) if time > facts.now => {
            note(decision, environment, "Retrying", open.message.clone());
            decision.wake_at(time);
        }
        _ => decision.actions.push(Action::Deliver { promotion: open.name.clone() }),
    }
}

/// Whether a promotion has an open change request that must be closed before another one is opened here:
/// one where the pipeline proposes nothing any more, or one for all targets where each is promoted into by
/// itself now, or the other way round.
fn is_in_the_way(environment: &Environment, other: &Promotion) -> bool {
    if other.environment != environment.name {
        return false;
    }
    let regrouped = other.target.is_some() != environment.alone.is_some();
    other.open_request().is_some() && (regrouped || environment.is_of(other) && other.has_strayed())
}

/// Puts the candidate in the place of what is open, if it is wanted here.
fn replace(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    open: Option<&Promotion>,
    promotions: &[&Promotion],
    candidate: &Candidate,
    decision: &mut Decision,
) {
    let next = wanted(facts, environment, policy, promotions, candidate, decision);
    if let Some(open) = open {
        let message = format!("{} took its place", candidate.revision);
        decision.record(open, Phase::Superseded, "Superseded", message);
    }
    decision.actions.extend(next);
}

/// What it takes to have a promotion of the candidate: a new one, an ended one taken up again, or
/// nothing.
fn wanted(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotions: &[&Promotion],
    candidate: &Candidate,
    decision: &mut Decision,
) -> Option<Action> {
    let revision = &candidate.revision;
    if runs(facts, environment, revision) {
        return None;
    }
    // First of all: what is refused and was taken up again would be cancelled again, without end.
    if let Some(held) = held(facts, environment, policy, revision) {
        decision.notes.insert(environment.name.clone(), held);
        return None;
    }
    let earlier = promotions.iter().rev().find(|p| p.revision == *revision && p.run == candidate.run);
    if let Some(earlier) = earlier {
        return take_up(facts, environment, earlier, decision);
    }
    if let Some(message) = arriving(facts, environment, revision) {
        note(decision, environment, "TargetNotSettled", message);
        return None;
    }
    let running = environment.targets.iter().find_map(|t| {
        facts.world.target(&environment.name, t).and_then(|t| t.revision(&facts.pipeline.tracks))
    });
    Some(Action::Start(Intent {
        name: promotion_name(facts.pipeline, environment, revision, candidate.run),
        environment: environment.name.clone(),
        target: environment.alone.clone(),
        revision: revision.clone(),
        run: candidate.run,
        arrival: candidate.arrival,
        sequence: promotions.last().map_or(1, |p| p.sequence + 1),
        replaces: running.map(|r| r.to_string()).unwrap_or_default(),
        proven_by: candidate.proven_by.clone(),
    }))
}

/// An ended promotion goes on when a person asks for it, or when only circumstances had ended it.
pub(super) fn take_up(
    facts: Facts<'_>,
    environment: &Environment,
    earlier: &Promotion,
    decision: &mut Decision,
) -> Option<Action> {
    let retry = format!("sluice retry -n {} {}", facts.pipeline.namespace, earlier.name);
    let again = |reason, message: &str, spends_approval| {
        let (to, answers) = (Phase::Pending, earlier.retry.clone());
        Move { answers, spends_approval, ..Move::of(earlier, to, reason, message.into()) }
    };
    match (earlier.phase, &earlier.retry) {
        (Phase::Superseded | Phase::Cancelled, _) => {
            // What has been proposed or delivered has passed.
            let passed = earlier.request.is_some() || earlier.delivered.is_some();
            // What others have brought since is to go, whatever became of the first try.
            let later = |p: &&Promotion| environment.is_of(p) && p.line() > earlier.line();
            let is_undone =
                facts.promotions.iter().filter(later).any(|p| has_come(p) || p.delivered.is_some());
            let again = again("Resumed", "it is the newest revision again", passed);
            Some(Action::Move(Move { is_undone, ..again }))
        }
        (phase, Some(_)) if phase.has_ended() => {
            Some(Action::Move(again("Retried", "a person asked for another try", true)))
        }
        (Phase::Rejected | Phase::Failed, None) => {
            let message = format!(
                "{} is not promoted again by itself: {}; {retry} tries again",
                earlier.revision, earlier.message
            );
            note(decision, environment, "Ended", message);
            None
        }
        (Phase::Succeeded, None) => {
            let message = format!(
                "{} was promoted before, and something else runs here now; {retry} promotes it again",
                earlier.revision
            );
            note(decision, environment, "Ended", message);
            None
        }
        _ => None,
    }
}

/// Whether all targets run the revision, healthily or not. Of one that cannot be read, the last
/// that it proved counts.
pub(super) fn runs(facts: Facts<'_>, environment: &Environment, revision: &Revision) -> bool {
    environment.targets.iter().all(|name| {
        let shown = facts.world.target(&environment.name, name).filter(|t| t.error.is_none());
        match shown {
            Some(target) => {
                target.revision(&facts.pipeline.tracks).is_some_and(|running| revision.is_run_by(&running))
            }
            None => {
                let last = facts.evidence.of(&environment.name, name).last();
                last.is_some_and(|p| revision.is_run_by(&p.revision))
            }
        }
    })
}

/// Says so when a target is on its way and what it will run is not known yet: it may well be this
/// very revision. One that has failed waits for nothing.
fn arriving(facts: Facts<'_>, environment: &Environment, revision: &Revision) -> Option<String> {
    let unknown = environment.targets.iter().find(|name| {
        facts.world.target(&environment.name, name).is_some_and(|t| {
            matches!(t.health(), Health::Pending | Health::Progressing)
                && t.revision(&facts.pipeline.tracks).is_none()
        })
    })?;
    Some(format!("{revision} waits until it is known what {unknown} runs: it is on its way"))
}

fn waiting_for(facts: Facts<'_>, short: &Shortfall) -> String {
    let missing: Vec<String> = short
        .missing
        .iter()
        .map(|(environment, target)| {
            let shown = facts.world.target(environment, target);
            let words = match shown.map(Target::complaint) {
                Some(words) if !words.is_empty() => words,
                _ => "it does not run it yet".into(),
            };
            format!("{environment}/{target}: {words}")
        })
        .collect();
    format!(
        "{} is healthy on {} of {} targets that are needed: {}",
        short.revision,
        short.has,
        short.needed,
        missing.join("; ")
    )
}

/// Says something about an environment, unless something weightier was said.
fn note(decision: &mut Decision, environment: &Environment, reason: &'static str, message: String) {
    decision.notes.insert(environment.name.clone(), Note { reason, message });
}
