//! `docs/reference/json.md` and `docs/reference/json-schema.json` are what the types of the data say. `UPDATE=1` writes
//! them.

#[path = "support/reference_files.rs"]
mod reference_files;
#[allow(dead_code, reason = "the reference of the API uses the rest")]
#[path = "support/schema_tables.rs"]
mod schema_tables;

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use reference_files::are_up_to_date;
use schema_tables::{describe_types, text, type_of};
use serde_json::Value;

const HEAD: &str = "<!-- Generated from the types of the data: make reference -->

# Data of the commands

After this page you know each field that the commands print with `-o json` and `-o yaml`. [json-schema.json](json-schema.json)
is the same as a JSON Schema (2020-12), to check data or to generate types. The [API](../api.md) uses the same types for its
answers: [their reference](api.md).

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
    describe_types(&mut page, &schema["$defs"])?;
    Ok(page)
}

#[test]
fn the_reference_of_the_data_is_that_of_its_types() -> Result<()> {
    let schema = sluice_cli::json_schema();
    are_up_to_date(&[
        ("json.md", page(&schema)?),
        ("json-schema.json", serde_json::to_string_pretty(&schema)? + "\n"),
    ])
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
