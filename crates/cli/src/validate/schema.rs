//! Judges an object by the definitions in the binary, as far as that goes without an API server: its
//! shape, and the rules whose sense is known here. What cannot be judged passes: nothing is refused
//! that the server would take.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

/// Something that is wrong with an object, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The field, as `spec.environments[0].name`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What the server refuses.
    pub errors: Vec<Problem>,
    /// What the server drops in silence, and kubectl refuses.
    pub warnings: Vec<Problem>,
}

/// Judges a value by its schema.
pub(crate) fn judge(schema: &JSONSchemaProps, value: &Value) -> Verdict {
    let mut verdict = Verdict::default();
    look(schema, value, "", &mut verdict);
    verdict
}

/// Makes of a value what kubectl reads, which knows an older YAML: `suspend: yes` is true.
pub(crate) fn settle(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(schema) = schema.properties.as_ref().and_then(|properties| properties.get(name)) {
                    settle(schema, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                items.iter_mut().for_each(|item| settle(schema, item));
            }
        }
        Value::String(text) if schema.type_.as_deref() == Some("boolean") => {
            let is = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
            if is(&["y", "yes", "on", "true"]) {
                *value = true.into();
            } else if is(&["n", "no", "off", "false"]) {
                *value = false.into();
            }
        }
        _ => {}
    }
}

fn look(schema: &JSONSchemaProps, value: &Value, path: &str, verdict: &mut Verdict) {
    // The server drops nulls where there is a default, and says the rest itself.
    if value.is_null() {
        return;
    }
    let shape = shape(schema, value);
    if let Some(message) = shape {
        verdict.errors.push(Problem { path: path.into(), message });
        return;
    }
    match value {
        Value::Object(fields) => {
            for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
                let message = "is required".into();
                verdict.errors.push(Problem { path: step(path, name), message });
            }
            for (name, field) in fields {
                look_into(schema, name, field, path, verdict);
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    look(schema, item, &format!("{path}[{at}]"), verdict);
                }
            }
        }
        _ => {}
    }
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        if holds(&rule.rule, value) == Some(false) {
            let message = rule.message.clone().unwrap_or_else(|| format!("breaks the rule {}", rule.rule));
            verdict.errors.push(Problem { path: path.into(), message });
        }
    }
}

fn look_into(schema: &JSONSchemaProps, name: &str, field: &Value, path: &str, verdict: &mut Verdict) {
    // Every object has them, and no definition lists them.
    if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name) {
        return;
    }
    let path = step(path, name);
    let known = schema.properties.as_ref().and_then(|properties| properties.get(name));
    match (known, &schema.additional_properties) {
        (Some(known), _) => look(known, field, &path, verdict),
        (None, Some(JSONSchemaPropsOrBool::Schema(any))) => look(any, field, &path, verdict),
        (None, _)
            if schema.properties.is_some() && schema.x_kubernetes_preserve_unknown_fields != Some(true) =>
        {
            let message = "is not known, and dropped".into();
            verdict.warnings.push(Problem { path, message });
        }
        _ => {}
    }
}

fn step(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// What is wrong with the value itself, whatever is in it.
fn shape(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_string() && !value.is_i64()).then(|| "is a number or a text".into());
    }
    let fits = match schema.type_.as_deref() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_number() || value.is_string(),
        _ => true,
    };
    if !fits {
        return Some(format!("must be of type {}", schema.type_.as_deref().unwrap_or_default()));
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
        return Some(format!("has {n} items, and {most} are the most"));
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
        return Some(format!("{value} is not supported; these are: {choices}"));
    }
    let pattern = schema.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    match (pattern, value.as_str()) {
        (Some(pattern), Some(text)) if !pattern.is_match(text) => Some("is not of its form".into()),
        _ => None,
    }
}

/// Whether a rule of the definitions holds; `None` where its sense is not known here.
fn holds(rule: &str, value: &Value) -> Option<bool> {
    let known = RULES.iter().find(|(text, _)| *text == rule);
    known.map(|(_, holds)| holds(value)).or_else(|| matches(rule, value.as_str()?))
}

/// Rules that are made of nothing but `self.matches('...')`.
fn matches(rule: &str, text: &str) -> Option<bool> {
    let (first, rest) = rule.split_once(" && self.matches(").map_or((rule, None), |(a, b)| (a, Some(b)));
    let pattern = |rest: &str| {
        let literal = rest.strip_prefix('\'')?.strip_suffix("')")?;
        Regex::new(&literal.replace("\\\\", "\\").replace("\\'", "'")).ok()
    };
    let one = pattern(first.strip_prefix("self.matches(")?)?.is_match(text);
    match rest {
        Some(rest) => Some(one && pattern(rest)?.is_match(text)),
        None => Some(one),
    }
}

