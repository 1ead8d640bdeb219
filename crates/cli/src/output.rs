//! The output formats of all commands.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use crate::safe_text;

/// The formats of `sluice get`.
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
    /// Only names, one in each line
    Name,
}

/// The formats of commands that print only data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Writes a value in a format.
///
/// # Errors
/// When the reader has closed the pipe.
pub fn data(format: DataFormat, value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    match format {
        DataFormat::Json => writeln!(out, "{}", safe_text::json(&serde_json::to_string_pretty(value)?)),
        DataFormat::Yaml => out.write_all(yaml(value)?.as_bytes()),
    }
}

/// The version of the documents that [`view`] writes. It changes when a field is removed or changes its meaning.
const VIEW_VERSION: &str = "view.pipelines.weave.works/v1alpha1";

/// Writes a view as data, in a document that names its kind and version.
///
/// # Errors
/// When the reader has closed the pipe.
pub fn view(format: DataFormat, kind: &str, value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    data(format, &json!({"apiVersion": VIEW_VERSION, "kind": kind, "view": value}), out)
}

/// Returns the document for several objects, as kubectl prints them: a List, or the object itself if it was requested by
/// name.
pub fn list(mut objects: Vec<Value>, named: bool) -> Value {
    match (named, objects.len()) {
        (true, 1) => objects.remove(0),
        _ => {
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects})
        }
    }
}

/// Returns a YAML document that ends in a line break. Strings that YAML 1.1 would read as something else
/// (`yes`, `1e3`) are quoted, because kubectl reads YAML 1.1. Characters that are unsafe on a terminal
/// are escaped.
///
/// # Errors
/// When the value cannot be written as YAML.
pub fn yaml(value: &impl Serialize) -> io::Result<String> {
    let text = raw_yaml(value)?;
    if !text.chars().any(|c| c != '\n' && safe_text::is_unsafe(c)) {
        return Ok(text);
    }
    // The serializer does not escape all unsafe characters. Each string with such a character is replaced by a
    // placeholder that the text does not contain, and the placeholder by the string in double quotes.
    let mark = (0..).map(|n: u32| format!("sluice-{n}-")).find(|mark| !text.contains(mark.as_str()));
    let mut quoted = Quoted { mark: mark.unwrap_or_default(), strings: Vec::new() };
    let mut value = serde_json::to_value(value)?;
    quoted.replace(&mut value);
    let mut text = raw_yaml(&value)?;
    for (n, string) in quoted.strings.iter().enumerate() {
        text = text.replacen(&quoted.placeholder(n), string, 1);
    }
    Ok(text)
}

fn raw_yaml(value: &impl Serialize) -> io::Result<String> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(value, options).map_err(io::Error::other)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Strings that are written as double-quoted scalars in place of placeholders.
struct Quoted {
    mark: String,
    strings: Vec<String>,
}

impl Quoted {
    /// Returns the placeholder of a string. The last letter keeps number 1 from being a part of number 10.
    fn placeholder(&self, number: usize) -> String {
        format!("{}{number}x", self.mark)
    }

    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.replace_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::Object(fields) => {
                for (mut key, mut field) in std::mem::take(fields) {
                    self.replace_text(&mut key);
                    self.replace(&mut field);
                    fields.insert(key, field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn replace_text(&mut self, text: &mut String) {
        if text.chars().any(safe_text::is_unsafe) {
            let placeholder = self.placeholder(self.strings.len());
            self.strings.push(double_quoted(text));
            *text = placeholder;
        }
    }
}

/// Returns a double-quoted YAML scalar with the unsafe characters escaped (YAML 1.2.2, section 5.7).
fn double_quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // YAML has no surrogate pairs.
            c if safe_text::is_unsafe(c) => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_back_as_the_same_value() {
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
    fn escaped_data_is_read_back_as_the_same_value() {
        let value = json!({
            "esc": "a\u{1b}[31m\u{7}\0", "c1": "\u{9b}2J\u{85}", "del": "\u{7f}", "bidi": "well \u{202e}deliaf",
            "space": "6.1\u{200b}.8 # x", "tag": "v\u{e0041}", "lines": "\u{feff}a\n\tb\"c\\d\u{2028}e",
            "sluice-0-0x": "sluice-0-1x", "k\u{202e}ey": ["\u{200f}", "fine ✔ שלום"],
        });
        for format in [DataFormat::Json, DataFormat::Yaml] {
            let mut out = Vec::new();
            data(format, &value, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(!text.chars().any(|c| c != '\n' && safe_text::is_unsafe(c)), "{text:?}");
            assert!(text.contains("fine ✔ שלום"), "{text}");
            let back: Value = match format {
                DataFormat::Json => serde_json::from_str(&text).unwrap(),
                DataFormat::Yaml => serde_saphyr::from_str(&text).unwrap(),
            };
            assert_eq!(back, value, "{text}");
        }
    }

    #[test]
    fn an_object_requested_by_name_is_not_in_a_list() {
        assert_eq!(list(vec![json!({"a": 1})], true), json!({"a": 1}));
        assert_eq!(list(vec![json!({"a": 1})], false)["items"], json!([{"a": 1}]));
        assert_eq!(list(vec![], false)["kind"], "List");
    }
}
