//! `sluice approve`: lets a revision pass that waits for a person. The write carries the version of the
//! promotion that was looked at, so that it fails if the promotion has changed since.

use clap::Args;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use sluice_core::promotion::GateKind;

use crate::connect::{Connect, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::{self, Which, phase};
use crate::sign::{Io, Sign};

/// The field manager of what people write by this command line.
pub(crate) const FIELD_MANAGER: &str = "sluice-cli";

/// Arguments of `sluice approve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which promotions wait for an approval?
  sluice get promotions -A -o wide

  # Approve one: by the pipeline and the environment, or by its own name
  sluice approve podinfo --environment prod -n apps
  sluice approve podinfo-prod-5f1c9a -n apps

  # In a script: only if this very revision waits
  sluice approve podinfo --revision 6.1.8 -n apps

An approval is in your own name, as the API server knows you (kubectl auth whoami). It needs the verbs get, list, patch
and approve on promotions.pipelines.weave.works: the ClusterRole sluice-approver.")]
pub struct Approve {
    #[command(flatten)]
    which: Which,
    /// Refuse unless this is the revision that waits
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Removed: approvals are in the name of the user who gives them
    #[arg(long, value_name = "NAME", hide = true)]
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

/// What a command does to the promotion that is meant.
pub(crate) struct Change<'a> {
    /// Whether it applies to a promotion of this pipeline; without one, as far as the promotion alone tells.
    pub judge: &'a dyn Fn(&Promotion, Option<&Pipeline>) -> Verdict,
    /// What it writes into the spec.
    pub spec: &'a dyn Fn(&Promotion) -> Value,
}

pub(crate) async fn run(args: &Approve, io: &mut Io<'_>) -> Outcome {
    if args.by.is_some() {
        let message = "--by was removed: an approval is in the name of the user who gives it";
        return Err(Failure::new(Exit::Usage, message).hinted(
            "leave --by out; a bot approves as its own user, or as another with --as, if RBAC allows it",
        ));
    }
    let connection = args.connect.open(Some(PATIENCE))?;
    let by = whoami(&connection).await?;
    let revision = args.revision.as_deref();
    let change = Change {
        judge: &|promotion, _| is_meant(promotion, revision).unwrap_or_else(|| judge(promotion)),
        spec: &|promotion| json!({"approval": approval(promotion, &by)}),
    };
    let Some((promotion, pipeline)) = apply(&connection, &args.which, revision, &change, io).await? else {
        return Ok(());
    };
    let what = what(&promotion);
    io.tell(Sign::Done, &format!("approved {what} (as {by})"));
    if let Some(note) = find::suspended(pipeline.as_ref()) {
        io.tell(Sign::Waiting, &note);
    }
    Ok(())
}

/// The approval of what a promotion is now. What an older approval says is replaced.
fn approval(promotion: &Promotion, by: &str) -> Value {
    json!({"by": by, "revision": promotion.spec.revision, "retries": retries(promotion), "at": null})
}

/// How often a promotion was retried, which approvals and rejections name.
pub(crate) fn retries(promotion: &Promotion) -> u32 {
    promotion.status.as_ref().map_or(0, |status| status.retries)
}

/// How long the cluster may be silent.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Finds the promotion, judges it and writes into its spec; looks again when somebody else was faster. Returns the
/// promotion as it was before and its pipeline, or `None` if nothing was left to do, which was printed.
pub(crate) async fn apply(
    connection: &Connection,
    which: &Which,
    revision: Option<&str>,
    change: &Change<'_>,
    io: &mut Io<'_>,
) -> Outcome<Option<(Promotion, Option<Pipeline>)>> {
    for _ in 0..5 {
        let fits = |p: &Promotion| (change.judge)(p, None) == Verdict::Go;
        let promotion = find::promotion(connection, which, revision, &fits, io).await?;
        let pipeline = find::pipeline_of(connection, &promotion, io).await;
        match (change.judge)(&promotion, pipeline.as_ref()) {
            Verdict::Go => {}
            Verdict::Already(why) => {
                io.tell(Sign::Done, &why);
                return Ok(None);
            }
            Verdict::Refuse(message, hint) => {
                return Err(Failure { exit: Exit::Refused, message, hint });
            }
        }
        match write(connection, &promotion, (change.spec)(&promotion)).await {
            Ok(()) => return Ok(Some((promotion, pipeline))),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(connection.explain(error)),
        }
    }
    Err(Failure::new(Exit::Error, "the promotion keeps changing: try again"))
}

/// Merges into the spec of a promotion, if it has not changed since it was read.
pub(crate) async fn write(connection: &Connection, promotion: &Promotion, spec: Value) -> kube::Result<()> {
    let namespace = promotion.namespace().unwrap_or_else(|| connection.namespace.clone());
    let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = json!({"metadata": {"resourceVersion": promotion.resource_version()}, "spec": spec});
    api.patch(&promotion.name_any(), &params, &Patch::Merge(patch)).await.map(drop)
}

/// The user as the API server knows them.
pub(crate) async fn whoami(connection: &Connection) -> Outcome<String> {
    let api: Api<SelfSubjectReview> = Api::all(connection.client.clone());
    let unknown = |why: &str| {
        Failure::new(Exit::Cluster, format!("the cluster does not say who you are: {why}")).hinted(
            "it takes Kubernetes 1.28, and create on selfsubjectreviews.authentication.k8s.io, which Kubernetes \
             grants by default (system:basic-user)",
        )
    };
    match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => {
            let user = review.status.and_then(|s| s.user_info?.username).filter(|user| !user.is_empty());
            user.ok_or_else(|| unknown("the answer has no name"))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Err(unknown(&status.message)),
        Err(error) => Err(connection.explain(error)),
    }
}

/// A promotion in a few words.
pub(crate) fn what(promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    format!("{} {} into {}", spec.pipeline, spec.revision, spec.place())
}

/// Refuses a promotion of another revision than the person means.
pub(crate) fn is_meant(promotion: &Promotion, revision: Option<&str>) -> Option<Verdict> {
    let meant = revision.filter(|meant| *meant != promotion.spec.revision)?;
    let message = format!("{meant} is not what waits here: {} is {}", what(promotion), phase(promotion));
    let hint = format!("see what waits now: sluice get promotions --pipeline {}", promotion.spec.pipeline);
    Some(Verdict::Refuse(message, Some(hint)))
}

fn judge(promotion: &Promotion) -> Verdict {
    let spec = &promotion.spec;
    let what = what(promotion);
    let name = promotion.name_any();
    let status = promotion.status.clone().unwrap_or_default();
    let gates = status.gates.as_slice();
    match (phase(promotion), spec.approval_now(&status)) {
        (Phase::Superseded, _) => Verdict::Refuse(
            format!("{what} was superseded by a newer revision"),
            Some(format!("see what waits now: sluice get promotions --pipeline {}", spec.pipeline)),
        ),
        (Phase::Cancelled, _) => Verdict::Refuse(format!("{what} was cancelled{}", said(promotion)), None),
        (ended @ (Phase::Failed | Phase::Rejected), _) => Verdict::Refuse(
            format!("{what} has ended: {ended}{}", said(promotion)),
            Some(format!("try it again: sluice retry {name}")),
        ),
        (_, Some(approval)) => {
            let given = status.approval.as_ref().filter(|given| given.retries == approval.retries);
            let at = given.map(|given| &given.at).or(approval.at.as_ref());
            let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
            Verdict::Already(format!("{what} is approved already, by {}{at}", approval.by))
        }
        (Phase::Pending, None)
            if gates.is_empty() || gates.iter().any(|g| GateKind::named(&g.name).is_some()) =>
        {
            Verdict::Go
        }
        (at, None) => Verdict::Refuse(
            format!("{what} does not wait for an approval: it is {at}{}", said(promotion)),
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
        // That of an earlier try does not count any more, as an earlier version kept it, and as this one does.
        let mut retried = promotion("Pending", true, &["Approval"]);
        let before = retried.spec.approval.clone();
        retried.status.as_mut().unwrap().spent_approval = before;
        assert_eq!(judge(&retried), Verdict::Go);
        let mut retried = promotion("Pending", true, &["Approval"]);
        retried.status.as_mut().unwrap().retries = 1;
        assert_eq!(judge(&retried), Verdict::Go);
        assert_eq!(approval(&retried, "jane")["retries"], 1);
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
}
