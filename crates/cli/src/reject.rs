//! `sluice reject`: ends a promotion that is not delivered yet, and has its change request closed.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kube::ResourceExt;
use serde_json::json;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;

use crate::approve::{Change, PATIENCE, Verdict, apply, is_meant, retries, said, what, whoami};
use crate::connect::Connect;
use crate::exit::Outcome;
use crate::find::{self, Which, phase};
use crate::sign::{Io, Sign};

/// Arguments of `sluice reject`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sluice reject podinfo-prod-5f1c9a -n apps --reason 'migration is not tested'
  sluice reject podinfo --environment prod -n apps --reason 'not before Monday'

The promotion ends as Rejected, and its change request is closed with the reason. The revision is not promoted again
until somebody retries it (sluice retry); newer revisions are. A rejection is in your own name, as the API server knows
you, and needs the same verbs as an approval: the ClusterRole sluice-approver.")]
pub struct Reject {
    #[command(flatten)]
    which: Which,
    /// Why; people see it in the promotion and in its change request
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Refuse unless this is the revision that is promoted
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: &Reject, io: &mut Io<'_>) -> Outcome {
    let connection = args.connect.open(Some(PATIENCE))?;
    let by = whoami(&connection).await?;
    let revision = args.revision.as_deref();
    let change = Change {
        judge: &|promotion, _| is_meant(promotion, revision).unwrap_or_else(|| judge(promotion)),
        spec: &|promotion| {
            json!({"rejection": {"by": by, "reason": args.reason, "revision": promotion.spec.revision,
                "retries": retries(promotion)}})
        },
    };
    let Some((promotion, pipeline)) = apply(&connection, &args.which, revision, &change, io).await? else {
        return Ok(());
    };
    io.tell(Sign::Done, &format!("rejected {} (as {by})", what(&promotion)));
    if let Some(note) = find::suspended(pipeline.as_ref()) {
        io.tell(Sign::Waiting, &note);
    }
    Ok(())
}

fn judge(promotion: &Promotion) -> Verdict {
    let what = what(promotion);
    let status = promotion.status.clone().unwrap_or_default();
    if let Some(rejection) = promotion.spec.rejection_now(&status) {
        let (by, reason) = (&rejection.by, &rejection.reason);
        return Verdict::Already(format!("{what} is rejected already, by {by}: {reason}"));
    }
    match phase(promotion) {
        Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Failed => Verdict::Go,
        Phase::Delivered | Phase::Succeeded => Verdict::Refuse(
            format!("{what} is delivered already{}", said(promotion)),
            Some("take it back in git: revert the commit, or merge the revert".into()),
        ),
        ended => Verdict::Refuse(
            format!("{what} has ended: {ended}{}", said(promotion)),
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

    fn judged(phase: &str, retries: u32, rejection: Value) -> Verdict {
        let promotion = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {},
                "rejection": rejection},
            "status": {"phase": phase, "message": "why", "retries": retries},
        });
        judge(&serde_json::from_value(promotion).unwrap())
    }

    #[test]
    fn what_is_not_delivered_is_rejected_once() {
        for phase in ["Pending", "Promoting", "Proposed", "Failed"] {
            assert_eq!(judged(phase, 0, Value::Null), Verdict::Go, "{phase}");
        }
        for phase in ["Delivered", "Succeeded", "Rejected", "Superseded", "Cancelled"] {
            let verdict = judged(phase, 0, Value::Null);
            assert!(
                matches!(&verdict, Verdict::Refuse(why, Some(_)) if why.ends_with("(why)")),
                "{verdict:?}"
            );
        }
        let rejection = json!({"by": "jane", "reason": "no", "revision": "6.1.8"});
        let already = Verdict::Already("podinfo 6.1.8 into prod is rejected already, by jane: no".into());
        assert_eq!(judged("Pending", 0, rejection.clone()), already);
        assert_eq!(judged("Pending", 1, rejection), Verdict::Go, "it was retried since");
    }
}
