//! Validates an object by the definitions in the binary as an API server does: types, fields, limits and rules.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sluice_core::nearest::nearest;

use super::cel_rule::holds;

/// A problem of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SchemaProblem {
    /// The field, as `spec.environments[0].name`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// The message about a field that is not there.
pub(super) const MISSING: &str = "is required";

impl SchemaProblem {
    /// Returns the problem of a field that is not there.
    pub(crate) fn missing(path: impl Into<String>) -> SchemaProblem {
        SchemaProblem { path: path.into(), message: MISSING.into() }
    }

    /// Whether the field is not there.
    pub fn is_missing(&self) -> bool {
        self.message == MISSING
    }
}

/// Returns the problems for which an API server refuses a value.
pub(super) fn problems(schema: &JSONSchemaProps, value: &Value) -> Vec<SchemaProblem> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

/// Adds the problems of a value and of its fields or items.
fn check(schema: &JSONSchemaProps, value: &Value, path: &str, problems: &mut Vec<SchemaProblem>) {
    // An API server drops nulls of fields with a default, and reports nulls of required fields as missing. It drops other
    // nulls from what is created, and refuses them in what is applied, as Flux does.
    if value.is_null() {
        if schema.nullable != Some(true) && schema.default.is_none() {
            let of_type = schema.type_.as_deref().unwrap_or("another");
            problems.push(SchemaProblem {
                path: path.into(),
                message: format!("is null: leave it out, or write a value of type {of_type}"),
            });
        }
        return;
    }
    let shape = shape(schema, value);
    if let Some(message) = shape {
        problems.push(SchemaProblem { path: path.into(), message });
        return;
    }
    match value {
        Value::Object(fields) => {
            let is_missing = |name: &&String| fields.get(*name).is_none_or(Value::is_null);
            for name in schema.required.iter().flatten().filter(is_missing) {
                problems.push(SchemaProblem::missing(step(path, name)));
            }
            let is_required = |name: &String| schema.required.iter().flatten().any(|one| one == name);
            for (name, field) in fields.iter().filter(|(name, field)| !field.is_null() || !is_required(name))
            {
                check_field(schema, name, field, path, problems);
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check(schema, item, &format!("{path}[{at}]"), problems);
                }
            }
        }
        _ => {}
    }
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        // A rule that cannot be evaluated here is ignored.
        if holds(&rule.rule, value) == Ok(false) {
            let message = rule.message.clone().unwrap_or_else(|| format!("breaks the rule {}", rule.rule));
            problems.push(SchemaProblem { path: path.into(), message });
        }
    }
}

/// Adds the problems of one field of an object.
fn check_field(
    schema: &JSONSchemaProps,
    name: &str,
    field: &Value,
    path: &str,
    problems: &mut Vec<SchemaProblem>,
) {
    // All objects have these fields, and no definition lists them.
    if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name) {
        return;
    }
    let path = step(path, name);
    let known = schema.properties.as_ref().and_then(|properties| properties.get(name));
    match (known, &schema.additional_properties) {
        (Some(known), _) => check(known, field, &path, problems),
        (None, Some(JSONSchemaPropsOrBool::Schema(any))) => check(any, field, &path, problems),
        (None, _)
            if schema.properties.is_some() && schema.x_kubernetes_preserve_unknown_fields != Some(true) =>
        {
            let known = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
            problems.push(SchemaProblem { path, message: unknown(name, known) });
        }
        _ => {}
    }
}

/// Returns the message for a field that the definition does not have. `kubectl apply` and Flux refuse it.
pub(super) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(known) => format!("unknown field (did you mean {known}?)"),
        None => "unknown field".into(),
    }
}

