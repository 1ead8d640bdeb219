//! The existing name that is similar to one that does not exist.

use strsim::levenshtein;

/// Returns the existing name that is similar to an unknown one: a third of the characters may differ, and always two.
pub fn nearest<'a>(asked: &str, there: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Two swapped letters count as two changes.
    nearest_within(asked, there, asked.chars().count().div_ceil(3).max(2))
}

/// Returns the existing name that is similar to an unknown one: at most `max_changes` characters differ, or one of the two
/// names is a part of the other.
pub fn nearest_within<'a>(
    asked: &str,
    there: impl Iterator<Item = &'a str>,
    max_changes: usize,
) -> Option<&'a str> {
    let nearest = there.min_by_key(|name| (levenshtein(asked, name), *name))?;
    let is_part = asked.len() >= 3 && (nearest.contains(asked) || asked.contains(nearest));
    (is_part || levenshtein(asked, nearest) <= max_changes).then_some(nearest)
}
