//! Writes a version into a value that is an image reference: the repository stays, tag and digest are replaced. Any other
//! value is replaced as a whole.

use crate::revision::Facet;

/// A version that cannot be written into an image reference.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageError {
    /// The reference is of another repository than the facet's.
    OtherImage { wanted: String },
    /// The reference has neither tag nor digest to replace.
    NoTag,
    /// The version cannot be a tag.
    NotATag,
}

/// Returns the value that replaces `old` if the facet is at `new`.
///
/// | old | new | becomes |
/// | --- | --- | --- |
/// | `6.1.5` | `6.1.8` | `6.1.8` |
/// | `repo/app:6.1.5` or `repo/app:6.1.5@sha256:…` | `6.1.8` | `repo/app:6.1.8` |
/// | `repo/app:6.1.5` or `repo/app@sha256:…` | `sha256:new` | `repo/app@sha256:new`, because the old tag is another version |
/// | `6.1.5@sha256:…` | `6.1.8` | `6.1.8` |
/// | `6.1.5@sha256:…` | `sha256:new` | `6.1.5@sha256:new`: templates append it to `repo:` |
/// | tag or digest is `new` already | | stays |
///
/// A revision of a source is never written into a reference. A version that looks like a reference, such as `app:1`, is never
/// written.
pub(super) fn put(old: &str, facet: &Facet, new: &str) -> Result<String, ImageError> {
    if *facet == Facet::Source {
        return Ok(new.into());
    }
    let (left, digest) = split_digest(old);
    let Some(reference) = Reference::of(old, facet) else {
        return Ok(match digest {
            Some(same) if left == new || same == new => old.into(),
            Some(_) if is_digest(new) && is_tag(left) => format!("{left}@{new}"),
            // The next version would take the place of its tag only, and a part of this one would stay.
            _ if Reference::of(new, facet).is_some() => return Err(ImageError::NotATag),
            _ => new.into(),
        });
    };
    if let Facet::Image(wanted) = facet
        && !same_repository(reference.repository, wanted)
    {
        return Err(ImageError::OtherImage { wanted: wanted.clone() });
    }
    if reference.tag.is_none() && digest.is_none() {
        return Err(ImageError::NoTag);
    }
    if reference.tag == Some(new) || digest == Some(new) {
        return Ok(old.into());
    }
    if is_digest(new) {
        return Ok(format!("{}@{new}", reference.repository));
    }
    match split_digest(new) {
        (tag, _) if is_tag(tag) => Ok(format!("{}:{new}", reference.repository)),
        _ => Err(ImageError::NotATag),
    }
}

struct Reference<'a> {
    repository: &'a str,
    tag: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// Reads a value, which may end in a digest.
    fn of(text: &'a str, facet: &Facet) -> Option<Self> {
        let (left, digest) = split_digest(text);
        Self::parse(left, digest, facet)
    }

    /// Reads `[registry[:port]/]name[:tag]`. Without any `/` it must be `name:tag`, or the very
    /// repository of an image facet, to count as a reference.
    fn parse(left: &'a str, digest: Option<&str>, facet: &Facet) -> Option<Self> {
        if left.chars().any(char::is_whitespace) || is_digest(left) {
            return None;
        }
        let name = left.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match left[name..].rfind(':') {
            Some(colon) => (&left[..name + colon], Some(&left[name + colon + 1..])),
            None => (left, None),
        };
        let tag = tag.filter(|tag| is_tag(tag) || tag.starts_with("${"));
        if name > 0 {
            // If the part after the last colon is no tag, the whole text is the repository.
            return Some(Self { repository: if tag.is_some() { repository } else { left }, tag });
        }
        if matches!(facet, Facet::Image(wanted) if same_repository(repository, wanted)) {
            return Some(Self { repository, tag });
        }
        let name_and_tag = tag.is_some() && is_name(repository) && (digest.is_none() || !is_tag(left));
        name_and_tag.then_some(Self { repository, tag })
    }
}

