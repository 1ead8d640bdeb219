//! Tables of Markdown with the fields and values of types, from their JSON Schema.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::Value;

/// Adds a section for each type, with its fields or values.
pub fn describe_types(page: &mut String, types: &Value) -> Result<()> {
    for (name, definition) in types.as_object().context("no types")? {
        writeln!(page, "\n## {name}\n\n{}", text(&definition["description"]))?;
        describe(page, definition)?;
    }
    Ok(())
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
pub fn type_of(schema: &Value) -> String {
    if let Some((_, name)) = schema["$ref"].as_str().and_then(|name| name.rsplit_once('/')) {
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

/// Returns a text on one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Returns a text for a cell of a table.
pub fn cell(value: &Value) -> String {
    text(value).replace('|', "\\|")
}
