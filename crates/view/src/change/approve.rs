//! A person approves a promotion.

use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_core::promotion::GateKind;

use super::{ChangeCheck, describe, retries, status_message};

/// Returns the fields of the spec with the approval of the current try. It replaces every field of an older approval.
pub fn spec(promotion: &Promotion, by: &str) -> Value {
    json!({"approval": {"by": by, "revision": promotion.spec.revision, "retries": retries(promotion), "at": null}})
}

/// Checks whether a promotion can be approved.
pub fn check(promotion: &Promotion) -> ChangeCheck {
    let spec = &promotion.spec;
    let what = describe(promotion);
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    let status = promotion.status.clone().unwrap_or_default();
    let gates = status.gates.as_slice();
    match (promotion.phase(), spec.approval_now(&status)) {
        (Phase::Superseded, _) => ChangeCheck::Refuse(
            format!("{what} was superseded by a newer revision"),
            Some(format!("see what waits now: sluice get promotions --pipeline {}", spec.pipeline)),
        ),
        (Phase::Cancelled, _) => {
            ChangeCheck::Refuse(format!("{what} was cancelled{}", status_message(promotion)), None)
        }
        (ended @ (Phase::Failed | Phase::Rejected), _) => ChangeCheck::Refuse(
            format!("{what} has ended: {ended}{}", status_message(promotion)),
            Some(format!("try it again: sluice retry {name}")),
        ),
        (_, Some(approval)) => {
            let given = status.approval.as_ref().filter(|given| given.retries == approval.retries);
            let at = given.map(|given| &given.at).or(approval.at.as_ref());
            let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
            ChangeCheck::NothingToDo(format!("{what} is approved already, by {}{at}", approval.by))
        }
        (Phase::Pending, None)
            if gates.is_empty() || gates.iter().any(|g| GateKind::named(&g.name).is_some()) =>
        {
            ChangeCheck::Apply
        }
        (at, None) => ChangeCheck::Refuse(
            format!("{what} does not wait for an approval: it is {at}{}", status_message(promotion)),
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promotion(phase: &str, approved: bool, gates: &[&str]) -> Promotion {
        let gates: Vec<_> = gates.iter().map(|g| json!({"name": g, "open": false})).collect();
        let approval = approved.then(|| json!({"by": "joe", "at": "2026-11-21T10:00:00Z"}));
        serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {}, "approval": approval},
            "status": {"phase": phase, "message": "why", "gates": gates},
        }))
        .unwrap()
    }

    #[test]
    fn only_waiting_promotions_are_approved() {
        assert_eq!(check(&promotion("Pending", false, &["Approval"])), ChangeCheck::Apply);
        assert_eq!(check(&promotion("Pending", false, &["Downgrade"])), ChangeCheck::Apply);
        assert_eq!(check(&promotion("Pending", false, &[])), ChangeCheck::Apply);
        // The approval of an earlier try does not count: as earlier versions of Sluice stored it, and as this one does.
        let mut retried = promotion("Pending", true, &["Approval"]);
        let before = retried.spec.approval.clone();
        retried.status.as_mut().unwrap().spent_approval = before;
        assert_eq!(check(&retried), ChangeCheck::Apply);
        let mut retried = promotion("Pending", true, &["Approval"]);
        retried.status.as_mut().unwrap().retries = 1;
        assert_eq!(check(&retried), ChangeCheck::Apply);
        assert_eq!(spec(&retried, "jane")["approval"]["retries"], 1);
        let said = |phase, approved, gates: &[&str]| match check(&promotion(phase, approved, gates)) {
            ChangeCheck::Apply => "go".to_owned(),
            ChangeCheck::NothingToDo(why) => format!("✔ {why}"),
            ChangeCheck::Refuse(why, hint) => format!("✗ {why}\n  {}", hint.unwrap_or_default()),
        };
        insta::assert_snapshot!(said("Pending", false, &["Window"]), @"✗ podinfo 6.1.8 into prod does not wait for an approval: it is Pending (why)");
        insta::assert_snapshot!(said("Pending", true, &["Approval"]), @"✔ podinfo 6.1.8 into prod is approved already, by joe at 2026-11-21T10:00:00Z");
        insta::assert_snapshot!(said("Succeeded", true, &[]), @"✔ podinfo 6.1.8 into prod is approved already, by joe at 2026-11-21T10:00:00Z");
        insta::assert_snapshot!(said("Proposed", false, &[]), @"✗ podinfo 6.1.8 into prod does not wait for an approval: it is Proposed (why)");
        insta::assert_snapshot!(said("Failed", true, &[]), @"
        ✗ podinfo 6.1.8 into prod has ended: Failed (why)
          try it again: sluice retry p-1
        ");
        insta::assert_snapshot!(said("Superseded", true, &[]), @"
        ✗ podinfo 6.1.8 into prod was superseded by a newer revision
          see what waits now: sluice get promotions --pipeline podinfo
        ");
        insta::assert_snapshot!(said("Cancelled", false, &[]), @"✗ podinfo 6.1.8 into prod was cancelled (why)");
    }
}
