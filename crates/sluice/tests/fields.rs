//! `docs/reference/fields.md` is what the CRDs say. `UPDATE=1` writes it.

#[path = "support/reference_files.rs"]
mod reference_files;

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::{Result, ensure};
use reference_files::are_up_to_date;
use serde_json::Value;

const HEAD: &str = "<!-- Generated from the CRDs: make reference -->

# Fields of Pipeline and Promotion

After this page you know every field, with its type and its rules. People write `spec` of a Pipeline, and in `spec` of a
Promotion only `approval`, `rejection` and `retry` ([approvals](../approvals.md)). Sluice writes everything else.
[Examples](../../examples/README.md) are Pipelines to start from. `kubectl explain pipeline.spec` shows the same fields.

An environment with a `promotion` of its own does not inherit anything from the `promotion` of the Pipeline.
";

/// Writes the fields of an object and of the objects in it.
struct Fields {
    page: String,
    /// The path at which each object was described.
    described: HashMap<String, String>,
}

impl Fields {
    /// Describes an object at a path, and then the objects in it.
    fn describe(&mut self, path: &str, schema: &Value) -> Result<()> {
        writeln!(self.page, "\n## {path}\n\n{}\n", text(&schema["description"]))?;
        let rules = rules_of(schema);
        if !rules.is_empty() {
            writeln!(self.page, "Rules: {}.\n", rules.join("; "))?;
        }
        writeln!(self.page, "| field | type | meaning |\n| --- | --- | --- |")?;
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut inside = Vec::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let (kind, object) = kind(field);
            let at = format!("{path}.{name}{}", kind.suffix);
            // What the API server refuses needs no description of its fields.
            let is_described = |object: &&Value| {
                object["properties"].is_object()
                    && !text(&object["description"]).starts_with("An older form.")
            };
            let link = match object.filter(is_described) {
                None => String::new(),
                Some(object) => {
                    let key = serde_json::to_string(&object["properties"])?;
                    let known = self.described.entry(key).or_insert_with(|| {
                        inside.push((at.clone(), object.clone()));
                        at.clone()
                    });
                    format!(", see [{known}](#{})", anchor(known))
                }
            };
            let mark = if required.contains(&name.as_str()) { " (required)" } else { "" };
            let rules = rules_of(field);
            let rules =
                if rules.is_empty() { String::new() } else { format!(" Rules: {}.", rules.join("; ")) };
            writeln!(
                self.page,
                "| `{name}` | {}{link}{mark} | {}{rules} |",
                kind.name,
                text(&field["description"]).replace('|', "\\|")
            )?;
        }
        for (path, object) in inside {
            self.describe(&path, &object)?;
        }
        Ok(())
    }
}

/// How a type is shown.
struct Kind {
    name: String,
    /// What follows the name of the field in the paths of the fields inside.
    suffix: &'static str,
}

/// Returns the type of a field, and the object in it.
fn kind(field: &Value) -> (Kind, Option<&Value>) {
    let values: Vec<String> = field["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| !v.is_null())
        .map(|v| format!("`{}`", text(v)))
        .collect();
    if !values.is_empty() {
        return (Kind { name: values.join(", "), suffix: "" }, None);
    }
    match field["type"].as_str() {
        Some("array") => {
            let (inner, object) = kind(&field["items"]);
            (Kind { name: format!("list of {}", inner.name), suffix: "[]" }, object)
        }
        Some("object") if field["additionalProperties"].is_object() => {
            let (inner, object) = kind(&field["additionalProperties"]);
            (Kind { name: format!("map to {}", inner.name), suffix: "{}" }, object)
        }
        Some("object") => (Kind { name: "object".into(), suffix: "" }, Some(field)),
        Some(plain) => (Kind { name: plain.into(), suffix: "" }, None),
        None => (Kind { name: "any".into(), suffix: "" }, None),
    }
}

/// Returns what the API server answers if a value breaks a rule, and the limits of a value.
fn rules_of(schema: &Value) -> Vec<String> {
    let cel = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let messages = cel.map(|rule| text(&rule["message"]).replace('|', "\\|"));
    let limits =
        [("default", "default is"), ("minimum", "at least"), ("maximum", "at most"), ("pattern", "matches")];
    let limits = limits.into_iter().filter_map(|(name, what)| match &schema[name] {
        Value::Null => None,
        value => Some(format!("{what} `{}`", text(value).replace('|', "\\|"))),
    });
    limits.chain(messages).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Returns the anchor that forges give a heading.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn the_reference_of_the_fields_is_that_of_the_crds() -> Result<()> {
    let mut fields = Fields { page: HEAD.into(), described: HashMap::new() };
    for crd in sluice_api::all_crds() {
        let crd = serde_json::to_value(&crd)?;
        let kind = text(&crd["spec"]["names"]["kind"]);
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            ensure!(schema[part]["properties"].is_object(), "{kind} has no {part}");
            fields.describe(&format!("{kind} {part}"), &schema[part])?;
        }
    }
    are_up_to_date(&[("fields.md", fields.page)])
}
