//! `sluice retry`: asks for another try of a promotion that failed, was rejected, or waits for its
//! next attempt.

use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;

use crate::approve::{PATIENCE, Verdict, change, said};
use crate::connect::Connect;
use crate::exit::Outcome;
use crate::find::{Which, phase};
use crate::sign::{Io, Sign};

/// Arguments of `sluice retry`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What went wrong?
  sluice get promotions -A -o wide

  # Try it again: by the pipeline and the environment, or by the promotion's own name
  sluice retry podinfo --environment prod -n apps
  sluice retry podinfo-prod-5f1c9a -n apps")]
pub struct Retry {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: &Retry, io: &mut Io<'_>) -> Outcome {
    let connection = args.connect.open(Some(PATIENCE))?;
    let fits = |p: &Promotion| judge(p) == Verdict::Go;
    let token = json!({"retry": Timestamp::now().to_string()});
    if let Some(promotion) = change(&connection, &args.which, fits, judge, &token, io).await? {
        let spec = &promotion.spec;
        let what =
            format!("asked for another try of {} {} into {}", spec.pipeline, spec.revision, spec.place());
        io.tell(Sign::Done, &what);
    }
    Ok(())
}

fn judge(promotion: &Promotion) -> Verdict {
    let (spec, at) = (&promotion.spec, phase(promotion));
    let what = format!("{} {} into {}", spec.pipeline, spec.revision, spec.place());
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
        judge(&serde_json::from_value(promotion).unwrap())
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
    fn asking_twice_is_harmless() {
        let verdict = judged(json!({"phase": "Failed"}), json!("2026-11-21T10:00:00Z"));
        assert!(matches!(verdict, Verdict::Already(_)), "{verdict:?}");
    }
}
