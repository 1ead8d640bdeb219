//! Versions of charts. Flux appends build metadata to them: the digest of an OCI artifact, or the revision of a
//! repository. A revision has the version without it.

/// Returns a chart's version without its build metadata: `6.6.1` for `6.6.1+0cc9a8446c95`.
pub fn without_build_metadata(version: &str) -> &str {
    version.split_once('+').map_or(version, |(version, _)| version)
}
