//! Gates: what must be open before a promotion is delivered. Each is a verdict with its reason.

use super::Facts;
use crate::model::{Environment, Gate, Policy, Promotion};

/// The verdicts on a promotion, shut ones included; none at all when nothing stands in its way.
pub(super) fn verdicts(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotion: &Promotion,
) -> Vec<Gate> {
    [approval(facts, policy, promotion), downgrade(facts, environment, policy, promotion)]
        .into_iter()
        .flatten()
        .collect()
}

fn approval(facts: Facts<'_>, policy: &Policy, promotion: &Promotion) -> Option<Gate> {
    let message = if promotion.approved {
        String::new()
    } else {
        format!("waits for approval: sluice approve -n {} {}", facts.pipeline.namespace, promotion.name)
    };
    policy.manual.then_some(Gate { name: "Approval", open: promotion.approved, message })
}

/// Older revisions go nowhere silently. What cannot be compared counts as older when the
/// environment has run it before.
fn downgrade(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotion: &Promotion,
) -> Option<Gate> {
    if policy.allow_downgrade {
        return None;
    }
    let running = environment.targets.iter().filter_map(|t| {
        let shown = facts.world.target(&environment.name, t)?.revision(&facts.pipeline.tracks);
        shown.or_else(|| facts.evidence.of(&environment.name, t).last().map(|p| p.revision.clone()))
    });
    let newer = running.filter(|r| !promotion.revision.is_run_by(r)).find(|r| {
        let by_version = promotion.revision.is_older_than(r);
        by_version.unwrap_or_else(|| facts.evidence.was_here(environment, &promotion.revision))
    })?;
    let message = if promotion.approved {
        String::new()
    } else {
        format!(
            "is held: it is older than {newer}, which {} runs: sluice approve -n {} {} lets it pass, and \
             promotion.allowDowngrade lets all pass",
            environment.name, facts.pipeline.namespace, promotion.name
        )
    };
    Some(Gate { name: "Downgrade", open: promotion.approved, message })
}
