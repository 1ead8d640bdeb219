//! How revisions are promoted into an environment: when, and by which strategy.

use jiff::SignedDuration;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::cross_field_rules;
use super::strategy::Strategy;

/// How revisions are promoted into an environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = cross_field_rules::pull_request_is_not_of_an_older_form(),
    validation = cross_field_rules::strategy_has_a_level_of_its_own(),
    validation = cross_field_rules::webhook_is_not_of_an_older_form(),
    validation = cross_field_rules::promotion_has_a_strategy()
)]
pub struct PromotionPolicy {
    /// True if a person must approve each revision before it is promoted into the environment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub manual: bool,
    /// How many targets of each predecessor must have run the revision healthily:
    /// a number, or a percentage such as `100%`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent")]
    pub min_ready_targets: Option<IntOrPercent>,
    /// Promote a revision even if the environment runs a newer one. Default is to wait for an approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_downgrade: bool,
    /// How long a delivered revision may take to run healthily before its promotion counts as
    /// Failed, as a duration such as `30m`. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$') && self.matches('[1-9]')").message("timeout is a duration such as 30m or 1h30m: hours, minutes and seconds in this order, and more than none"))]
    pub timeout: Option<String>,
    /// How a revision is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// An older form. The API server rejects it and says what to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "older_pull_request")]
    pub pull_request: Option<serde_json::Value>,
    /// An older form. The API server rejects it and says what to write.
    #[serde(default, rename = "pull-request", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "older_pull_request")]
    pub pull_request_without_strategy: Option<serde_json::Value>,
    /// An older form. The API server rejects it and says what to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "older_notification")]
    pub notification: Option<serde_json::Value>,
    /// An older form. The API server rejects it and says what to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "older_webhook")]
    pub webhook: Option<serde_json::Value>,
}

/// How long a delivered revision may take to run healthily, if the policy does not say it.
const DEFAULT_TIMEOUT: SignedDuration = SignedDuration::from_mins(30);

impl PromotionPolicy {
    /// Returns how long a delivered revision may take to run healthily before its promotion fails.
    pub fn timeout(&self) -> SignedDuration {
        self.timeout.as_ref().and_then(|timeout| timeout.parse().ok()).unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Returns the Secret with the keys that sign calls.
    pub fn secret(&self) -> Option<&str> {
        self.strategy.as_ref()?.secret_ref.as_ref().map(|secret| secret.name.as_str())
    }
}

/// A count of targets, absolute or as a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// A number of targets.
    Count(u32),
    /// A percentage of the targets, rounded up, with `%` at the end.
    Percent(String),
}

fn int_or_percent(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 && self <= 128 : self.matches('^(100|[1-9][0-9]?)%$')",
            "message": "minReadyTargets is a number from 1 to 128, or a percentage from 1% to 100%"
        }]
    })
}

/// The description of each field of an older form.
const OLDER_FIELD: &str = "A field of an older form.";

/// The fields of an older form are named, so that the API server can compare them: it accepts a write of a stored object
/// that keeps the older form, such as one of its status. It compares no fields that the schema does not name
/// (`CachedDeepEqual` of apiextensions-apiserver).
fn older_form(fields: &[&str], secret: serde_json::Value) -> schemars::Schema {
    let text = || serde_json::json!({"type": "string", "description": OLDER_FIELD});
    let of_text = fields.iter().map(|field| (field.to_string(), text()));
    let secret = std::iter::once(("secretRef".to_string(), secret));
    let properties: serde_json::Map<String, serde_json::Value> = of_text.chain(secret).collect();
    schemars::json_schema!({ "type": "object", "properties": properties })
}

fn older_pull_request(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    older_form(&["type", "url", "branch", "baseBranch"], any_secret_reference())
}

fn older_webhook(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    older_form(&["url"], any_secret_reference())
}

fn older_notification(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object" })
}

/// A Secret by its name, or as an object with the name.
fn any_secret_reference() -> serde_json::Value {
    serde_json::json!({
        "x-kubernetes-preserve-unknown-fields": true,
        "description": OLDER_FIELD,
        "properties": { "name": { "type": "string", "description": OLDER_FIELD } },
    })
}
