//! `sluice reject`: ends a promotion that is not delivered yet. The controller closes its change request.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kube::ResourceExt;
use serde_json::json;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::Outcome;
use crate::find::PromotionArgs;
use crate::promotion_change::{
    ChangeCheck, PromotionChange, apply, describe, note_suspension, refuse_other_revision, retries,
    status_message,
};
use crate::terminal::{Io, Symbol};
use crate::user_name::user_name;

/// Arguments of `sluice reject`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sluice reject podinfo-prod-5f1c9a -n apps --reason 'migration is not tested'
  sluice reject podinfo --environment prod -n apps --reason 'not before Monday'

The promotion ends as Rejected, and its change request is closed with the reason. The revision is not promoted again \
until somebody retries it (sluice retry); newer revisions are. A rejection is in your own name, as the API server knows \
it, and needs the same verbs as an approval: the ClusterRole sluice-approver.")]
pub struct Reject {
    #[command(flatten)]
    which: PromotionArgs,
    /// The reason, which the promotion and its change request show
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Refuse if another revision is promoted
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Reject, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let by = user_name(&connection).await?;
    let revision = args.revision.as_deref();
    let change = PromotionChange {
        check: &|promotion, _| refuse_other_revision(promotion, revision).unwrap_or_else(|| check(promotion)),
        spec: &|promotion| {
            json!({"rejection": {"by": by, "reason": args.reason, "revision": promotion.spec.revision,
                "retries": retries(promotion)}})
        },
    };
    let changed = apply(&connection, &args.which, revision, &change, io).await?;
    if changed.applied {
        io.progress(Symbol::Done, &format!("rejected {} (as {by})", describe(&changed.promotion)));
        note_suspension(changed.pipeline.as_ref(), io);
    }
    Ok(())
}

/// Checks whether a promotion can be rejected.
fn check(promotion: &Promotion) -> ChangeCheck {
    let what = describe(promotion);
    let status = promotion.status.clone().unwrap_or_default();
    if let Some(rejection) = promotion.spec.rejection_now(&status) {
        let (by, reason) = (&rejection.by, &rejection.reason);
        return ChangeCheck::NothingToDo(format!("{what} is rejected already, by {by}: {reason}"));
    }
    match promotion.phase() {
        Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Failed => ChangeCheck::Apply,
        Phase::Delivered | Phase::Succeeded => ChangeCheck::Refuse(
            format!("{what} is delivered already{}", status_message(promotion)),
            Some("take it back in git: revert the commit, or merge the revert".into()),
        ),
        ended => ChangeCheck::Refuse(
            format!("{what} has ended: {ended}{}", status_message(promotion)),
            Some(format!(
                "there is nothing left to reject; see sluice get promotion {}",
                promotion.name_any()
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

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
        for phase in ["Pending", "Promoting", "Proposed", "Failed"] {
            assert_eq!(checked(phase, 0, Value::Null), ChangeCheck::Apply, "{phase}");
        }
        for phase in ["Delivered", "Succeeded", "Rejected", "Superseded", "Cancelled"] {
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
