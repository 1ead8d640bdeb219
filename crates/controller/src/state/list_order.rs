//! Which of two lists is the later one.

/// Whether a list is of an earlier time than the one before it, whose version it replaces: the API server was restored
/// from a backup.
pub(super) fn went_back(listed_at: &mut u64, version: u64) -> bool {
    std::mem::replace(listed_at, version) > version
}
