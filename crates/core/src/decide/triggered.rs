//! An environment that nothing comes before: what goes in is asked for from outside, and what was asked
//! for last counts. All else, gates and delivery among it, is as everywhere.

use super::environment::{cancel, check_delivered, decline, proceed, runs, take_up, workloads};
use super::guard::refusal;
use super::{Decision, Facts};
use crate::model::{Environment, Phase, Policy, Promotion};

/// What becomes of the promotions that were asked for, the earliest first. Those that are `settled` have
/// come to their end just now.
pub(super) fn decide(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotions: &[(&Promotion, bool)],
    decision: &mut Decision,
) {
    // They were proven in what came before this environment, and nothing does any more.
    for (promotion, _) in
        promotions.iter().filter(|(p, done)| p.trigger.is_none() && p.phase.is_open() && !done)
    {
        let message =
            format!("nothing comes before {} any more: what goes in is asked for", environment.name);
        cancel(facts, promotion, message, decision);
    }
    let asked: Vec<(&Promotion, bool)> =
        promotions.iter().filter(|(p, _)| p.trigger.is_some()).copied().collect();
    let Some(((newest, settled), earlier)) = asked.split_last() else { return };
    for (promotion, settled) in earlier {
        if promotion.phase.is_open() && !settled {
            let message = format!("{} was asked for after it", newest.revision);
            decision.record(promotion, Phase::Superseded, "Superseded", message);
        }
        let key = newest.trigger.as_deref().unwrap_or_default();
        let why =
            format!("{} was asked for after it, by key {key}; ask for it again by another", newest.revision);
        decline(promotion, &why, decision);
    }
    if *settled {
        return;
    }
    if let Some(refused) = refusal(facts, environment, policy, &newest.revision) {
        if newest.phase.is_open() && newest.open_request().is_none() {
            cancel(facts, newest, refused.message.clone(), decision);
        }
        decision.notes.insert(environment.name.clone(), refused);
        return;
    }
    if newest.phase.is_open() {
        if workloads(facts, environment, &newest.revision, decision).is_some() {
            proceed(facts, environment, policy, newest, decision);
        }
    } else if runs(facts, environment, &newest.revision) {
        let why = format!("{} runs {} already", environment.name, newest.revision);
        decline(newest, &why, decision);
    } else if newest.phase != Phase::Succeeded || newest.retry.is_some() {
        check_delivered(facts, environment, policy, newest, decision);
        let action = take_up(facts, environment, newest, decision);
        decision.actions.extend(action);
    }
}
