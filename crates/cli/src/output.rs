//! The output formats of all commands.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_view::safe_text;

use crate::document_kind::{DocumentKind, VERSION};

pub use sluice_view::yaml::yaml;

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

impl Format {
    /// Returns the format of data; `None` if the format is for people.
    pub fn data(self) -> Option<DataFormat> {
        match self {
            Format::Json => Some(DataFormat::Json),
            Format::Yaml => Some(DataFormat::Yaml),
            Format::Table | Format::Wide | Format::Name => None,
        }
    }
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

/// Writes a view as data, in a document that names its kind and version.
///
/// # Errors
/// When the reader has closed the pipe.
pub fn view(
    format: DataFormat,
    kind: DocumentKind,
    value: &impl Serialize,
    out: &mut dyn Write,
) -> io::Result<()> {
    data(format, &json!({"apiVersion": VERSION, "kind": kind.name(), "view": value}), out)
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

#[cfg(test)]
mod tests {
    use super::*;

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
