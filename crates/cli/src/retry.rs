//! `sluice retry`: asks for another try of a promotion that failed, was rejected, or waits for its next attempt; or
//! of all that failed.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::lenient::{List, Unreadable};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion, PromotionSpec};

use crate::approve::{Change, PATIENCE, Verdict, apply, said, what, write};
use crate::complete::{environments, pipelines, promotions_and_pipelines};
use crate::connect::{Connect, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::{self, Which, phase};
use crate::objects;
use crate::reference;
use crate::sign::{Io, Sign};

/// Arguments of `sluice retry`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What went wrong?
  sluice get promotions -A -o wide

  # Try it again: by the pipeline and the environment, or by the promotion's own name
  sluice retry podinfo --environment prod -n apps
  sluice retry podinfo-prod-5f1c9a -n apps

  # Everything that failed: of one pipeline, into one environment, of some pipelines
  sluice retry --failed --pipeline podinfo -n apps
  sluice retry --failed --environment prod -A
  sluice retry --failed -l 'pipelines.weave.works/pipeline in (podinfo, search)' -A

It needs the verbs get, list, patch and retry on promotions.pipelines.weave.works (the ClusterRole sluice-editor), and
approve as well where a person rejected the promotion.")]
pub struct Retry {
    /// The promotion's name; or, together with --environment, the pipeline's
    #[arg(
        value_parser = reference::either,
        add = ArgValueCompleter::new(promotions_and_pipelines),
        required_unless_present = "failed"
    )]
    name: Option<String>,
    /// The environment that the pipeline promotes into, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    /// Retry all promotions that failed or wait for their next attempt
    #[arg(long, conflicts_with = "name")]
    failed: bool,
    /// With --failed: only those of this pipeline
    #[arg(
        long,
        value_name = "NAME",
        value_parser = reference::pipeline,
        add = ArgValueCompleter::new(pipelines),
        requires = "failed",
        conflicts_with = "name"
    )]
    pipeline: Option<String>,
    /// With --failed: only Promotions with these labels
    #[arg(short = 'l', long, value_name = "LABELS", requires = "failed", conflicts_with = "name")]
    selector: Option<String>,
    /// With --failed: in all namespaces
    #[arg(short = 'A', long, requires = "failed", conflicts_with = "name")]
    all_namespaces: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: &Retry, io: &mut Io<'_>) -> Outcome {
    let connection = args.connect.open(Some(PATIENCE))?;
    let Some(name) = &args.name else { return retry_failed(args, &connection, io).await };
    let which = Which { name: name.clone(), environment: args.environment.clone() };
    let change = Change { judge: &judge, spec: &token };
    let Some((promotion, pipeline)) = apply(&connection, &which, None, &change, io).await? else {
        return Ok(());
    };
    tell(&promotion, pipeline.as_ref(), io);
    Ok(())
}

/// Retries each promotion that failed, and goes on where one cannot be retried.
async fn retry_failed(args: &Retry, connection: &Connection, io: &mut Io<'_>) -> Outcome {
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    // A later promotion has replaced an earlier one also where it lacks the labels.
    let List { items, unreadable } =
        objects::list::<Promotion>(connection, namespace, &ListParams::default()).await?;
    let (pipeline, environment) = (args.pipeline.as_deref(), args.environment.as_deref());
    let mut meant = failed(items, pipeline, environment);
    let mut told: Vec<&Unreadable<PromotionSpec>> =
        unreadable.iter().filter(|bad| bad.may_be(|spec| is_meant(spec, pipeline, environment))).collect();
    if let Some(selector) = &args.selector {
        let labelled = labelled(connection, namespace, selector).await?;
        meant.retain(|promotion| labelled.contains(&promotion.uid()));
        told.retain(|bad| labelled.contains(&bad.metadata.uid));
    }
    objects::warn::<Promotion, _>(told.into_iter(), io);
    if meant.is_empty() {
        io.note("no promotion has failed, or waits for its next attempt");
        return Ok(());
    }
    let (mut first, mut refused) = (None, 0);
    for promotion in meant {
        let pipeline = find::pipeline_of(connection, &promotion, io).await;
        let verdict = match unreadable.iter().find(|bad| may_have_replaced(bad, &promotion)) {
            Some(bad) => Verdict::Refuse(
                format!("{} may have replaced it, and cannot be read", bad.name()),
                Some(format!("if this one is meant, name it: sluice retry {}", promotion.name_any())),
            ),
            None => judge(&promotion, pipeline.as_ref()),
        };
        let outcome = match verdict {
            Verdict::Go => match write(connection, &promotion, token(&promotion)).await {
                Ok(()) => {
                    tell(&promotion, pipeline.as_ref(), io);
                    continue;
                }
                // It has changed just now: what failed may be over.
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    Failure::new(Exit::Error, "it changed meanwhile: look at it again")
                }
                Err(error) => connection.explain(error),
            },
            Verdict::Already(why) => {
                io.tell(Sign::Done, &why);
                continue;
            }
            Verdict::Refuse(message, hint) => Failure { exit: Exit::Refused, message, hint },
        };
        io.tell(Sign::Failed, &format!("{}: {}", what(&promotion), outcome.message));
        refused += 1;
        first.get_or_insert(outcome);
    }
    match first {
        None => Ok(()),
        Some(Failure { exit, hint, .. }) => {
            Err(Failure { exit, message: format!("{refused} of them could not be retried"), hint })
        }
    }
}