fn step(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// Returns the problem of a value without regard to its fields or items.
fn shape(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_string() && !value.is_i64()).then(|| "is a number or a text".into());
    }
    let fits = match schema.type_.as_deref() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        _ => true,
    };
    if !fits {
        let of_type = schema.type_.as_deref().unwrap_or_default();
        // `"yes"` is a text. Without quotes, `yes` was read as a boolean, as kubectl reads it.
        let hint =
            (of_type == "boolean" && value.is_string()).then_some("; write true or false, without quotes");
        return Some(format!("must be of type {of_type}{}", hint.unwrap_or_default()));
    }
    let length = value.as_str().map(|text| i64::try_from(text.chars().count()).unwrap_or(i64::MAX));
    let count = value.as_array().map(|items| i64::try_from(items.len()).unwrap_or(i64::MAX));
    let below = |length: Option<i64>, least: Option<i64>| length.zip(least).filter(|(n, least)| n < least);
    let above = |length: Option<i64>, most: Option<i64>| length.zip(most).filter(|(n, most)| n > most);
    if let Some((_, least)) = below(length, schema.min_length) {
        return Some(format!("must have at least {least} characters"));
    }
    if let Some((_, most)) = above(length, schema.max_length) {
        return Some(format!("must have at most {most} characters"));
    }
    if let Some((_, least)) = below(count, schema.min_items) {
        return Some(format!("must have at least {least} items"));
    }
    if let Some((n, most)) = above(count, schema.max_items) {
        return Some(format!("has {n} items; at most {most} are allowed"));
    }
    let number = value.as_f64();
    if number.zip(schema.minimum).is_some_and(|(n, least)| n < least)
        || number.zip(schema.maximum).is_some_and(|(n, most)| n > most)
    {
        return Some("is out of range".into());
    }
    let choices: Option<Vec<&Value>> =
        schema.enum_.as_ref().map(|all| all.iter().map(|one| &one.0).collect());
    if let Some(choices) = choices.filter(|choices| !choices.contains(&value)) {
        let choices = choices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Some(format!("{value} is not supported; supported values: {choices}"));
    }
    let pattern = schema.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    match (pattern, value.as_str()) {
        (Some(pattern), Some(text)) if !pattern.is_match(text) => {
            Some("does not have the required form".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> JSONSchemaProps {
        let crd = sluice_api::all_crds().remove(0);
        crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn each_problem_is_found_with_the_message_of_the_rule() {
        let environment = |name: &str| json!({"name": name, "targets": [{"namespace": "apps"}]});
        let good = json!({"spec": {"environments": [environment("dev"), environment("prod")],
            "promotion": {"strategy": {"notification": {}}}}});
        assert_eq!(problems(&schema(), &good), []);
        let commit = |update: Value| json!({"commit": {"url": "https://h/a", "update": [update]}});
        for (pointer, value, path, words) in [
            (
                "/spec/environments/1/name",
                json!("dev"),
                "spec.environments",
                "two environments have the same name",
            ),
            (
                "/spec/environments/1/name",
                json!("Prod"),
                "spec.environments[1].name",
                "made of lower-case letters",
            ),
            ("/spec/environments/1/name", json!(7), "spec.environments[1].name", "must be of type string"),
            ("/spec/environments/1", json!({"name": "x"}), "spec.environments[1].targets", "is required"),
            ("/spec/environments/0/targets", json!([]), "spec.environments[0].targets", "at least 1 items"),
            (
                "/spec/environments/0",
                json!({"name": "dev", "targets": [{"namespace": "a"}], "after": ["prod"]}),
                "spec.environments",
                "after may only name",
            ),
            ("/spec/promotion/strategy", json!({}), "spec.promotion.strategy", "exactly one of"),
            (
                "/spec/promotion",
                json!({"webhook": {}, "strategy": {"webhook": {"url": "x"}}}),
                "spec.promotion",
                "is an older form",
            ),
            (
                "/spec/promotion",
                json!({"timeout": "1d", "strategy": {"notification": {}}}),
                "spec.promotion.timeout",
                "such as 30m",
            ),
            (
                "/spec/promotion",
                json!({"minReadyTargets": "101%", "strategy": {"notification": {}}}),
                "spec.promotion.minReadyTargets",
                "a number from 1 to 128",
            ),
            (
                "/spec/promotion/strategy",
                json!({"pull-request": {"type": "x", "url": "y", "secretRef": {"name": "z"}}}),
                "spec.promotion.strategy.pull-request.type",
                "\"x\" is not supported; supported values: \"github\"",
            ),
            (
                "/spec/promotion/strategy",
                commit(json!({"path": "{a}", "field": "a"})),
                "spec.promotion.strategy.commit.update[0].path",
                "may have the placeholders",
            ),
            (
                "/spec/promotion/strategy",
                commit(json!({"path": "a", "field": "a[b]"})),
                "spec.promotion.strategy.commit.update[0].field",
                "a field is a path",
            ),
        ] {
            let mut object = good.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            let found = problems(&schema(), &object);
            let is_there = found.iter().any(|p| p.path == path && p.message.contains(words));
            assert!(is_there, "{path}: {words}: {found:?}");
        }
        let mut odd = good;
        odd["spec"]["enviroments"] = json!([]);
        let message = "unknown field (did you mean environments?)".into();
        assert_eq!(problems(&schema(), &odd), [SchemaProblem { path: "spec.enviroments".into(), message }]);
    }
}
