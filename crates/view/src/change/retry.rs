//! A person requests another try of a promotion.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};

use super::{ChangeCheck, describe, status_message};

/// Returns the fields of the spec with the request for another try: its time is `now`, but at least one second after the last request.
pub fn spec(promotion: &Promotion, now: Timestamp) -> Value {
    let before = promotion.spec.retry.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    let after = before.and_then(|before| before.checked_add(SignedDuration::from_secs(1)).ok());
    json!({"retry": after.map_or(now, |after| now.max(after)).to_string()})
}

/// Returns true if the environment (or target) of a promotion runs its revision, by the status of the pipeline.
fn runs(promotion: &Promotion, pipeline: &Pipeline) -> bool {
    let spec = &promotion.spec;
    let status = pipeline.status.as_ref().and_then(|status| status.environments.get(&spec.environment));
    let running = status.and_then(|shown| match &spec.target {
        None => shown.revision.as_ref(),
        Some(target) => shown.targets.iter().find(|t| t.name == *target)?.revision.as_ref(),
    });
    running == Some(&spec.revision)
}

/// Returns the revision that goes into the environment (or target) of a promotion now, if that is another promotion's.
fn goes_in<'a>(promotion: &Promotion, pipeline: &'a Pipeline) -> Option<&'a str> {
    let spec = &promotion.spec;
    let status = pipeline.status.as_ref()?.environments.get(&spec.environment)?;
    let current = match &spec.target {
        None => status.promotion.as_ref(),
        Some(target) => status.targets.iter().find(|t| t.name == *target)?.promotion.as_ref(),
    };
    let is_open = |phase| matches!(phase, Phase::Pending | Phase::Promoting | Phase::Proposed);
    let current = current.filter(|current| is_open(current.phase))?;
    (promotion.metadata.name.as_ref() != Some(&current.name)).then_some(&current.revision)
}

/// Checks whether a promotion can be retried.
pub fn check(promotion: &Promotion, pipeline: Option<&Pipeline>) -> ChangeCheck {
    let (spec, at) = (&promotion.spec, promotion.phase());
    let what = describe(promotion);
    if at == Phase::Succeeded && pipeline.is_some_and(|pipeline| runs(promotion, pipeline)) {
        let why = format!("{what} has succeeded, and {} runs it: there is nothing to retry", spec.place());
        return ChangeCheck::Refuse(why, None);
    }
    let has_ended = matches!(at, Phase::Failed | Phase::Rejected | Phase::Succeeded);
    if has_ended && let Some(current) = pipeline.and_then(|pipeline| goes_in(promotion, pipeline)) {
        let why = format!("{what} cannot be retried: {current} goes into {} now", spec.place());
        let hint =
            format!("to retry that one: sluice retry {} --environment {}", spec.pipeline, spec.place());
        return ChangeCheck::Refuse(why, Some(hint));
    }
    let status = promotion.status.as_ref();
    let waits = status.is_some_and(|s| s.next_attempt.is_some());
    if !matches!(at, Phase::Failed | Phase::Rejected | Phase::Succeeded) && !waits {
        let why = match at {
            Phase::Pending => "was not tried yet: it is Pending",
            Phase::Superseded => "was superseded by a newer revision",
            Phase::Cancelled => "was cancelled",
            Phase::Promoting => "is being delivered: nothing has failed",
            Phase::Proposed => "is proposed: nothing has failed",
            _ => "is delivered: nothing has failed",
        };
        return ChangeCheck::Refuse(format!("{what} {why}{}", status_message(promotion)), None);
    }
    match &spec.retry {
        Some(token) if status.and_then(|s| s.retried.as_ref()) != Some(token) => {
            ChangeCheck::NothingToDo(format!("another try of {what} was requested already, at {token}"))
        }
        _ => ChangeCheck::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(status: Value, retry: Value) -> ChangeCheck {
        let promotion = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {}, "retry": retry},
            "status": status,
        });
        check(&serde_json::from_value(promotion).unwrap(), None)
    }

    #[test]
    fn failed_rejected_and_waiting_promotions_are_retried() {
        for status in [
            json!({"phase": "Failed"}),
            json!({"phase": "Rejected"}),
            json!({"phase": "Promoting", "nextAttempt": "2026-11-21T10:00:00Z"}),
        ] {
            assert_eq!(checked(status, Value::Null), ChangeCheck::Apply);
        }
        let acted_on = json!({"phase": "Failed", "retried": "then"});
        assert_eq!(checked(acted_on, json!("then")), ChangeCheck::Apply);
    }

    #[test]
    fn other_promotions_are_refused_with_the_reason() {
        for phase in ["Pending", "Promoting", "Proposed", "Delivered", "Superseded", "Cancelled"] {
            let check = checked(json!({"phase": phase, "message": "why"}), Value::Null);
            let ChangeCheck::Refuse(why, _) = check else { panic!("{phase}: {check:?}") };
            assert!(why.starts_with("podinfo 6.1.8 into prod ") && why.ends_with("(why)"), "{why}");
        }
    }

    #[test]
    fn an_ended_promotion_is_not_retried_while_another_goes_into_its_place() {
        let pipeline = |name: &str, phase: &str| -> Pipeline {
            let current = json!({"name": name, "revision": "6.1.9", "phase": phase});
            let status = json!({"environments": {"prod": {"promotion": current}}});
            serde_json::from_value(json!({
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
                "spec": {"environments": []}, "status": status,
            }))
            .unwrap()
        };
        let promotion: Promotion = serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {}},
            "status": {"phase": "Succeeded"},
        }))
        .unwrap();
        let ChangeCheck::Refuse(why, hint) = check(&promotion, Some(&pipeline("p-2", "Pending"))) else {
            panic!()
        };
        assert_eq!(why, "podinfo 6.1.8 into prod cannot be retried: 6.1.9 goes into prod now");
        assert_eq!(hint.as_deref(), Some("to retry that one: sluice retry podinfo --environment prod"));
        for (name, phase) in [("p-2", "Failed"), ("p-1", "Pending")] {
            assert_eq!(check(&promotion, Some(&pipeline(name, phase))), ChangeCheck::Apply, "{name} {phase}");
        }
    }

    #[test]
    fn a_second_request_changes_nothing() {
        let check = checked(json!({"phase": "Failed"}), json!("2026-11-21T10:00:00Z"));
        assert!(matches!(check, ChangeCheck::NothingToDo(_)), "{check:?}");
    }
}
