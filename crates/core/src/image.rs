//! References of container images, as workloads and charts write them.

/// Returns the repository of an image, and its tag, else its digest, else `latest`. The port of a registry is not
/// a tag.
pub fn parts(reference: &str) -> (String, String) {
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    match rest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository.into(), tag.into()),
        _ => (rest.into(), digest.unwrap_or("latest").into()),
    }
}