/// A rule as it stands in the definitions, and what it says.
type Rule = (&'static str, fn(&Value) -> bool);

const RULES: &[Rule] = &[
    (
        "[has(self.pull__dash__request), has(self.commit), has(self.notification), has(self.webhook)].filter(x, x).size() == 1",
        |v| count(v, &["pull-request", "commit", "notification", "webhook"]) == 1,
    ),
    ("self.all(e, self.exists_one(x, x.name == e.name))", |v| are_apart(v)),
    ("self.all(t, !has(t.name) || self.exists_one(x, has(x.name) && x.name == t.name))", |v| are_apart(v)),
    (
        "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].all(i, i >= self.size() || !has(self[i].after) || self[i].after.all(a, [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].exists(j, j < i && self[j].name == a)))",
        come_before,
    ),
    (
        "self.all(t, t in ['chart', 'app', 'images', 'tag', 'digest', 'source'] || (t.startsWith('image:') && t.size() > 6))",
        |v| items(v).iter().all(|t| is_facet(t) || *t == "images"),
    ),
    (
        "self in ['chart', 'app', 'tag', 'digest', 'source'] || (self.startsWith('image:') && self.size() > 6)",
        is_facet,
    ),
    ("!has(self.pullRequest)", |v| count(v, &["pullRequest"]) == 0),
    ("!has(self.pull__dash__request) && !has(self.notification)", |v| {
        count(v, &["pull-request", "notification"]) == 0
    }),
    ("!has(self.webhook)", |v| count(v, &["webhook"]) == 0),
    (
        "has(self.strategy) || has(self.pullRequest) || has(self.pull__dash__request) || has(self.notification) || has(self.webhook)",
        |v| count(v, &["strategy", "pullRequest", "pull-request", "notification", "webhook"]) > 0,
    ),
    ("type(self) == int ? self >= 1 && self <= 128 : self.matches('^(100|[1-9][0-9]?)%$')", |v| {
        match v.as_str() {
            Some(text) => text.strip_suffix('%').is_some_and(|n| {
                !n.starts_with(['0', '+']) && n.parse::<u32>().is_ok_and(|n| (1..=100).contains(&n))
            }),
            None => v.as_i64().is_some_and(|n| (1..=128).contains(&n)),
        }
    }),
    (
        "!self.replace('{environment}', '').replace('{target}', '').replace('{cluster}', '').replace('{namespace}', '').matches('[{}]')",
        |v| {
            let known = ["{environment}", "{target}", "{cluster}", "{namespace}"];
            let text = v.as_str().unwrap_or_default().to_string();
            !known.iter().fold(text, |text, name| text.replace(name, "")).contains(['{', '}'])
        },
    ),
];

fn count(value: &Value, names: &[&str]) -> usize {
    names.iter().filter(|name| value.get(**name).is_some_and(|field| !field.is_null())).count()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_facet(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<sluice_core::Facet>().is_ok())
}

/// Whether no two of them have the same name.
fn are_apart(value: &Value) -> bool {
    let names: Vec<&Value> = items(value).iter().filter_map(|item| item.get("name")).collect();
    names.iter().enumerate().all(|(at, name)| !names[..at].contains(name))
}

fn come_before(value: &Value) -> bool {
    let environments = items(value);
    environments.iter().enumerate().all(|(at, environment)| {
        let before = |name: &Value| environments[..at].iter().any(|e| e.get("name") == Some(name));
        environment.get("after").is_none_or(|after| items(after).iter().all(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> JSONSchemaProps {
        let crd = sluice_api::all_crds().remove(0);
        crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
    }

    fn rules(schema: &JSONSchemaProps) -> Vec<String> {
        let own = schema.x_kubernetes_validations.iter().flatten().map(|rule| rule.rule.clone());
        let fields = schema.properties.iter().flatten().flat_map(|(_, field)| rules(field));
        let items = match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => rules(items),
            _ => Vec::new(),
        };
        own.chain(fields).chain(items).collect()
    }

    #[test]
    fn every_rule_that_is_known_here_is_one_of_the_definitions() {
        let all = rules(&schema());
        for (rule, _) in RULES {
            assert!(all.iter().any(|r| r == rule), "no definition has this rule any more: {rule}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn what_the_server_refuses_is_found_with_its_own_words() {
        let environment = |name: &str| json!({"name": name, "targets": [{"namespace": "apps"}]});
        let good = json!({"spec": {"environments": [environment("dev"), environment("prod")],
            "promotion": {"strategy": {"notification": {}}}}});
        let verdict = judge(&schema(), &good);
        assert!(verdict.errors.is_empty() && verdict.warnings.is_empty(), "{verdict:?}");
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
                "\"x\" is not supported; these are: \"github\"",
            ),
            (
                "/spec/promotion/strategy",
                commit(json!({"path": "{a}", "field": "a"})),
                "spec.promotion.strategy.commit.update[0].path",
                "knows the placeholders",
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
            let verdict = judge(&schema(), &object);
            let found = verdict.errors.iter().any(|p| p.path == path && p.message.contains(words));
            assert!(found, "{path}: {words}: {verdict:?}");
        }
        let mut odd = good;
        odd["spec"]["enviroments"] = json!([]);
        assert_eq!(judge(&schema(), &odd).warnings[0].path, "spec.enviroments");
    }
}
