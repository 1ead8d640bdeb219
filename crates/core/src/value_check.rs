//! Checks of the values of a revision, which come from clusters and calls, and go into records, files, branches and
//! commit messages.

use crate::revision::Facet;
use crate::tracks::{DefaultFacet, Track};

/// The form of a value, for error messages.
pub const VALUE_FORMAT: &str =
    "up to 256 letters, digits and the signs . _ - + / @ : such as 1.2.3 or main@sha1:1eabc9a4";

/// Returns true if a text has the form of a revision's value.
pub fn is_value(value: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-+/@:".contains(&b);
    !value.is_empty() && value.len() <= 256 && value.bytes().all(good)
}

/// Returns true if a character must not be written to a terminal unescaped: control characters (C0, DEL, C1), line and
/// paragraph separators, and characters that no reader sees, which reorder a text (Unicode Standard Annex 9),
/// hide a part of it, or make two names look the same (general category Cf of UnicodeData.txt, and the
/// fillers and selectors without a glyph).
pub fn is_unsafe(c: char) -> bool {
    // Nearly all characters, and a page has a million of them.
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let invisible = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || invisible
}

/// Returns a text of another program for people: without unsafe characters, and of at most this many bytes and an ellipsis.
pub fn visible(text: &str, max_bytes: usize) -> String {
    let mut visible: String = text.chars().filter(|c| !is_unsafe(*c)).take(max_bytes + 1).collect();
    cut(&mut visible, max_bytes);
    visible
}

/// Shortens a text to at most this many bytes, and an ellipsis. Messages of other programs can be of any length,
/// and an object cannot.
pub fn cut(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// Checks a value that a cluster or a caller reports for a facet.
///
/// # Errors
/// The form that the value should have.
pub fn check(facet: &Facet, value: &str) -> Result<(), String> {
    let good = match facet {
        // An appVersion is free text.
        Facet::App => !value.is_empty() && value.len() <= 256 && !value.contains(is_unsafe),
        Facet::Source => is_value(value),
        Facet::Chart | Facet::Tag => is_value(value) && !value.contains(['/', ':', '@']),
        Facet::Digest | Facet::Image(_) => is_value(value) && !value.contains('/'),
    };
    match (good, facet) {
        (true, Facet::Image(repository)) if !is_repository(repository) => {
            Err("a repository is letters, digits and the signs . _ - / with an optional port".into())
        }
        (true, _) => Ok(()),
        (false, Facet::App) => Err("it should be up to 256 bytes of visible characters on one line".into()),
        (false, Facet::Chart | Facet::Tag) => {
            Err("it should be up to 256 letters, digits and the signs . _ - +".into())
        }
        (false, Facet::Source) => Err(format!("it should be {VALUE_FORMAT}")),
        (false, _) => Err("it should be up to 256 letters, digits and the signs . _ - + @ :".into()),
    }
}

/// Returns true if a text has the form of an image repository: a registry with an optional port, and a path.
fn is_repository(text: &str) -> bool {
    let (registry, path) = text.split_once('/').unwrap_or(("", text));
    let (host, port) = registry.split_once(':').unwrap_or((registry, "0"));
    let good = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    !path.is_empty()
        && text.len() <= 256
        && good(host)
        && good(path)
        && (1..=5).contains(&port.len())
        && port.bytes().all(|b| b.is_ascii_digit())
}

/// Returns true if a facet is part of a workload's revision: the pipeline tracks it, or has no `tracks` and it is a
/// default facet.
pub fn is_part(facet: &Facet, default: DefaultFacet, tracks: &[Track]) -> bool {
    if !tracks.is_empty() {
        return tracks.iter().any(|track| track.admits(facet));
    }
    match default {
        DefaultFacet::Chart => *facet == Facet::Chart,
        DefaultFacet::Artifact => matches!(facet, Facet::Tag | Facet::Digest),
        DefaultFacet::Images => matches!(facet, Facet::Image(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_facet_has_its_own_check() {
        let image = |repository: &str| Facet::Image(repository.into());
        let table = [
            (Facet::Chart, "1.0.0-rc.1", true),
            (Facet::Chart, "a/b", false),
            (Facet::Chart, "", false),
            (Facet::Chart, "1\n2", false),
            (Facet::App, "1.0 (Ätna)", true),
            (Facet::App, "1.0\u{200b}", false),
            (Facet::App, "1.0\u{202e}", false),
            (Facet::App, "1.0\u{fe0f}", false),
            (Facet::App, "1.0\u{2800}", false),
            (Facet::Tag, "main/x", false),
            (Facet::Tag, "app:1", false),
            (Facet::Chart, "app:1", false),
            (Facet::Chart, "app@1", false),
            (Facet::Chart, "1.0.0+build.5", true),
            (Facet::Digest, "sha256:aa", true),
            (Facet::Source, "feature/x@sha1:aa", true),
            (Facet::Source, "a b", false),
            (Facet::App, "Spring release", true),
            (Facet::App, "\u{1b}[2J", false),
            (image("ghcr.io/x/app"), "1.2", true),
            (image("localhost:5000/app"), "1.2", true),
            (image("redis"), "7", true),
            (image("redis"), "7/8", false),
            (image("red is"), "7", false),
            (image("ghcr.io:x/app"), "7", false),
            (image("ghcr.io/x\n/app"), "7", false),
        ];
        for (facet, value, good) in table {
            assert_eq!(check(&facet, value).is_ok(), good, "{facet} {value:?}");
        }
        assert!(check(&Facet::Chart, &"1".repeat(257)).is_err());
    }
}
