//! Versions of charts, and how they and the tags of images are ordered. Flux appends build metadata to them: the digest of an OCI artifact, or the revision of a
//! repository. A revision has the version without it.

use std::cmp::Ordering;

use crate::revision::version;

/// Whether a chart's version is another one than the version that a spec asks for. A range of versions has many, so
/// nothing differs from it.
pub fn differs_from_exact(desired: &str, actual: &str) -> bool {
    let number = |text| version(without_build_metadata(text));
    match (number(desired), number(actual)) {
        (Some(desired), Some(actual)) => desired != actual,
        _ => false,
    }
}

/// Returns a chart's version without its build metadata: `6.6.1` for `6.6.1+0cc9a8446c95`.
pub fn without_build_metadata(version: &str) -> &str {
    version.split_once('+').map_or(version, |(version, _)| version)
}

/// Orders versions of charts and tags of images, the newest first: semantic versions, then numbers such as `1.27`, then other
/// texts from A to Z.
pub fn newest_first(one: &str, other: &str) -> Ordering {
    let numbers =
        |text: &str| text.split('.').map(|number| number.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    // `None` is less than any version.
    (version(other).cmp(&version(one)))
        .then_with(|| numbers(other).cmp(&numbers(one)))
        .then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::{differs_from_exact, newest_first};

    #[test]
    fn the_newest_version_comes_first_and_other_texts_come_last() {
        let mut all = ["latest", "1.9.0", "1.9", "v1.10.0", "1.27", "1.10.0-rc.1", "a"];
        all.sort_by(|one, other| newest_first(one, other));
        assert_eq!(all, ["v1.10.0", "1.10.0-rc.1", "1.9.0", "1.27", "1.9", "a", "latest"]);
    }

    #[test]
    fn only_an_exact_version_can_differ() {
        assert!(differs_from_exact("6.7.1", "6.7.0"));
        assert!(differs_from_exact("1.0.0-1234567", "1.0.0-1234568"));
        for (desired, actual) in [
            ("6.7.1", "6.7.1"),
            ("v6.7.1", "6.7.1+0cc9a8446c95"),
            ("6.x", "5.0.0"),
            ("*", "6.7.1"),
            ("6.7.1", ""),
        ] {
            assert!(!differs_from_exact(desired, actual), "{desired} and {actual}");
        }
    }
}
