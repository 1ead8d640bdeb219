//! Makes text from clusters, forges and repositories safe to print. Every line for a terminal passes
//! [`line`]; `-o json` and `-o yaml` stay data and escape the same characters.

use std::borrow::Cow;
use std::fmt::Write;

pub use sluice_core::value_check::is_unsafe;

/// Returns the text as one line on which every character is visible: line breaks and tabs become spaces,
/// and a control or invisible character becomes its escape, such as `\u{1b}`.
///
/// The characters are escaped and not removed, so that two names that differ in an invisible character look different.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if is_break(c) => safe.push(' '),
            _ if is_unsafe(c) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Returns true for a line break or a tab.
fn is_break(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns JSON with the unsafe characters escaped as `\uXXXX`, above U+FFFF as a surrogate pair.
pub fn json(json: &str) -> Cow<'_, str> {
    escaped(json, |c, safe| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(safe, "\\u{unit:04x}");
        }
    })
}

/// Returns JSON with the unsafe characters escaped as YAML does, which has no surrogate pairs: `\UXXXXXXXX`
/// (YAML 1.2.2, section 5.7).
pub fn yaml_of_json(json: &str) -> Cow<'_, str> {
    escaped(json, |c, safe| {
        let _ = write!(safe, "\\U{:08X}", u32::from(c));
    })
}

/// Escapes the unsafe characters of JSON. Outside of strings, JSON has none except line breaks.
fn escaped(json: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_raw = |c: char| c != '\n' && is_unsafe(c);
    if !json.chars().any(is_raw) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_raw(c) { escape(c, &mut safe) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_one_line_of_visible_characters() {
        for (text, expected) in [
            ("6.1.8", "6.1.8"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{9d}8;;http://x\u{9c}", "\\u{9b}31m\\u{9d}8;;http://x\\u{9c}"),
            ("done\r\n\u{2714} approved", "done  \u{2714} approved"),
            ("a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f\tg", "a b c d e f g"),
            ("well \u{202e}deliaf\u{202c}", "well \\u{202e}deliaf\\u{202c}"),
            ("\u{2066}a\u{2069}\u{200f}\u{61c}", "\\u{2066}a\\u{2069}\\u{200f}\\u{61c}"),
            ("6.1\u{200b}.8\u{feff}\u{3164}\u{e0041}", "6.1\\u{200b}.8\\u{feff}\\u{3164}\\u{e0041}"),
            ("rub\u{8}\u{7f}out\0", "rub\\u{8}\\u{7f}out\\u{0}"),
            ("schön שלום ガ ✔ 😀 →", "schön שלום ガ ✔ 😀 →"),
        ] {
            assert_eq!(line(text), expected, "{text:?}");
            assert!(!line(text).chars().any(is_unsafe));
        }
    }

    #[test]
    fn every_control_and_format_character_is_unsafe() {
        let control = (0..0x20).chain(0x7f..0xa0);
        let format =
            [0xad, 0x61c, 0x200b, 0x200e, 0x202a, 0x202e, 0x2028, 0x2066, 0x2069, 0xfeff, 0xe0001, 0xe007f];
        for code in control.chain(format) {
            assert!(char::from_u32(code).is_some_and(is_unsafe), "U+{code:04X}");
        }
    }
}
