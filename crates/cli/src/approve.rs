//! `sluice approve`: approves a pending promotion.

use clap::Args;
use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_core::promotion::GateKind;

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::PromotionArgs;
use crate::promotion_change::{
    ChangeCheck, Changed, PromotionChange, apply, describe, note_suspension, refuse_other_revision, retries,
    status_message,
};
use crate::terminal::{Io, Symbol};
use crate::user_name::user_name;
use crate::wait::WaitFlags;

/// Arguments of `sluice approve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which promotions wait for an approval?
  sluice get promotions -A -o wide

  # Approve one: by the pipeline and the environment, or by its own name
  sluice approve podinfo --environment prod -n apps
  sluice approve podinfo-prod-5f1c9a -n apps

  # In a script: only if exactly this revision waits
  sluice approve podinfo --revision 6.1.8 -n apps

  # Approve it, and wait until prod runs it, for at most half an hour
  sluice approve podinfo --environment prod -n apps --wait --timeout 30m

An approval is in your own name, as the API server knows it (kubectl auth whoami). It needs the verbs get, list, patch \
and approve on promotions.pipelines.weave.works, and watch with --wait: the ClusterRole sluice-approver.

With --wait, the exit code is 0 if the promotion has succeeded, 8 if it has ended otherwise, 9 if the time is up, and \
10 if it needs a person again, for example to merge its change request.")]
pub struct Approve {
    #[command(flatten)]
    which: PromotionArgs,
    /// Refuse if another revision waits
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Removed: approvals are in the name of the user who gives them
    #[arg(long, value_name = "NAME", hide = true)]
    by: Option<String>,
    #[command(flatten)]
    wait: WaitFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Approve, io: &mut Io<'_>) -> Outcome {
    if args.by.is_some() {
        let message = "--by was removed: an approval is in the name of the user who gives it";
        return Err(Failure::new(Exit::Usage, message).hinted(
            "leave --by out; a bot approves as its own user, or as another with --as, if RBAC allows it",
        ));
    }
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let by = user_name(&connection).await?;
    let revision = args.revision.as_deref();
    let change = PromotionChange {
        check: &|promotion, _| refuse_other_revision(promotion, revision).unwrap_or_else(|| check(promotion)),
        spec: &|promotion| json!({"approval": approval(promotion, &by)}),
    };
    let Changed { promotion, pipeline, applied } =
        apply(&connection, &args.which, revision, &change, io).await?;
    if applied {
        io.progress(Symbol::Done, &format!("approved {} (as {by})", describe(&promotion)));
    }
    let suspended = (applied || args.wait.is_set()) && note_suspension(pipeline.as_ref(), io);
    args.wait.until_ended(&connection, &[promotion], suspended, io).await
}

/// Returns the approval of the current try. It replaces every field of an older approval.
fn approval(promotion: &Promotion, by: &str) -> Value {
    json!({"by": by, "revision": promotion.spec.revision, "retries": retries(promotion), "at": null})
}

/// Checks whether a promotion can be approved.
fn check(promotion: &Promotion) -> ChangeCheck {
    let spec = &promotion.spec;
    let what = describe(promotion);
    let name = promotion.name_any();
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
        assert_eq!(approval(&retried, "jane")["retries"], 1);
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
