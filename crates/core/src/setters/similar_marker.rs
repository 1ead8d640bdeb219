//! The marker in files that is most similar to one that no file has: probably a misspelled one.

use std::collections::BTreeMap;

use super::marker::{MARKER_KEY, marker_name};
use crate::nearest::nearest;

/// The most names that are compared.
const MAX_NAMES: usize = 10_000;
/// The longest name that is compared and shown, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Returns the name in a marker that is most similar to this one, with its file and line: `apps:podinfo:stagin at
/// staging.yaml:25`. Returns only names of markers, and no values.
pub fn similar_marker<'a>(files: impl Iterator<Item = (String, &'a [u8])>, wanted: &str) -> Option<String> {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for (path, bytes) in files {
        let text = String::from_utf8_lossy(bytes);
        for (n, line) in (1..).zip(text.lines()).filter(|(_, line)| line.contains(MARKER_KEY)) {
            let name = line.split('#').skip(1).find_map(marker_name);
            let Some(name) = name.filter(|name| name.len() <= MAX_NAME_BYTES && is_name(name)) else {
                continue;
            };
            if places.len() >= MAX_NAMES {
                break;
            }
            places.entry(name).or_insert_with(|| format!("{path}:{n}"));
        }
    }
    let near = nearest(wanted, places.keys().map(String::as_str).filter(|name| is_similar(name, wanted)))?;
    Some(format!("{near} at {}", places[near]))
}

/// Whether each part of a name is similar to that of another: markers of other pipelines and environments are not.
fn is_similar(name: &str, wanted: &str) -> bool {
    name.split(':').zip(wanted.split(':')).all(|(part, wanted)| nearest(wanted, [part].into_iter()).is_some())
}

/// Whether a text has three names of Kubernetes objects: other texts are not repeated in messages.
fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    };
    text.split(':').count() == 3 && text.split(':').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similar(text: &str) -> Option<String> {
        similar_marker([("staging.yaml".into(), text.as_bytes())].into_iter(), "apps:podinfo:staging")
    }

    #[test]
    fn a_misspelled_marker_is_found_with_its_place() {
        let text = "a: 1\nversion: 6.1.5 # {\"$promotion\": \"apps:podinfo:stagin\"}\n";
        assert_eq!(similar(text).as_deref(), Some("apps:podinfo:stagin at staging.yaml:2"));
        let other = text.replace("podinfo:stagin", "search:prod");
        assert_eq!(similar(&other), None, "a marker of another pipeline");
        assert_eq!(similar(&text.replace("stagin", "prod")), None, "a marker of another environment");
        assert_eq!(similar(&text.replace("$promotion", "$imagepolicy")), None);
    }

    #[test]
    fn only_names_are_shown() {
        for name in
            ["apps:podinfo:staging password", "apps:podinfo:stag\u{202e}ing", "podinfo:staging", "a::b"]
        {
            assert_eq!(similar(&format!("v: 1 # {{\"$promotion\": \"{name}\"}}\n")), None, "{name}");
        }
    }
}
