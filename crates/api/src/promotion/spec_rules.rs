//! The validation rules for the spec of a Promotion: all fields are immutable except those that people set, and each of
//! these is set once for each try.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};

/// The fields of `Promotion.spec` that never change.
const IMMUTABLE: [&str; 11] = [
    "pipeline",
    "environment",
    "target",
    "revision",
    "facets",
    "run",
    "arrival",
    "sequence",
    "replaces",
    "evidence",
    "trigger",
];

/// A rough pattern of a time such as `2026-11-21T10:00:00.5Z`; `timestamp()` refuses other texts. The cost of a rule grows
/// with the length of its expression.
const TIME: &str = "'^[0-9]{4}-[0-9-]+T.+(Z|:[0-9]{2})$'";
/// A time before all requests: a comparison with it refuses texts that are no time.
const PAST: &str = "timestamp('2000-01-01T00:00:00Z')";

/// A request dated at this time or later does not bind the next one. Otherwise a user with the right to retry could
/// write a time so far ahead that no later request is valid.
const FAR: &str = "timestamp('2100-01-01T00:00:00Z')";

/// Adds the rules to the schema of a Promotion. They are transition rules: they do not apply to new objects, and objects
/// that earlier versions stored stay valid.
pub(crate) fn add(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations = Some([of_approval(), of_rejection()].concat());
    let spec = schema.properties.as_mut().and_then(|properties| properties.get_mut("spec"));
    if let Some(spec) = spec {
        spec.x_kubernetes_validations = Some(of_spec());
    }
}

fn rule(rule: String, message: &str) -> ValidationRule {
    ValidationRule { rule, message: Some(message.into()), ..ValidationRule::default() }
}

/// Returns the rules that only read the spec.
fn of_spec() -> Vec<ValidationRule> {
    // The presence is compared first: an optional field may neither be added nor removed.
    let kept = |field: &&str| {
        format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        )
    };
    let immutable = IMMUTABLE.iter().map(kept).collect::<Vec<_>>().join(" && ");
    let unchanged = "has(oldSelf.retry) && has(self.retry) && self.retry == oldSelf.retry";
    vec![
        rule(
            immutable,
            "a Promotion records what Sluice decided: only spec.approval, spec.rejection and spec.retry can be set; \
             to promote something else, bring it into the environment before this one",
        ),
        rule(
            format!(
                "!has(self.retry) || ({unchanged}) || (self.retry.matches({TIME}) && timestamp(self.retry) > {PAST})"
            ),
            "spec.retry is the time of the request: write one such as 2026-11-21T10:00:00Z, or use sluice retry",
        ),
        // Earlier versions also stored texts that are no time.
        rule(
            format!(
                "!has(oldSelf.retry) || ({unchanged}) || (has(self.retry) && (!oldSelf.retry.matches({TIME}) || \
                 timestamp(self.retry) > timestamp(oldSelf.retry) || timestamp(oldSelf.retry) >= {FAR}))"
            ),
            "spec.retry only moves forward: write a later time than the one that is there, or use sluice retry",
        ),
    ]
}

/// The expression for the number of retries in the status, or 0.
const RETRIES: &str = "(has(self.status) && has(self.status.retries) ? self.status.retries : 0)";

/// Returns the expression for the number of retries that a field of the spec names.
fn retries_of(object: &str, field: &str) -> String {
    format!("(has({object}.spec.{field}.retries) ? {object}.spec.{field}.retries : 0)")
}

/// Returns the expression that a field has not changed.
fn same(field: &str) -> String {
    format!(
        "(has(oldSelf.spec.{field}) && has(self.spec.{field}) && self.spec.{field} == oldSelf.spec.{field})"
    )
}

/// Returns the expression that a field names a later try than before.
fn later(field: &str) -> String {
    format!("(has(self.spec.{field}) && {} > {})", retries_of("self", field), retries_of("oldSelf", field))
}

/// Returns the expression that a new value of a field meets a condition.
fn new(field: &str, fits: &str) -> String {
    format!("!has(self.spec.{field}) || {} || {fits}", same(field))
}

/// Returns the expression that a field names the current try.
fn this_try(field: &str) -> String {
    format!("{} == {RETRIES}", retries_of("self", field))
}

/// Returns the rules for approvals, which compare the spec with the status.
fn of_approval() -> Vec<ValidationRule> {
    // Earlier versions did not count tries: they kept the approval that does not count any more.
    let spent = "(has(self.status) && has(self.status.spentApproval) && has(self.spec.approval) && \
                 oldSelf.spec.approval.by == self.status.spentApproval.by && has(oldSelf.spec.approval.at) && \
                 has(self.status.spentApproval.at) && oldSelf.spec.approval.at == self.status.spentApproval.at)";
    let revision = "(has(self.spec.approval.revision) && self.spec.approval.revision == self.spec.revision)";
    vec![
        rule(
            format!(
                "!has(oldSelf.spec.approval) || {} || {} || {spent}",
                same("approval"),
                later("approval")
            ),
            "an approval is given once, and cannot be changed or taken back: to stop the promotion, reject it",
        ),
        rule(
            new("approval", revision),
            "spec.approval.revision must be spec.revision: approve the revision that you have looked at",
        ),
        rule(
            new("approval", &this_try("approval")),
            "spec.approval.retries must be status.retries, which is 0 if absent: a promotion that was retried needs \
             a new approval",
        ),
        rule(
            new("approval", "!has(self.spec.approval.at)"),
            "leave out spec.approval.at: the controller records the time in status.approval",
        ),
    ]
}

/// Returns the rules for rejections, which compare the spec with the status.
fn of_rejection() -> Vec<ValidationRule> {
    // A superseded or cancelled promotion starts again if its revision is the newest again.
    let over = "has(self.status) && has(self.status.phase) && self.status.phase in \
                ['Delivered', 'Succeeded', 'Rejected']";
    vec![
        rule(
            format!("!has(oldSelf.spec.rejection) || {} || {}", same("rejection"), later("rejection")),
            "a rejection is given once, and cannot be changed or taken back: to promote the revision after all, \
             retry it",
        ),
        rule(
            new("rejection", "self.spec.rejection.revision == self.spec.revision"),
            "spec.rejection.revision must be spec.revision: reject the revision that you have looked at",
        ),
        rule(
            new("rejection", &this_try("rejection")),
            "spec.rejection.retries must be status.retries, which is 0 if absent",
        ),
        rule(
            new("rejection", &format!("!({over})")),
            "this promotion cannot be rejected any more: it is rejected, or its revision is delivered; take a delivered \
             revision back in git",
        ),
    ]
}