fn split_digest(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('@') {
        Some((left, digest)) if is_digest(digest) => (left, Some(digest)),
        _ => (text, None),
    }
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, sum)| {
        matches!(algorithm, "sha1" | "sha256" | "sha384" | "sha512" | "blake3")
            && !sum.is_empty()
            && sum.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// Returns true for the name of a repository without registry and path. It has at least one letter: `12:30` is no image.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// Returns true if two texts name one repository. A variable that Flux substitutes (`${REGISTRY}/app`) can be anything:
/// only the text after it has to be equal.
fn same_repository(found: &str, wanted: &str) -> bool {
    let (found, wanted) = (full_name(found), full_name(wanted));
    match found.rfind('}') {
        Some(brace) if found.contains("${") => wanted.ends_with(&found[brace + 1..]),
        _ => found == wanted,
    }
}

/// Returns the repository without the default registry and path of Docker.
fn full_name(repository: &str) -> &str {
    let name = repository.strip_prefix("oci://").unwrap_or(repository);
    let hub = ["index.docker.io/", "registry-1.docker.io/", "docker.io/"];
    let name = hub.iter().find_map(|host| name.strip_prefix(host)).unwrap_or(name);
    name.strip_prefix("library/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_kept() {
        for (old, facet, new, expected) in [
            ("6.1.5", "chart", "6.1.8", "6.1.8"),
            ("6.1.5", "image:ghcr.io/x/app", "6.1.8", "6.1.8"),
            ("ghcr.io/x/app:6.1.5", "image:ghcr.io/x/app", "6.1.8", "ghcr.io/x/app:6.1.8"),
            ("reg:5000/x/app:1", "image:reg:5000/x/app", "2", "reg:5000/x/app:2"),
            ("ghcr.io/x/app:6.1.5", "tag", "6.1.8", "ghcr.io/x/app:6.1.8"),
            ("ghcr.io/x/app:6.1.5", "app", "6.1.8", "ghcr.io/x/app:6.1.8"),
            ("ghcr.io/x/app:6.1.5", "chart", "6.1.8", "ghcr.io/x/app:6.1.8"),
            ("oci://ghcr.io/x/app:6.1.5", "tag", "6.1.8", "oci://ghcr.io/x/app:6.1.8"),
            ("oci://ghcr.io/x/app:6.1.5", "image:ghcr.io/x/app", "6.1.8", "oci://ghcr.io/x/app:6.1.8"),
            ("x/app:1@sha256:aa", "image:x/app", "2", "x/app:2"),
            ("x/app@sha256:aa", "image:x/app", "2", "x/app:2"),
            ("x/app:1@sha256:aa", "image:x/app", "1", "x/app:1@sha256:aa"),
            ("x/app:1", "digest", "sha256:bb", "x/app@sha256:bb"),
            ("x/app:1@sha256:aa", "digest", "sha256:bb", "x/app@sha256:bb"),
            ("x/app:1@sha256:bb", "digest", "sha256:bb", "x/app:1@sha256:bb"),
            ("x/app:1", "image:x/app", "sha256:bb", "x/app@sha256:bb"),
            ("sha256:aa", "digest", "sha256:bb", "sha256:bb"),
            ("1.0@sha256:aa", "tag", "1.1", "1.1"),
            ("1.0@sha256:aa", "tag", "1.0", "1.0@sha256:aa"),
            ("1.0@sha256:aa", "digest", "sha256:bb", "1.0@sha256:bb"),
            ("redis:7", "image:docker.io/library/redis", "7.2", "redis:7.2"),
            ("docker.io/redis:7", "image:redis", "7.2", "docker.io/redis:7.2"),
            ("redis:7", "tag", "7.2", "redis:7.2"),
            ("redis@sha256:aa", "image:redis", "7.2", "redis:7.2"),
            ("12:30", "tag", "7.2", "7.2"),
            (">=6.0.0 <7.0.0", "chart", "6.1.8", "6.1.8"),
            ("main@sha1:aa", "source", "main@sha1:bb", "main@sha1:bb"),
            ("ghcr.io/x/app:1", "source", "main@sha1:bb", "main@sha1:bb"),
            ("${REGISTRY}/app:1", "image:ghcr.io/x/app", "2", "${REGISTRY}/app:2"),
            ("${REGISTRY:=ghcr.io/x}/app:${TAG}", "image:ghcr.io/x/app", "2", "${REGISTRY:=ghcr.io/x}/app:2"),
            ("${TAG}", "tag", "2", "2"),
            ("", "tag", "2", "2"),
        ] {
            assert_eq!(put(old, &facet.parse().unwrap(), new), Ok(expected.into()), "{old} {facet} {new}");
        }
    }

    #[test]
    fn other_images_and_invalid_tags_are_errors() {
        let other = |wanted: &str| ImageError::OtherImage { wanted: wanted.into() };
        for (old, facet, new, expected) in [
            ("x/other:1", "image:x/app", "2", other("x/app")),
            ("redis:7", "image:x/app", "2", other("x/app")),
            ("${REGISTRY}/other:1", "image:x/app", "2", other("x/app")),
            ("ghcr.io/x/app", "image:ghcr.io/x/app", "2", ImageError::NoTag),
            ("ghcr.io/x/app", "tag", "2", ImageError::NoTag),
            ("redis", "image:redis", "2", ImageError::NoTag),
            ("https://host:8080/x", "tag", "2", ImageError::NoTag),
            ("x/app:1", "chart", "1.0.0+build", ImageError::NotATag),
            ("x/app:1", "tag", "a b", ImageError::NotATag),
            ("6.1.5", "chart", "app:1", ImageError::NotATag),
            ("6.1.5", "app", "x/app:1", ImageError::NotATag),
            ("6.1.5", "app", "x/app@sha256:aa", ImageError::NotATag),
        ] {
            assert_eq!(put(old, &facet.parse().unwrap(), new), Err(expected), "{old} {facet} {new}");
        }
    }
}