/// The identities of the promotions with these labels.
async fn labelled(
    connection: &Connection,
    namespace: Option<&str>,
    selector: &str,
) -> Outcome<BTreeSet<Option<String>>> {
    let all: Api<Promotion> = Api::all(connection.client.clone());
    let api = namespace.map_or(all.clone(), |namespace| all.constrain(namespace));
    let found = api.list_metadata(&ListParams::default().labels(selector)).await;
    Ok(found.map_err(|e| connection.explain(e))?.items.iter().map(ResourceExt::uid).collect())
}

fn is_meant(spec: &PromotionSpec, pipeline: Option<&str>, environment: Option<&str>) -> bool {
    pipeline.is_none_or(|wanted| spec.pipeline == wanted)
        && environment.is_none_or(|wanted| spec.is_into(wanted))
}

/// Returns true if a promotion that cannot be read may be a later one into the same place.
fn may_have_replaced(bad: &Unreadable<PromotionSpec>, promotion: &Promotion) -> bool {
    bad.metadata.namespace == promotion.metadata.namespace
        && bad.may_be(|spec| {
            (&spec.pipeline, spec.place()) == (&promotion.spec.pipeline, promotion.spec.place())
                && (spec.sequence, bad.name()) > promotion.line()
        })
}

/// The promotions that failed or wait for their next attempt, of those that no later one into the same place has
/// replaced.
fn failed(all: Vec<Promotion>, pipeline: Option<&str>, environment: Option<&str>) -> Vec<Promotion> {
    let lane = |p: &Promotion| (p.namespace(), p.spec.pipeline.clone(), p.spec.place());
    let mut newest = BTreeMap::new();
    for promotion in &all {
        let line = newest.entry(lane(promotion)).or_insert_with(|| promotion.line());
        *line = promotion.line().max(*line);
    }
    let is_newest = |p: &Promotion| newest.get(&lane(p)) == Some(&p.line());
    let has_failed = |p: &Promotion| {
        let waits = p.status.as_ref().is_some_and(|s| s.next_attempt.is_some());
        phase(p) == Phase::Failed || (phase(p) == Phase::Promoting && waits)
    };
    let keep: Vec<bool> = all
        .iter()
        .map(|p| is_meant(&p.spec, pipeline, environment) && has_failed(p) && is_newest(p))
        .collect();
    all.into_iter().zip(keep).filter_map(|(promotion, keep)| keep.then_some(promotion)).collect()
}

/// The request for another try: the time, later than that of the request before.
fn token(promotion: &Promotion) -> Value {
    let now = Timestamp::now();
    let before = promotion.spec.retry.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    let after = before.and_then(|before| before.checked_add(SignedDuration::from_secs(1)).ok());
    json!({"retry": after.map_or(now, |after| now.max(after)).to_string()})
}

/// Prints that it was asked for, and what it needs beside.
fn tell(promotion: &Promotion, pipeline: Option<&Pipeline>, io: &mut Io<'_>) {
    io.tell(Sign::Done, &format!("asked for another try of {}", what(promotion)));
    let Some(pipeline) = pipeline else { return };
    if pipeline.spec.suspend {
        let name = pipeline.name_any();
        let note = format!("pipeline {name} is suspended: nothing is tried until spec.suspend is false");
        return io.tell(Sign::Waiting, &note);
    }
    let environment = pipeline.spec.environments.iter().find(|e| e.name == promotion.spec.environment);
    let manual = environment.and_then(|e| pipeline.spec.policy(e)).is_some_and(|policy| policy.manual);
    if manual && phase(promotion) != Phase::Promoting {
        let namespace = promotion.namespace().unwrap_or_default();
        let note = format!("it needs a new approval: sluice approve -n {namespace} {}", promotion.name_any());
        io.tell(Sign::Waiting, &note);
    }
}

