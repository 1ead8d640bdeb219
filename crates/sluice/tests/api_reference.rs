//! `docs/reference/api.md` and `docs/reference/openapi.json` are what the types of the API say. `UPDATE=1` writes them.

#[path = "support/reference_files.rs"]
mod reference_files;
#[path = "support/schema_tables.rs"]
mod schema_tables;

use std::fmt::Write;

use anyhow::{Context, Result};
use reference_files::are_up_to_date;
use schema_tables::{cell, describe_types, text, type_of};
use serde_json::Value;

const HEAD: &str = "<!-- Generated from the types of the API: make reference -->

# Reference of the API

After this page you know each path of the API, with its parameters, answers and types. [API](../api.md) says how to call it
and who may see what. [openapi.json](openapi.json) is the same in OpenAPI 3.1; the controller serves it as
`GET /openapi.json`.
";

/// Returns the operations of a description: the method, the path, and what is said of them.
fn operations(document: &Value) -> Result<Vec<(String, &String, &Value)>> {
    let paths = document["paths"].as_object().context("no paths")?;
    let mut all = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().context("no methods")? {
            all.push((method.to_uppercase(), path, operation));
        }
    }
    Ok(all)
}

/// Returns the type of what is sent, with a link to its fields.
fn content_type(body: &Value) -> String {
    let content = body["content"].as_object().and_then(|content| content.iter().next());
    content.map_or_else(String::new, |(kind, content)| format!("{} (`{kind}`)", type_of(&content["schema"])))
}

/// Returns the page for a description.
fn page(document: &Value) -> Result<String> {
    let mut page = HEAD.to_owned();
    let operations = operations(document)?;
    writeln!(page, "\n| path | what it is |\n| --- | --- |")?;
    for (method, path, operation) in &operations {
        writeln!(page, "| `{method} {path}` | {} |", cell(&operation["summary"]))?;
    }
    for (method, path, operation) in &operations {
        writeln!(page, "\n## {method} {path}\n\n{}.", text(&operation["summary"]))?;
        describe_operation(&mut page, operation)?;
    }
    describe_types(&mut page, &document["components"]["schemas"])?;
    Ok(page)
}

/// Adds the parameters, the body and the answers of an operation.
fn describe_operation(page: &mut String, operation: &Value) -> Result<()> {
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        writeln!(page, "\n| parameter | in | type | meaning |\n| --- | --- | --- | --- |")?;
    }
    for parameter in parameters {
        let [name, place] = ["name", "in"].map(|field| text(&parameter[field]));
        let kind = type_of(&parameter["schema"]);
        writeln!(page, "| `{name}` | {place} | {kind} | {} |", cell(&parameter["description"]))?;
    }
    if operation["requestBody"].is_object() {
        writeln!(page, "\nThe body is {}.", content_type(&operation["requestBody"]))?;
    }
    writeln!(page, "\n| status | body | meaning |\n| --- | --- | --- |")?;
    for (status, answer) in operation["responses"].as_object().context("no answers")? {
        writeln!(page, "| {status} | {} | {} |", content_type(answer), cell(&answer["description"]))?;
    }
    Ok(())
}

#[test]
fn the_reference_of_the_api_is_that_of_its_types() -> Result<()> {
    let document = sluice_web::document();
    are_up_to_date(&[
        ("api.md", page(&document)?),
        ("openapi.json", serde_json::to_string_pretty(&document)? + "\n"),
    ])
}
