//! Writes a string as a YAML scalar on one line, in the style of the old scalar if that is possible. A plain scalar stays
//! plain only if all readers of YAML 1.1 and 1.2 read the same string back: Flux, Helm, kubectl and scripts read `1.10`,
//! `on` or `12:30` differently.

use granit_parser::ScalarStyle;

/// Returns the scalar for a value: in the old style if the style allows the value, else in double quotes. `flow` is true
/// within `[...]` or `{...}`.
pub(super) fn write(value: &str, style: ScalarStyle, flow: bool) -> String {
    match style {
        ScalarStyle::Plain if stays_plain(value, flow) => value.into(),
        ScalarStyle::SingleQuoted if value.chars().all(printable) => {
            format!("'{}'", value.replace('\'', "''"))
        }
        _ => double_quoted(value),
    }
}

/// Returns true if every reader reads the plain scalar as this string.
pub(super) fn stays_plain(value: &str, flow: bool) -> bool {
    syntax_allows_plain(value, flow) && !reads_as_something_else(value)
}

/// Returns true if the syntax of YAML 1.1 and 1.2 allows the plain scalar. In YAML 1.1, `?` begins a key within flow
/// collections.
fn syntax_allows_plain(value: &str, flow: bool) -> bool {
    let mut chars = value.chars();
    let (Some(first), second) = (chars.next(), chars.next()) else { return false };
    let last = value.chars().next_back().unwrap_or(first);
    let starts_well = match first {
        '-' => second.is_some_and(|c| !c.is_whitespace()),
        '?' | ':' | ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' => false,
        c => !c.is_whitespace(),
    };
    starts_well
        && !last.is_whitespace()
        && last != ':'
        && !value.starts_with("---")
        && !value.starts_with("...")
        && value.chars().all(|c| printable(c) && c != '\t')
        && !value.contains(": ")
        && !value.contains(" #")
        && !(flow && value.contains([',', '[', ']', '{', '}', '?']))
}

/// Returns true for a printable character that no reader takes for a line break. NEL, LS and PS are line breaks in YAML
/// 1.1.
fn printable(c: char) -> bool {
    match c {
        '\t' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        c => !c.is_control(),
    }
}

/// Returns true if some reader reads a plain scalar as null, boolean, number, time or a YAML 1.1 indicator.
fn reads_as_something_else(value: &str) -> bool {
    const WORDS: [&str; 17] = [
        "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "=", "<<", "nan", "inf",
        "infinity", ".nan", ".inf",
    ];
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    let is_word = |text: &str| WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    is_word(value) || is_word(unsigned) || is_number(unsigned) || is_time(value)
}

/// Returns true for integers and floats of any base and notation: `1_000`, `1,000`, `0x1f`, `0o17`, `1e3`, `.5`, `12:30`.
fn is_number(unsigned: &str) -> bool {
    let lower = unsigned.to_ascii_lowercase();
    let rest = ["0x", "0o", "0b"].iter().find_map(|base| lower.strip_prefix(base));
    if let Some(rest) = rest {
        return rest.bytes().all(|b| b.is_ascii_hexdigit() || b"_.".contains(&b));
    }
    let digits = |text: &str, more: &[u8]| {
        text.bytes().all(|b| b.is_ascii_digit() || more.contains(&b))
            && text.bytes().any(|b| b.is_ascii_digit())
            && text.bytes().filter(|b| *b == b'.').count() <= 1
    };
    match lower.split_once('e') {
        Some((mantissa, exponent)) => {
            digits(mantissa, b"_,.") && digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent), b"_")
        }
        None => digits(&lower, b"_,.:"),
    }
}

/// Returns true for a date such as `2024-1-31`, with or without a time.
fn is_time(value: &str) -> bool {
    let date = value.split(['T', 't', ' ']).next().unwrap_or(value);
    let parts: Vec<&str> = date.split('-').collect();
    let number = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    matches!(parts[..], [y, m, d] if y.len() == 4 && number(y, 4) && number(m, 2) && number(d, 2))
}

fn double_quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if printable(c) => out.push(c),
            c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const PLAIN: &[&str] = &[
        "6.1.8", "2.0.0", "v1", "1.0.0-rc.1+build.5", "main@sha1:abc", "sha256:0123", "ghcr.io/x/app:1.10", "-rc",
        "a b", "a#b", "a:b", "it's", "say \"x\"", "é", "日本", "😀", "abc1e3", "1.2.3.4", "0.1.0", "2024-01-31-abc",
        "20240131-1", "yesterday", "1e", "x1_000", "..", "a,b", "a[0]", "1.x", "^6.1", "~6", "0bad-cafe",
    ];

    #[rustfmt::skip]
    const QUOTED: &[&str] = &[
        "", " a", "a ", "a: b", "a:", "a #b", "#a", "- a", "-", "? a", "?", ":a", "&a", "*a", "!a", "|", ">", "'a",
        "\"a", "%a", "@a", "`a", "[a", "{a", "]", "}", ",a", "a\tb", "a\nb", "a\rb", "a\u{85}b", "a\u{2028}b",
        "\u{feff}a", "a\u{7f}", "\0", "---", "--- a", "...", "1", "-1", "+1", "1.10", "-1.5", ".5", "5.", "1_000",
        "1,000", "0x1f", "0X1F", "0o17", "0b101", "017", "1e3", "1E+3", "1.5e-3", "12e4567", "12:30", "12:30:45",
        "-12:30", "1:2.5", ".inf", "-.INF", ".NaN", "nan", "true", "True", "FALSE", "yes", "No", "on", "OFF", "y",
        "N", "null", "NULL", "~", "=", "<<", "2024-01-31", "2024-1-2", "2024-01-31T10:00:00Z", "2024-01-31 10:00:00",
    ];

    #[test]
    fn a_scalar_is_plain_only_if_every_reader_reads_the_string() {
        for value in PLAIN {
            assert!(stays_plain(value, false), "{value:?}");
        }
        for value in QUOTED {
            assert!(!stays_plain(value, false), "{value:?}");
            assert!(!stays_plain(value, true), "{value:?} in a flow collection");
        }
        for value in ["a,b", "a]", "a[0]", "a{", "-,", "a:?", "a?b"] {
            assert!(!stays_plain(value, true), "{value:?} in a flow collection");
        }
        for value in ["6.1.8", "ghcr.io/x/app:1.10", "-rc"] {
            assert!(stays_plain(value, true), "{value:?} in a flow collection");
        }
    }

    #[test]
    fn the_style_is_kept_if_it_allows_the_value() {
        use ScalarStyle::{DoubleQuoted, Plain, SingleQuoted};
        for (value, style, expected) in [
            ("1.0.0", Plain, "1.0.0"),
            ("1.10", Plain, "\"1.10\""),
            ("1.0.0", SingleQuoted, "'1.0.0'"),
            ("it's", SingleQuoted, "'it''s'"),
            (" \\ \" ", SingleQuoted, "' \\ \" '"),
            ("a\nb", SingleQuoted, "\"a\\nb\""),
            ("a\u{85}b\u{2028}\u{feff}\u{1}", SingleQuoted, "\"a\\x85b\\u2028\\uFEFF\\x01\""),
            ("1.0.0", DoubleQuoted, "\"1.0.0\""),
            ("a\"\\\t\r😀", DoubleQuoted, "\"a\\\"\\\\\\t\\r😀\""),
        ] {
            assert_eq!(write(value, style, false), expected, "{value:?}");
        }
    }
}
