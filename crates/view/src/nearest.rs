//! The existing name that is similar to one that does not exist.

use strsim::levenshtein;

/// Returns the existing name that is similar to an unknown one.
pub fn nearest<'a>(asked: &str, there: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = there.min_by_key(|name| (levenshtein(asked, name), *name))?;
    // Two swapped letters count as two changes.
    let near = levenshtein(asked, nearest) <= asked.chars().count().div_ceil(3).max(2);
    (near || has_part(asked, nearest)).then_some(nearest)
}

/// Returns true if one of two names is a part of the other.
pub fn has_part(asked: &str, name: &str) -> bool {
    asked.len() >= 3 && (name.contains(asked) || asked.contains(name))
}
