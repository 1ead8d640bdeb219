//! The versions that an API server gives its objects and lists.

use kube::api::ObjectMeta;

/// Returns the resourceVersion of an object as a number, 0 if it has none. Later versions are greater, at every
/// API server (KEP-5504).
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Notes the version of a list. Returns true if the list before had a higher version: the API server was restored
/// from a backup in between.
pub(crate) fn went_back(listed_at: &mut u64, version: u64) -> bool {
    std::mem::replace(listed_at, version) > version
}
