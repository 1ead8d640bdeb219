//! Removes secrets from texts of other programs and servers.

use std::cmp::Reverse;

/// Returns a text without these secrets.
pub fn without_secrets<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let mut secrets: Vec<&str> = secrets.filter(|secret| !secret.is_empty()).collect();
    // One secret may be part of another.
    secrets.sort_by_key(|secret| Reverse(secret.len()));
    secrets.into_iter().fold(text.to_string(), |text, secret| without_secret(&text, secret))
}

/// A secret with fewer characters is removed only if it is a whole word: inside of other words it reveals nothing, and
/// the text would be unreadable without it.
const MIN_LENGTH_INSIDE_WORDS: usize = 6;

/// Returns a text without a secret.
fn without_secret(text: &str, secret: &str) -> String {
    if secret.chars().count() >= MIN_LENGTH_INSIDE_WORDS {
        return text.replace(secret, "***");
    }
    let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(secret) {
        let (before, after) = (&rest[..at], &rest[at + secret.len()..]);
        let inside =
            is_part(before.chars().next_back().or(out.chars().next_back())) || is_part(after.chars().next());
        out.push_str(before);
        out.push_str(if inside { secret } else { "***" });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_secret_leaves_words_readable_and_is_not_shown() {
        for (secrets, text, expected) in [
            (&["p"][..], "repository p, user:p@host, pp", "repository ***, user:***@host, pp"),
            (&["p"], "p", "***"),
            (&["re"], "re repository", "*** repository"),
            (&["a-b"], "a-b xa-b a-b", "*** xa-b ***"),
            (&["ee"], "eeee ee", "eeee ***"),
            (&["hunter2"], "xhunter2x", "x***x"),
            (&["", "hunter", "hunter2"], "hunter2 hunter", "*** ***"),
        ] {
            assert_eq!(without_secrets(text, secrets.iter().copied()), expected);
        }
    }
}
