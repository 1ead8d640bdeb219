//! A person rejects a promotion.

use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::promotion::Phase;

use super::{ChangeCheck, describe, retries, status_message};

/// Returns the fields of the spec with the rejection of the current try.
pub fn spec(promotion: &Promotion, by: &str, reason: &str) -> Value {
    let (revision, retries) = (&promotion.spec.revision, retries(promotion));
    json!({"rejection": {"by": by, "reason": reason, "revision": revision, "retries": retries}})
}

/// Checks whether a promotion can be rejected.
pub fn check(promotion: &Promotion) -> ChangeCheck {
    let what = describe(promotion);
    let status = promotion.status.clone().unwrap_or_default();
    if let Some(rejection) = promotion.spec.rejection_now(&status) {
        let (by, reason) = (&rejection.by, &rejection.reason);
        return ChangeCheck::NothingToDo(format!("{what} is rejected already, by {by}: {reason}"));
    }
    match promotion.phase() {
        Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Failed => ChangeCheck::Apply,
        // Either starts again if its revision is the newest again.
        Phase::Superseded | Phase::Cancelled => ChangeCheck::Apply,
        Phase::Delivered | Phase::Succeeded => ChangeCheck::Refuse(
            format!("{what} is delivered already{}", status_message(promotion)),
            Some("take it back in git: revert the commit, or merge the revert".into()),
        ),
        Phase::Rejected => ChangeCheck::Refuse(
            format!("{what} has ended: Rejected{}", status_message(promotion)),
            Some(format!(
                "there is nothing left to reject; see sluice get promotion {}",
                promotion.metadata.name.as_deref().unwrap_or_default()
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(phase: &str, retries: u32, rejection: Value) -> ChangeCheck {
        let promotion = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {},
                "rejection": rejection},
            "status": {"phase": phase, "message": "why", "retries": retries},
        });
        check(&serde_json::from_value(promotion).unwrap())
    }

    #[test]
    fn an_undelivered_promotion_is_rejected_once() {
        for phase in ["Pending", "Promoting", "Proposed", "Failed", "Superseded", "Cancelled"] {
            assert_eq!(checked(phase, 0, Value::Null), ChangeCheck::Apply, "{phase}");
        }
        for phase in ["Delivered", "Succeeded", "Rejected"] {
            let check = checked(phase, 0, Value::Null);
            assert!(
                matches!(&check, ChangeCheck::Refuse(why, Some(_)) if why.ends_with("(why)")),
                "{check:?}"
            );
        }
        let rejection = json!({"by": "jane", "reason": "no", "revision": "6.1.8"});
        let already =
            ChangeCheck::NothingToDo("podinfo 6.1.8 into prod is rejected already, by jane: no".into());
        assert_eq!(checked("Pending", 0, rejection.clone()), already);
        assert_eq!(checked("Pending", 1, rejection), ChangeCheck::Apply, "it was retried since");
    }
}
