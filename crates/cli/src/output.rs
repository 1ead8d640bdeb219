//! The forms in which data goes to stdout, the same for every command.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

/// What `-o` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns, for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// The objects as JSON
    Json,
    /// The objects as YAML
    Yaml,
    /// Only names, one a line
    Name,
}

/// What `-o` takes where there is nothing but data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Writes one value.
///
/// # Errors
/// When the reader is gone.
pub fn data(format: DataFormat, value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    match format {
        DataFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, value)?;
            writeln!(out)
        }
        DataFormat::Yaml => out.write_all(yaml(value)?.as_bytes()),
    }
}

/// Several objects in one document, as kubectl gives them; one that was asked for by name is bare.
pub fn list(mut objects: Vec<Value>, named: bool) -> Value {
    match (named, objects.len()) {
        (true, 1) => objects.remove(0),
        _ => {
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects})
        }
    }
}

/// A YAML document, ending in a line break. Strings that an older YAML would take for something
/// else (`yes`, `1e3`) are quoted, because kubectl reads that older YAML.
///
/// # Errors
/// When the value cannot be written as YAML.
pub fn yaml(value: &impl Serialize) -> io::Result<String> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(value, options).map_err(io::Error::other)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_back_as_it_was() {
        let value = json!({
            "switch": "yes", "also": "no", "y": "on", "number": "1e3", "octal": "0755", "sexagesimal": "1:20",
            "null": "null", "tilde": "~", "empty": "", "true": true, "n": 7, "list": [], "map": {},
            "text": "two\nlines\n", "long": format!("{}: # {}", "word ".repeat(40), "x  y".repeat(30)),
            "colon": "a: b", "hash": "a #b", "dash": "- a", "space": " a ", "quote": "it's \"so\"",
            "time": "2026-11-21T12:00:00Z", "version": "6.10", "star": "*a", "at": "@a", "pct": "%a", "tab": "a\tb",
        });
        let text = yaml(&value).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }

    #[test]
    fn one_by_name_is_bare_and_several_are_a_list() {
        assert_eq!(list(vec![json!({"a": 1})], true), json!({"a": 1}));
        assert_eq!(list(vec![json!({"a": 1})], false)["items"], json!([{"a": 1}]));
        assert_eq!(list(vec![], false)["kind"], "List");
    }
}
