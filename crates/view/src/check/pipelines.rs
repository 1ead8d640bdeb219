//! The pipelines: does the controller report on them, what does it say, and can it deliver their promotions?

use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Phase, Promotion};

use super::{Finding, Reading, Topic};
use crate::place::Place;

/// The pipelines of the checked namespaces.
#[derive(Clone, Debug)]
pub struct Pipelines<'a> {
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The readable pipelines, and a sentence about each unreadable one.
    pub found: Reading<(&'a [Pipeline], Vec<String>)>,
    /// The readable promotions of the same namespaces.
    pub promotions: Reading<Vec<Promotion>>,
}

/// Returns the findings.
pub fn findings(facts: &Pipelines<'_>) -> Vec<Finding> {
    let topic = Topic::Pipelines;
    let place =
        facts.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let Some((pipelines, unreadable)) = facts.found.known() else {
        return facts.found.unread(topic, &format!("pipelines{place}")).into_iter().collect();
    };
    let mut findings: Vec<Finding> = unreadable
        .iter()
        .map(|why| Finding::error(topic, why).fix("docs/troubleshooting.md#objects-that-cannot-be-read"))
        .collect();
    if !pipelines.is_empty() {
        findings.extend(facts.promotions.unread(topic, &format!("promotions{place}")));
    }
    let promotions = facts.promotions.known().map_or(&[][..], Vec::as_slice);
    findings.extend(pipelines.iter().flat_map(|pipeline| failing(pipeline, promotions)));
    let of_pipelines: Vec<Finding> = pipelines.iter().flat_map(of_pipeline).collect();
    let troubled = pipelines.iter().filter(|pipeline| !of_pipeline(pipeline).is_empty()).count();
    findings.extend(of_pipelines);
    match pipelines.len() - troubled {
        0 if pipelines.is_empty() && unreadable.is_empty() => {
            findings
                .push(Finding::ok(topic, format!("there are no pipelines{place}")).fix("docs/tutorial.md"));
        }
        0 => {}
        n => {
            let all = pipelines.len();
            findings.push(Finding::ok(
                topic,
                format!("{n} of {all} pipelines{place} are Ready, and their statuses are up to date"),
            ));
        }
    }
    findings
}

/// Returns an error for each promotion of a pipeline that has failed, or whose delivery fails.
fn failing(pipeline: &Pipeline, promotions: &[Promotion]) -> Vec<Finding> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let is_own = |p: &&Promotion| p.metadata.namespace.as_deref() == Some(home) && p.spec.pipeline == name;
    let promotions: Vec<&Promotion> = promotions.iter().filter(is_own).collect();
    let mut findings = Vec::new();
    for place in Place::all(pipeline) {
        let Some(promotion) = place.current(&promotions) else { continue };
        let Some(status) = promotion.status.as_ref().filter(|status| !status.message.is_empty()) else {
            continue;
        };
        let (what, fails) = match status.phase {
            Phase::Promoting => ("delivery", "fails"),
            Phase::Failed => ("promotion", "has failed"),
            _ => continue,
        };
        let tries = match status.attempts {
            0 | 1 => String::new(),
            n => format!(", tried {n} times"),
        };
        let (revision, here) = (&promotion.spec.revision, place.name());
        let message = format!(
            "the {what} of {revision} into {here} of pipeline {home}/{name} {fails} ({}{tries}): {}",
            status.reason, status.message
        );
        let fix = format!("sluice explain {name} -n {home} -e {here}");
        findings.push(Finding::error(Topic::Pipelines, message).fix(fix));
    }
    findings
}

fn of_pipeline(pipeline: &Pipeline) -> Vec<Finding> {
    let topic = Topic::Pipelines;
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let what = format!("pipeline {namespace}/{name}");
    let explain = format!("sluice explain {name} -n {namespace}");
    let Some(status) = &pipeline.status else {
        let message = format!("{what} has no status: no controller has looked at it");
        return vec![Finding::error(topic, message).fix("see the findings about the controller")];
    };
    let mut findings = Vec::new();
    let generation = pipeline.metadata.generation.unwrap_or_default();
    if status.observed_generation < generation {
        let message = format!(
            "the status of {what} is about generation {}, and the Pipeline has generation {generation}",
            status.observed_generation
        );
        findings.push(
            Finding::warning(topic, message)
                .fix("if this lasts: kubectl logs -n sluice-system deployment/sluice"),
        );
    }
    if pipeline.spec.suspend {
        let message = format!("{what} is suspended: nothing is promoted");
        findings.push(Finding::warning(topic, message).fix(format!("sluice resume {name} -n {namespace}")));
    }
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    match condition("Ready") {
        Some(ready) if ready.status == "True" || ready.reason == "Suspended" => {}
        Some(ready) if ready.status == "Unknown" => {
            findings.push(Finding::warning(topic, format!("{what}: {}", ready.message)).fix(explain));
        }
        Some(ready) => {
            let message = format!("{what} is not Ready ({}): {}", ready.reason, ready.message);
            findings.push(Finding::error(topic, message).fix(explain));
        }
        None => findings.push(Finding::warning(topic, format!("{what} has no condition Ready")).fix(explain)),
    }
    if let Some(invalid) = condition("HookSecretInvalid").filter(|condition| condition.status == "True") {
        let message = format!("{what} ({}): {}", invalid.reason, invalid.message);
        findings.push(Finding::error(topic, message).fix("docs/hook-server.md#when-the-secret-is-wrong"));
    }
    findings
}
