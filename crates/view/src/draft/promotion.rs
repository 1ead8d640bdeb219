//! How revisions are promoted, for the whole pipeline and for an environment with its own rules.

use serde_json::{Value, json};

use super::entered::DraftDelivery;
use super::fields::{Fields, fields, set};

/// Returns the promotion of the pipeline, on top of the known one; `None` if environments are only shown.
pub(super) fn promotion(delivery: &DraftDelivery, mut known: Fields) -> Option<Fields> {
    if delivery.strategy.is_empty() {
        return None;
    }
    let text = delivery.min_ready_targets.trim();
    let ready = text.parse::<u32>().map_or_else(|_| json!(text), |count| json!(count));
    set(&mut known, "minReadyTargets", (!text.is_empty()).then_some(ready));
    let mut strategy = fields(known.get("strategy"));
    let settings = settings(delivery, fields(strategy.get(&delivery.strategy)));
    for other in ["pull-request", "commit", "notification", "webhook"] {
        strategy.remove(other);
    }
    strategy.insert(delivery.strategy.clone(), Value::Object(settings));
    known.insert("strategy".into(), Value::Object(strategy));
    Some(known)
}

/// Returns the settings of the strategy.
fn settings(delivery: &DraftDelivery, mut known: Fields) -> Fields {
    let is_set = |text: &str| (!text.is_empty()).then(|| json!(text));
    if delivery.strategy == "notification" {
        return known;
    }
    known.insert("url".into(), json!(delivery.url));
    // Required by the strategy `pull-request`, so that the preview has it also while it is empty.
    known.insert("secretRef".into(), json!({"name": delivery.secret}));
    match delivery.strategy.as_str() {
        "pull-request" => {
            known.insert("type".into(), json!(delivery.forge));
            set(&mut known, "baseBranch", is_set(&delivery.branch));
        }
        "commit" => set(&mut known, "branch", is_set(&delivery.branch)),
        _ => {}
    }
    known
}

/// Returns the promotion of an environment; `None` if that of the pipeline applies. `own` is its own one until now, and
/// `before` and `now` are those of the pipeline.
pub(super) fn own_promotion(
    approval: bool,
    own: Option<Value>,
    before: &Fields,
    now: Option<&Fields>,
) -> Option<Value> {
    let manual = |fields: &Fields| fields.get("manual") == Some(&Value::Bool(true));
    let mut own = match own {
        // It differs from the pipeline's in whether a person approves, and in nothing else.
        Some(Value::Object(own)) if without_manual(&own) == without_manual(before) => now?.clone(),
        Some(Value::Object(own)) => own,
        _ => now.filter(|now| manual(now) != approval)?.clone(),
    };
    set(&mut own, "manual", approval.then_some(Value::Bool(true)));
    (now != Some(&own)).then_some(Value::Object(own))
}

/// Returns the fields apart from whether a person approves.
fn without_manual(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields.remove("manual");
    fields
}
