//! `sluice retry`: requests another try of a promotion that failed, was rejected, or waits for its next attempt; or of
//! all that failed.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use sluice_api::lenient::{List, Unreadable};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion, PromotionSpec};
use sluice_view::change::{ChangeCheck, describe, retry};

use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::{self, PromotionArgs};
use crate::load;
use crate::name_completion::{environments, pipelines, promotions_and_pipelines};
use crate::object_argument;
use crate::objects;
use crate::promotion_change::{Changed, PromotionChange, apply, note_suspension, write};
use crate::terminal::{Io, Symbol};
use crate::wait::WaitFlags;

/// Arguments of `sluice retry`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What went wrong?
  sluice get promotions -A -o wide

  # Try it again: by the pipeline and the environment, or by the promotion's own name
  sluice retry podinfo --environment prod -n apps
  sluice retry podinfo-prod-5f1c9a -n apps

  # Try it again, and wait for the result
  sluice retry podinfo --environment prod -n apps --wait

  # Everything that failed: of one pipeline, into one environment, of some pipelines
  sluice retry --failed --pipeline podinfo -n apps
  sluice retry --failed --environment prod -A
  sluice retry --failed -l 'pipelines.weave.works/pipeline in (podinfo, search)' -A

A retry needs the verbs get, list, patch and retry on promotions.pipelines.weave.works, and watch with --wait. The \
ClusterRole sluice-editor has them. If a person rejected the promotion, a retry also needs the verb approve.

Exit codes with --wait: 0 if all promotions have succeeded, 8 if one has ended otherwise, 9 if the time is up, and 10 if \
one needs a person.")]
pub struct Retry {
    /// The promotion's name; or, together with --environment, the pipeline's
    #[arg(
        value_parser = object_argument::either,
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
        value_parser = object_argument::pipeline,
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
    wait: WaitFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Retry, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let Some(name) = &args.name else { return retry_failed(args, &connection, io).await };
    let which = PromotionArgs { name: name.clone(), environment: args.environment.clone() };
    let change = PromotionChange { check: &retry::check, spec: &request };
    let Changed { promotion, pipeline, applied } = apply(&connection, &which, None, &change, io).await?;
    if applied {
        confirm(&promotion, pipeline.as_ref(), io);
    }
    let suspended = pipeline.is_some_and(|pipeline| pipeline.spec.suspend);
    args.wait.until_ended(&connection, &[promotion], suspended, io).await
}

/// Retries each promotion that failed, and continues if one cannot be retried.
async fn retry_failed(args: &Retry, connection: &Connection, io: &mut Io<'_>) -> Outcome {
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    // The list is not limited to the labels: a later promotion without them also replaces an earlier one.
    let List { items, unreadable } =
        objects::list::<Promotion>(connection, namespace, &ListParams::default()).await?;
    let (pipeline, environment) = (args.pipeline.as_deref(), args.environment.as_deref());
    let mut meant = failed(items, pipeline, environment);
    let mut skipped: Vec<&Unreadable<PromotionSpec>> =
        unreadable.iter().filter(|bad| bad.may_be(|spec| is_meant(spec, pipeline, environment))).collect();
    if let Some(selector) = &args.selector {
        let labelled = labelled(connection, namespace, selector).await?;
        meant.retain(|promotion| labelled.contains(&promotion.uid()));
        skipped.retain(|bad| labelled.contains(&bad.metadata.uid));
    }
    objects::warn::<Promotion, _>(skipped.into_iter(), io);
    if meant.is_empty() {
        if let (Some(name), false) = (pipeline, args.all_namespaces) {
            load::check_place(connection, name, environment).await?;
        }
        io.note("no promotion has failed or waits for its next attempt");
        return Ok(());
    }
    let (mut first, mut refused, mut retried) = (None, 0, Vec::new());
    for promotion in meant {
        match retry_one(connection, &promotion, &unreadable, io).await {
            Ok(is_moving) => retried.extend(is_moving.then_some(promotion)),
            Err(failure) => {
                io.progress(Symbol::Failed, &format!("{}: {}", describe(&promotion), failure.message));
                refused += 1;
                first.get_or_insert(failure);
            }
        }
    }
    let waited = args.wait.until_ended(connection, &retried, false, io).await;
    match first {
        None => waited,
        Some(Failure { exit, hint, .. }) => {
            Err(Failure { exit, message: format!("{refused} of them could not be retried"), hint })
        }
    }
}

