//! Text of other systems and of files, cleaned for statuses, logs, commit messages and change requests.

use serde_json::Value;
use sluice_core::value_check::is_unsafe;

/// The most characters of an error message that are shown.
const MAX_MESSAGE_CHARS: usize = 300;

/// The words of another system. Sluice decides by the words as they came, and shows them without secrets: a secret may be a common
/// word, such as `limit`.
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignWords {
    raw: String,
    pub(crate) shown: String,
}

impl ForeignWords {
    /// Words with secrets, and the same without secrets.
    pub(crate) fn new(raw: String, shown: String) -> Self {
        ForeignWords { raw, shown }
    }

    /// Whether a phrase is in the words. The phrase must be in lower case.
    pub(crate) fn has(&self, phrase: &str) -> bool {
        self.lower().contains(phrase)
    }

    /// Each line with secrets, and without.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.raw.lines().zip(self.shown.lines())
    }

    /// The words with secrets, in lower case, to be searched and not shown.
    pub(crate) fn lower(&self) -> String {
        self.raw.to_ascii_lowercase()
    }
}

/// Words of Sluice itself.
impl From<String> for ForeignWords {
    fn from(words: String) -> Self {
        ForeignWords::new(words.clone(), words)
    }
}

impl std::fmt::Display for ForeignWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl std::fmt::Debug for ForeignWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ForeignWords").field(&self.shown).finish()
    }
}

/// Returns the message fields of an answer, in one line; empty if there are none.
/// `without` removes secrets.
pub(crate) fn message(json: &Value, without: impl Fn(&str) -> String) -> String {
    let mut words = Vec::new();
    if json.is_object() {
        collect_messages(json, &mut words);
    }
    // Cleaned before, since a secret may have escape sequences in it; cut after, since a part of a secret is not
    // recognized.
    clean(&without(&clean(&words.join("; "), usize::MAX)), MAX_MESSAGE_CHARS)
}

/// Returns foreign text as one line of at most this many characters, without escape sequences, control characters
/// and invisible characters.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    let mut count = 0;
    while let Some(c) = chars.next() {
        if count >= most {
            line.push('…');
            break;
        }
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            c if c.is_control() || c.is_whitespace() => {
                if !line.is_empty() && !line.ends_with(' ') {
                    line.push(' ');
                    count += 1;
                }
            }
            c if is_unsafe(c) => {}
            c => {
                line.push(c);
                count += 1;
            }
        }
    }
    line.trim_end().to_string()
}

/// Returns foreign text as one line: control characters and separators of lines become spaces, and characters that
/// nobody sees are removed.
pub(crate) fn one_line(text: &str) -> String {
    let visible = |c| match c {
        '\u{2028}' | '\u{2029}' => Some(' '),
        c if c.is_control() => Some(' '),
        c => (!is_unsafe(c)).then_some(c),
    };
    text.chars().filter_map(visible).collect()
}

/// Returns at most this many characters of a text, the last one of which shows that more were there.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Skips the rest of an escape sequence of a terminal (ECMA-48).
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('[') => {
            let _ = chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
        }
        // A string, such as a title or a link, which a bell or `ESC \` ends.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            let end = chars.find(|c| matches!(c, '\u{7}' | '\u{1b}'));
            let _ = end.filter(|c| *c == '\u{1b}').and_then(|_| chars.next());
        }
        _ => {}
    }
}

/// Collects the error messages of an answer: `message` and `errors` at GitHub and Bitbucket Data
/// Center, `message` as a list or by field and `error_description` at GitLab, `error` at Bitbucket.
fn collect_messages(json: &Value, words: &mut Vec<String>) {
    match json {
        Value::String(text) => words.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|part| collect_messages(part, words)),
        Value::Object(fields) => {
            let before = words.len();
            for key in ["message", "error", "error_description", "detail", "errors"] {
                match fields.get(key) {
                    Some(Value::Object(of)) if key == "message" || key == "errors" => {
                        for (field, what) in of {
                            let mut parts = Vec::new();
                            collect_messages(what, &mut parts);
                            words.push(format!("{field} {}", parts.join(", ")));
                        }
                    }
                    Some(part) => collect_messages(part, words),
                    None => {}
                }
            }
            if words.len() == before {
                words.extend(fields.get("field").and_then(Value::as_str).map(|f| {
                    let code = fields.get("code").unwrap_or(&Value::Null);
                    format!("{f} {code}")
                }));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_one_short_line_without_escapes() {
        let cases = [
            ("plain ü", "plain ü"),
            ("no\u{1b}[31m red\u{7}\r\n\u{202e}x", "no red x"),
            ("a\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{1b}\\b", "alinkb"),
            ("a\u{1b}[", "a"),
            ("a\u{1b}", "a"),
            ("\t a \u{9b}31m", "a 31m"),
            ("zero\u{200b}width", "zerowidth"),
            ("0123456789abcdef", "0123456789…"),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text, 10), expected, "{text:?}");
        }
    }

    #[test]
    fn one_line_has_no_line_break_and_no_character_that_reorders_or_hides_text() {
        let cases = [
            ("plain ü", "plain ü"),
            ("a\r\nb\u{2028}c", "a  b c"),
            ("1.0\u{202e}0.9\u{2066}", "1.00.9"),
            ("zero\u{200b}width\u{feff}", "zerowidth"),
        ];
        for (text, expected) in cases {
            assert_eq!(one_line(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_removed_before_the_text_is_cut() {
        let long = format!("{} hun\u{1b}[0mter2", "x".repeat(MAX_MESSAGE_CHARS - 5));
        let says = message(&serde_json::json!({ "message": long }), |text| text.replace("hunter2", "***"));
        assert_eq!(says, format!("{} ***", "x".repeat(MAX_MESSAGE_CHARS - 5)));
    }

    #[test]
    fn the_message_fields_of_all_forges_are_found() {
        let says = |text: &str| message(&serde_json::from_str(text).unwrap(), str::to_string);
        let cases = [
            (r#"{"message": "Not Found"}"#, "Not Found"),
            (
                r#"{"message": "Validation Failed", "errors": [{"message": "No commits between"}]}"#,
                "Validation Failed; No commits between",
            ),
            (r#"{"errors": [{"field": "head", "code": "invalid"}]}"#, r#"head "invalid""#),
            (r#"{"message": ["Another open merge request"]}"#, "Another open merge request"),
            (r#"{"message": {"title": ["is too long"]}}"#, "title is too long"),
            (
                r#"{"error": "insufficient_scope", "error_description": "needs api"}"#,
                "insufficient_scope; needs api",
            ),
            (r#"{"type": "error", "error": {"message": "No.", "detail": "Why."}}"#, "No.; Why."),
            (r#"{"$id": "1", "message": "TF401179: An active", "errorCode": 0}"#, "TF401179: An active"),
            (r#""plain""#, ""),
            (r#"["plain"]"#, ""),
            (r#"{"debug": "plain"}"#, ""),
        ];
        for (text, expected) in cases {
            assert_eq!(says(text), expected, "{text}");
        }
    }
}
