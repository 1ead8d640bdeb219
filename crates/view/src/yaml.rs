//! Data as YAML, as commands print it and pages show it.

use std::io;

use serde::Serialize;

use crate::safe_text;

/// Returns a YAML document that ends in a line break. Strings that YAML 1.1 would read as something else
/// (`yes`, `1e3`) are quoted, because kubectl reads YAML 1.1. A document with characters that are unsafe on a
/// terminal, which the serializer does not escape, is written as JSON: that is YAML, too.
///
/// # Errors
/// When the value cannot be written as YAML.
pub fn yaml(value: &impl Serialize) -> io::Result<String> {
    let text = raw_yaml(value, false)?;
    if !text.chars().any(|c| c != '\n' && safe_text::is_unsafe(c)) {
        return Ok(text);
    }
    Ok(safe_text::yaml_of_json(&serde_json::to_string_pretty(value)?).into_owned() + "\n")
}

/// Returns a YAML document that ends in a line break. It may have characters that are unsafe on a terminal. With
/// `with_blocks`, a text of several lines is a block.
///
/// # Errors
/// When the value cannot be written as YAML.
pub(crate) fn raw_yaml(value: &impl Serialize, with_blocks: bool) -> io::Result<String> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: with_blocks };
    let mut text = serde_saphyr::to_string_with_options(value, options).map_err(io::Error::other)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
}