/// Retries a failed promotion. Returns true if it moves on now: nothing happens to a promotion of a suspended pipeline.
async fn retry_one(
    connection: &Connection,
    promotion: &Promotion,
    unreadable: &[Unreadable<PromotionSpec>],
    io: &mut Io<'_>,
) -> Outcome<bool> {
    let pipeline = find::pipeline_of(connection, promotion, io).await;
    let check = match unreadable.iter().find(|bad| may_have_replaced(bad, promotion)) {
        Some(bad) => ChangeCheck::Refuse(
            format!("{} may have replaced it, and cannot be read", bad.name()),
            Some(format!("to retry this one, name it: sluice retry {}", promotion.name_any())),
        ),
        None => retry::check(promotion, pipeline.as_ref()),
    };
    match check {
        ChangeCheck::Apply => match write(connection, promotion, request(promotion)).await {
            Ok(()) => {
                confirm(promotion, pipeline.as_ref(), io);
                Ok(pipeline.is_none_or(|pipeline| !pipeline.spec.suspend))
            }
            // The promotion has changed since it was read, so it may not be failed any more.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                Err(Failure::new(Exit::Error, "it changed meanwhile: look at it again"))
            }
            Err(error) => Err(connection.explain(error)),
        },
        ChangeCheck::NothingToDo(why) => {
            io.progress(Symbol::Done, &why);
            Ok(false)
        }
        ChangeCheck::Refuse(message, hint) => Err(Failure { exit: Exit::Refused, message, hint }),
    }
}

/// Returns the UIDs of the promotions with these labels.
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
        && environment.is_none_or(|wanted| spec.changes(wanted))
}

/// Returns true if an unreadable promotion may be a later one into the same environment (or target).
fn may_have_replaced(bad: &Unreadable<PromotionSpec>, promotion: &Promotion) -> bool {
    bad.metadata.namespace == promotion.metadata.namespace
        && bad.may_be(|spec| {
            (&spec.pipeline, spec.place()) == (&promotion.spec.pipeline, promotion.spec.place())
                && (spec.sequence, bad.name()) > promotion.order()
        })
}

/// Returns the promotions that failed or wait for their next attempt, unless a later one into the same environment (or
/// target) has replaced them.
fn failed(all: Vec<Promotion>, pipeline: Option<&str>, environment: Option<&str>) -> Vec<Promotion> {
    let lane = |p: &Promotion| (p.namespace(), p.spec.pipeline.clone(), p.spec.place());
    let mut newest = BTreeMap::new();
    for promotion in &all {
        let order = newest.entry(lane(promotion)).or_insert_with(|| promotion.current_order());
        *order = promotion.current_order().max(*order);
    }
    let is_newest = |p: &Promotion| newest.get(&lane(p)) == Some(&p.current_order());
    let has_failed = |p: &Promotion| {
        let waits = p.status.as_ref().is_some_and(|s| s.next_attempt.is_some());
        p.phase() == Phase::Failed || (p.phase() == Phase::Promoting && waits)
    };
    let keep: Vec<bool> = all
        .iter()
        .map(|p| is_meant(&p.spec, pipeline, environment) && has_failed(p) && is_newest(p))
        .collect();
    all.into_iter().zip(keep).filter_map(|(promotion, keep)| keep.then_some(promotion)).collect()
}

/// Returns the request for another try, now.
fn request(promotion: &Promotion) -> Value {
    retry::spec(promotion, Timestamp::now())
}

/// Prints that another try was requested, and what it waits for.
fn confirm(promotion: &Promotion, pipeline: Option<&Pipeline>, io: &mut Io<'_>) {
    io.progress(Symbol::Done, &format!("requested another try of {}", describe(promotion)));
    let Some(pipeline) = pipeline else { return };
    if note_suspension(Some(pipeline), io) {
        return;
    }
    let environment = pipeline.spec.environments.iter().find(|e| e.name == promotion.spec.environment);
    let manual = environment.and_then(|e| pipeline.spec.policy(e)).is_some_and(|policy| policy.manual);
    if manual && promotion.phase() != Phase::Promoting {
        let namespace = promotion.namespace().unwrap_or_default();
        let note = format!("it needs a new approval: sluice approve -n {namespace} {}", promotion.name_any());
        io.progress(Symbol::Waiting, &note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_later_promotion_may_have_replaced_a_failed_one() {
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

    /// The earlier revision became the newest one again.
    #[test]
    fn a_failing_promotion_that_started_again_is_retried() {
        let promotion = |sequence: u64, status: serde_json::Value| -> Promotion {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": format!("p-{sequence}"), "namespace": "apps"},
                "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}, "sequence": sequence},
                "status": status,
            }))
            .unwrap()
        };
        let waits = serde_json::json!({"phase": "Promoting", "nextAttempt": "2026-11-21T10:00:00Z"});
        let all = vec![promotion(1, waits), promotion(2, serde_json::json!({"phase": "Superseded"}))];
        let names: Vec<_> = failed(all, None, None).iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["p-1"]);
    }
}
