//! The revision of an OCI artifact, as Flux writes it.

/// Returns the tag and the digest of an OCI revision. Its forms are `6.1.8@sha256:...` and `sha256:...`, and
/// before Flux 0.40 a digest without its algorithm, alone or after a tag and a slash.
pub(super) fn tag_and_digest(revision: &str) -> (Option<String>, Option<String>) {
    let is_sum = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some((tag, digest)) = revision.rsplit_once('@') {
        return (Some(tag.into()), Some(digest.into()));
    }
    match revision.rsplit_once('/') {
        Some((tag, sum)) if is_sum(sum) => (Some(tag.into()), Some(format!("sha256:{sum}"))),
        _ if is_sum(revision) => (None, Some(format!("sha256:{revision}"))),
        _ if revision.contains(':') => (None, Some(revision.into())),
        _ => (Some(revision.into()), None),
    }
}
