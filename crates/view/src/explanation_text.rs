//! How the sentences of an explanation are written: short checksums, each address once, and capitals.

use sluice_api::promotion::RecordedChangeRequest;
use sluice_core::Time;
use sluice_core::revision::shortened;

/// Returns the sentence that says when a delivered revision fails.
pub(crate) fn deadline_sentence(revision: &str, here: &str, deadline: Time) -> String {
    format!("{revision} fails at {deadline} unless {here} runs it healthily by then.")
}

/// What comes before the time of the next attempt.
pub(crate) const NEXT_ATTEMPT: &str = " The next attempt is ";

/// Returns a sentence without when the next attempt is, for those who show `until` and count it down.
pub fn without_next_attempt(sentence: &str) -> &str {
    sentence.split_once(NEXT_ATTEMPT).map_or(sentence, |(before, _)| before)
}

/// Returns a sentence in which the checksums are short, those in addresses excepted.
pub fn with_short_checksums(sentence: &str) -> String {
    let word = |word: &str| if word.contains("://") { word.to_owned() } else { shortened(word) };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the number of a change request, with its address if the message of the promotion does not have it.
pub(crate) fn named_once(request: &RecordedChangeRequest, message: &str) -> String {
    match message.contains(&request.url) {
        true => format!("#{}", request.number),
        false => format!("#{} ({})", request.number, request.url),
    }
}

/// A message with a capital letter at its beginning, unless it begins with a name or a revision.
pub(crate) fn sentence(message: &str) -> String {
    let first = message.split_whitespace().next().unwrap_or_default();
    let is_word = first.len() > 1 && first.chars().all(|c| c.is_ascii_lowercase());
    match (is_word, message.char_indices().nth(1)) {
        (true, Some((at, _))) => message[..at].to_ascii_uppercase() + &message[at..],
        _ => message.into(),
    }
}

/// Returns a note without the command in parentheses that shows more, and the command. A person runs it on the cluster of
/// the target.
pub(crate) fn without_flux_command(note: &str) -> (String, Option<String>) {
    let parts = note.split_once(" (flux ").and_then(|(before, rest)| Some((before, rest.split_once(')')?)));
    match parts {
        Some((before, (command, after))) => (format!("{before}{after}"), Some(format!("flux {command}"))),
        None => (note.into(), None),
    }
}

/// Returns the command for another try that a note ends with, as people type it. A note that quotes a person's words may have
/// several commands; then it is unclear which is the controller's. People copy the command into a shell, so its words must be
/// names of objects.
pub(crate) fn retry_command(note: &str) -> Option<String> {
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
    };
    let (_, rest) = note.split_once("sluice retry -n ")?;
    let mut words = rest.split(' ');
    let (namespace, name) = (words.next()?, words.next()?);
    let is_clear = is_name(namespace) && is_name(name) && !rest.contains("sluice retry");
    is_clear.then(|| format!("sluice retry {name} -n {namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_another_try_has_only_names() {
        let command = "to promote it again: sluice retry -n apps podinfo-prod-6.1.8";
        assert_eq!(retry_command(command).unwrap(), "sluice retry podinfo-prod-6.1.8 -n apps");
        for note in [
            "it is over",
            "try sluice retry -n $(reboot) p",
            "try sluice retry -n apps p;reboot",
            "try sluice retry -n apps --all",
            "sluice retry -n a b; to promote it again: sluice retry -n apps p",
        ] {
            assert_eq!(retry_command(note), None, "{note}");
        }
    }
}
