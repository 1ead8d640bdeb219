//! `docs/reference/json.md` and `docs/reference/json-schema.json` are what the types of the data say. `UPDATE=1` writes
//! them.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const HEAD: &str = "<!-- Generated from the types of the data: make reference -->

# Data of the commands

After this page you know each field that the commands print with `-o json` and `-o yaml`. [json-schema.json](json-schema.json)
is the same as a JSON Schema (2020-12), to check data or to generate types. The [API](../api.md) uses the same types for its
answers; `GET /openapi.json` describes it.

A document has `apiVersion`, `kind` and `view`, which holds the data. `apiVersion` is `view.pipelines.weave.works/v1alpha1`.
Sluice changes this version when it removes a field, or changes the meaning of one. New fields and new values of a field
may come with each release, so ignore those that you do not know. A field that is not marked as required is absent if it
has no value.

`sluice get pipelines` and `sluice get promotions` print the objects of the cluster: [their fields](fields.md).
";

/// Returns the page for a schema.
fn page(schema: &Value) -> Result<String> {
    let mut page = HEAD.to_owned();
    let documents = schema["oneOf"].as_array().context("no documents")?;
    writeln!(page, "\n| command | kind | view |\n| --- | --- | --- |")?;
    for document in documents {
        let fields = &document["properties"];
        let data = if fields["view"].is_null() { "`items`: " } else { "" };
        let view = if fields["view"].is_null() { &fields["items"] } else { &fields["view"] };
        let (command, kind) = (text(&document["description"]), text(&document["title"]));
        writeln!(page, "| `{command}` | `{kind}` | {data}{} |", type_of(view))?;
    }
    for (name, definition) in schema["$defs"].as_object().context("no types")? {
        writeln!(page, "\n## {name}\n\n{}", text(&definition["description"]))?;
        describe(&mut page, definition)?;
    }
    Ok(page)
}

/// Describes the fields or the values of a type.
fn describe(page: &mut String, definition: &Value) -> Result<()> {
    if let Some(values) = definition["oneOf"].as_array() {
        writeln!(page, "\n| value | meaning |\n| --- | --- |")?;
        for value in values {
            let words = value["enum"].as_array().cloned().unwrap_or_else(|| vec![value["const"].clone()]);
            let words: Vec<String> = words.iter().map(|word| format!("`{}`", text(word))).collect();
            writeln!(page, "| {} | {} |", words.join(", "), cell(&value["description"]))?;
        }
    }
    if let Some(values) = definition["enum"].as_array() {
        let words: Vec<String> = values.iter().map(|word| format!("`{}`", text(word))).collect();
        writeln!(page, "\nOne of {}.", words.join(", "))?;
    }
    let required: Vec<&str> =
        definition["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(fields) = definition["properties"].as_object() else { return Ok(()) };
    writeln!(page, "\n| field | type | meaning |\n| --- | --- | --- |")?;
    for (name, field) in fields {
        let mark = if required.contains(&name.as_str()) { " (required)" } else { "" };
        writeln!(page, "| `{name}` | {}{mark} | {} |", type_of(field), cell(&field["description"]))?;
    }
    Ok(())
}

/// Returns the type of a value, with a link to its fields.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let all: Vec<String> = alternatives.iter().map(type_of).collect();
        return all.join(" or ");
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" => format!("list of {}", type_of(&schema["items"])),
        Value::String(kind) if kind == "object" && schema["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&schema["additionalProperties"]))
        }
        Value::String(kind) => match schema["format"].as_str() {
            Some("date-time") => "time".into(),
            _ => kind.clone(),
        },
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".into(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn cell(value: &Value) -> String {
    text(value).replace('|', "\\|")
}

#[test]
fn the_reference_of_the_data_is_that_of_its_types() -> Result<()> {
    let schema = sluice_cli::json_schema();
    let files =
        [("json.md", page(&schema)?), ("json-schema.json", serde_json::to_string_pretty(&schema)? + "\n")];
    for (name, content) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &content)?;
        }
        let written = std::fs::read_to_string(&path).with_context(|| format!("docs/reference/{name}"))?;
        ensure!(
            written == content,
            "docs/reference/{name} is not what the types say: run make reference and commit it"
        );
    }
    Ok(())
}

#[test]
fn every_field_of_the_data_is_described() -> Result<()> {
    let schema = sluice_cli::json_schema();
    for (name, definition) in schema["$defs"].as_object().context("no types")? {
        ensure!(definition["description"].is_string(), "{name} has no description");
        for (field, schema) in definition["properties"].as_object().into_iter().flatten() {
            ensure!(schema["description"].is_string(), "{name}.{field} has no description");
        }
    }
    Ok(())
}