/// Whether the place that a promotion goes to runs its revision, as the pipeline's status says.
fn runs(promotion: &Promotion, pipeline: &Pipeline) -> bool {
    let spec = &promotion.spec;
    let status = pipeline.status.as_ref().and_then(|status| status.environments.get(&spec.environment));
    let running = status.and_then(|shown| match &spec.target {
        None => shown.revision.as_ref(),
        Some(target) => shown.targets.iter().find(|t| t.name == *target)?.revision.as_ref(),
    });
    running == Some(&spec.revision)
}

fn judge(promotion: &Promotion, pipeline: Option<&Pipeline>) -> Verdict {
    let (spec, at) = (&promotion.spec, phase(promotion));
    let what = what(promotion);
    if at == Phase::Succeeded && pipeline.is_some_and(|pipeline| runs(promotion, pipeline)) {
        let why = format!("{what} has succeeded, and {} runs it: there is nothing to retry", spec.place());
        return Verdict::Refuse(why, None);
    }
    let status = promotion.status.as_ref();
    let waits = status.is_some_and(|s| s.next_attempt.is_some());
    if !matches!(at, Phase::Failed | Phase::Rejected | Phase::Succeeded) && !waits {
        let why = match at {
            Phase::Pending => "is not tried yet, it is Pending",
            Phase::Superseded => "was superseded by a newer revision",
            Phase::Cancelled => "was cancelled",
            Phase::Promoting => "is being delivered, nothing has failed",
            Phase::Proposed => "is proposed, nothing has failed",
            _ => "is delivered, nothing has failed",
        };
        return Verdict::Refuse(format!("{what} {why}{}", said(promotion)), None);
    }
    match &spec.retry {
        Some(token) if status.and_then(|s| s.retried.as_ref()) != Some(token) => {
            Verdict::Already(format!("another try of {what} was asked for already, at {token}"))
        }
        _ => Verdict::Go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn judged(status: Value, retry: Value) -> Verdict {
        let promotion = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "p-1"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {}, "retry": retry},
            "status": status,
        });
        judge(&serde_json::from_value(promotion).unwrap(), None)
    }

    #[test]
    fn what_failed_was_rejected_or_waits_is_tried_again() {
        for status in [
            json!({"phase": "Failed"}),
            json!({"phase": "Rejected"}),
            json!({"phase": "Promoting", "nextAttempt": "2026-11-21T10:00:00Z"}),
        ] {
            assert_eq!(judged(status, Value::Null), Verdict::Go);
        }
        let acted_on = json!({"phase": "Failed", "retried": "then"});
        assert_eq!(judged(acted_on, json!("then")), Verdict::Go);
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for phase in ["Pending", "Promoting", "Proposed", "Delivered", "Superseded", "Cancelled"] {
            let verdict = judged(json!({"phase": phase, "message": "why"}), Value::Null);
            let Verdict::Refuse(why, _) = verdict else { panic!("{phase}: {verdict:?}") };
            assert!(why.starts_with("podinfo 6.1.8 into prod ") && why.ends_with("(why)"), "{why}");
        }
    }

    #[test]
    fn a_later_promotion_that_cannot_be_read_may_have_replaced_one_that_failed() {
        let spec = |environment: &str, sequence: u64| PromotionSpec {
            pipeline: "podinfo".into(),
            environment: environment.into(),
            sequence,
            ..PromotionSpec::default()
        };
        let failed = Promotion::new("b", spec("prod", 2));
        let bad = |name: &str, spec: Option<PromotionSpec>| Unreadable {
            metadata: Promotion::new(name, PromotionSpec::default()).metadata,
            spec,
            error: "why".into(),
        };
        for (bad, wanted) in [
            (bad("a", Some(spec("prod", 3))), true),
            (bad("c", Some(spec("prod", 2))), true),
            (bad("a", Some(spec("prod", 2))), false),
            (bad("c", Some(spec("prod", 1))), false),
            (bad("c", Some(spec("dev", 3))), false),
            (bad("c", None), true),
        ] {
            assert_eq!(may_have_replaced(&bad, &failed), wanted, "{bad:?}");
        }
        let mut elsewhere = bad("c", None);
        elsewhere.metadata.namespace = Some("other".into());
        assert!(!may_have_replaced(&elsewhere, &failed));
    }

    #[test]
    fn asking_twice_is_harmless() {
        let verdict = judged(json!({"phase": "Failed"}), json!("2026-11-21T10:00:00Z"));
        assert!(matches!(verdict, Verdict::Already(_)), "{verdict:?}");
    }
}
