//! `sluice approve`: lets exactly the revision pass that the person has looked at. The write carries
//! the version of the promotion that was judged, so that it cannot hit one that changed meanwhile.

use clap::Args;
use jiff::{SignedDuration, Timestamp, Unit};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_core::model::GATES;

use crate::connect::{Connect, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::{self, Which, phase};
use crate::sign::{Io, Sign};

/// The field manager of what people write by this command line.
const FIELD_MANAGER: &str = "sluice-cli";

/// Arguments of `sluice approve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What waits for a person?
  sluice get promotions -A -o wide

  # Let it pass: by the pipeline and the environment, or by the promotion's own name
  sluice approve podinfo --environment prod -n apps
  sluice approve podinfo-prod-5f1c9a -n apps

  # On behalf of somebody else, for example from a chat bot
  sluice approve podinfo -e prod -n apps --by jane@example.com")]
pub struct Approve {
    #[command(flatten)]
    which: Which,
    /// Who approves; default is the user that the cluster knows you as
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// What can be done about a promotion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command applies.
    Go,
    /// Nothing is left to do, and why.
    Already(String),
    /// The command does not apply, why, and what does.
    Refuse(String, Option<String>),
}

pub(crate) async fn run(args: &Approve, io: &mut Io<'_>) -> Outcome {
    let connection = args.connect.open(Some(PATIENCE))?;
    let by = match &args.by {
        Some(by) => by.clone(),
        None => whoami(&connection).await?,
    };
    let fits = |p: &Promotion| judge(p) == Verdict::Go;
    let approval = json!({"approval": {"by": by, "at": second(Timestamp::now())}});
    if let Some(promotion) = change(&connection, &args.which, fits, judge, &approval, io).await? {
        let spec = &promotion.spec;
        let what = format!("approved {} {} into {} (as {by})", spec.pipeline, spec.revision, spec.place());
        io.tell(Sign::Done, &what);
    }
    Ok(())
}

/// How long the cluster may be silent.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Finds the promotion, judges it and writes `spec` into it; looks again when somebody else was
/// faster. None where nothing was left to do, which was told.
pub(crate) async fn change(
    connection: &Connection,
    which: &Which,
    fits: fn(&Promotion) -> bool,
    judge: fn(&Promotion) -> Verdict,
    spec: &Value,
    io: &mut Io<'_>,
) -> Outcome<Option<Promotion>> {
    let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    for _ in 0..5 {
        let promotion = find::promotion(connection, which, fits).await?;
        match judge(&promotion) {
            Verdict::Go => {}
            Verdict::Already(why) => {
                io.tell(Sign::Done, &why);
                return Ok(None);
            }
            Verdict::Refuse(message, hint) => {
                return Err(Failure { exit: Exit::Refused, message, hint });
            }
        }
        let patch = json!({"metadata": {"resourceVersion": promotion.resource_version()}, "spec": spec});
        match api.patch(&promotion.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(_) => return Ok(Some(promotion)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(connection.explain(error)),
        }
    }
    Err(Failure::new(Exit::Error, "the promotion keeps changing: try again"))
}

/// The time in whole seconds, as Kubernetes writes it.
fn second(now: Timestamp) -> String {
    now.round(Unit::Second).unwrap_or(now + SignedDuration::ZERO).to_string()
}

/// The user as the cluster knows him; on a cluster that does not tell, as the kubeconfig does.
async fn whoami(connection: &Connection) -> Outcome<String> {
    let api: Api<SelfSubjectReview> = Api::all(connection.client.clone());
    let told = match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => review.status.and_then(|s| s.user_info?.username),
        Err(kube::Error::Api(status)) if status.code != 401 => None,
        Err(error) => return Err(connection.explain(error)),
    };
    let known = told.unwrap_or_else(|| connection.user.clone());
    match known.is_empty() {
        false => Ok(known),
        true => Err(Failure::new(Exit::Error, "the cluster does not say who you are")
            .hinted("say it yourself: --by NAME")),
    }
}

fn judge(promotion: &Promotion) -> Verdict {
    let spec = &promotion.spec;
    let what = format!("{} {} into {}", spec.pipeline, spec.revision, spec.place());
    let name = promotion.name_any();
    let gates = promotion.status.as_ref().map(|s| s.gates.as_slice()).unwrap_or_default();
    // One that let an earlier try pass counts no more.
    let spent = promotion.status.as_ref().and_then(|s| s.spent_approval.as_ref());
    let approval = spec.approval.as_ref().filter(|a| Some(*a) != spent);
    match (phase(promotion), approval) {
        (Phase::Superseded, _) => Verdict::Refuse(
            format!("{what} was superseded by a newer revision"),
            Some(format!("see what waits now: sluice get promotions --pipeline {}", spec.pipeline)),
        ),
        (Phase::Cancelled, _) => Verdict::Refuse(format!("{what} was cancelled{}", said(promotion)), None),
        (ended @ (Phase::Failed | Phase::Rejected), _) => Verdict::Refuse(
            format!("{what} has ended: {ended:?}{}", said(promotion)),
            Some(format!("try it again: sluice retry {name}")),
        ),
        (_, Some(approval)) => {
            Verdict::Already(format!("{what} is approved already, by {} at {}", approval.by, approval.at))
        }
        (Phase::Pending, None)
            if gates.is_empty() || gates.iter().any(|g| GATES.contains(&g.name.as_str())) =>
        {
            Verdict::Go
        }
        (at, None) => Verdict::Refuse(
            format!("{what} does not wait for an approval: it is {at:?}{}", said(promotion)),
            None,
        ),
    }
}

/// The promotion's own message as the end of a sentence.
pub(crate) fn said(promotion: &Promotion) -> String {
    match promotion.status.as_ref().map(|s| s.message.as_str()) {
        None | Some("") => String::new(),
        Some(message) => format!(" ({message})"),
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
    fn what_waits_is_approved_and_nothing_else() {
        assert_eq!(judge(&promotion("Pending", false, &["Approval"])), Verdict::Go);
        assert_eq!(judge(&promotion("Pending", false, &["Downgrade"])), Verdict::Go);
        assert_eq!(judge(&promotion("Pending", false, &[])), Verdict::Go);
        let mut retried = promotion("Pending", true, &["Approval"]);
        let approval = retried.spec.approval.clone();
        retried.status.as_mut().unwrap().spent_approval = approval;
        assert_eq!(judge(&retried), Verdict::Go);
        let said = |phase, approved, gates: &[&str]| match judge(&promotion(phase, approved, gates)) {
            Verdict::Go => "go".to_owned(),
            Verdict::Already(why) => format!("✔ {why}"),
            Verdict::Refuse(why, hint) => format!("✗ {why}\n  {}", hint.unwrap_or_default()),
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

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(second("2026-11-21T10:00:00.4Z".parse().unwrap()), "2026-11-21T10:00:00Z");
    }
}
