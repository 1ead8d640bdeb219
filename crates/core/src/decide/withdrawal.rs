//! Open change requests of promotions that do not need them any more.

use super::{Action, Decision, Facts};
use crate::promotion::{Phase, Promotion};

/// Closes these open change requests:
/// - those of promotions that are delivered or have ended, unless another promotion has taken the change request over or is
///   about to
/// - outdated ones, which no promotion can take over
///
/// A promotion with an open change request counts as delivered if its base branch had every value already.
pub(super) fn withdraw(facts: Facts<'_>, decision: &mut Decision) {
    if facts.pipeline.suspended {
        return;
    }
    for promotion in facts.promotions.iter().filter(|p| !p.phase.is_open() || p.is_outdated()) {
        let Some(number) = promotion.open_request() else { continue };
        let is_needed = is_taken_over(facts, promotion, number) || is_about_to_be(promotion, decision);
        if promotion.is_outdated() || !is_needed {
            decision.actions.push(Action::Withdraw { promotion: promotion.name.clone() });
        }
    }
}

/// Returns true if an open or later promotion into the same environment (or target) uses the change request. An open one may
/// also use it later, unless a promotion whose revision it may carry was rejected: the open one may wait for long. A later
/// promotion may have pushed to it although its record does not say so yet.
fn is_taken_over(facts: Facts<'_>, promotion: &Promotion, number: u64) -> bool {
    let into_same =
        |p: &&Promotion| (&p.environment, &p.target) == (&promotion.environment, &promotion.target);
    let may_have_used = |p: &&Promotion| match p.request {
        Some(request) => request.number == number,
        None => p.order() > promotion.order(),
    };
    let is_rejected =
        facts.promotions.iter().filter(into_same).filter(may_have_used).any(Promotion::is_rejected);
    facts.promotions.iter().filter(into_same).any(|p| {
        let carries = p.open_request() == Some(number);
        match p.phase.is_open() {
            true => carries || !is_rejected,
            false => carries && p.order() > promotion.order(),
        }
    })
}

/// Returns true if this decision starts or resumes a promotion that will use the change request.
fn is_about_to_be(promotion: &Promotion, decision: &Decision) -> bool {
    decision.actions.iter().any(|action| match action {
        Action::Start(new) => (&new.environment, &new.target) == (&promotion.environment, &promotion.target),
        Action::Move(to) => to.to == Phase::Pending && to.promotion == promotion.name,
        _ => false,
    })
}
