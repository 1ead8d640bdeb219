//! Names, addresses and comments in exported objects.

use sluice_view::safe_text::is_unsafe;

/// Parses the address of a server.
pub(super) fn address(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').into())
        }
        _ => Err("write an address such as https://sluice.example.com".into()),
    }
}

/// Returns a text of a pipeline for a comment in YAML, with spaces in place of line breaks of every kind. Otherwise the
/// text could add an object to the output.
pub(super) fn comment_text(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// The most bytes of an object's name.
const MAX_NAME_BYTES: usize = 253;

/// Returns a valid name of an object. The end of a name that is too long is replaced by a hash of the whole name.
pub(super) fn object_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.into();
    }
    let hash = hash(&[name]);
    let max_prefix = MAX_NAME_BYTES - hash.len() - 1;
    let end = (0..=max_prefix).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    // A part of a name must not end with one of these characters.
    format!("{}-{hash}", name[..end].trim_end_matches(['-', '.']))
}

/// Returns a hash of texts, in ten characters.
pub(super) fn hash(texts: &[&str]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, texts.join("\0").as_bytes());
    hex(&digest.as_ref()[..5])
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_ends_with_a_hash() {
        assert_eq!(object_name("sluice-apps.podinfo.dev"), "sluice-apps.podinfo.dev");
        let (one, other) =
            (format!("sluice-{}.dev", "a".repeat(250)), format!("sluice-{}.qa", "a".repeat(250)));
        let (short, another) = (object_name(&one), object_name(&other));
        assert!(short.len() <= 253 && another.len() <= 253 && short != another, "{short} {another}");
        let dotted = object_name(&format!("{}.{}", "a".repeat(241), "b".repeat(20)));
        assert!(dotted.starts_with(&format!("{}-", "a".repeat(241))), "{dotted}");
    }
}
