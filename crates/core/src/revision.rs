//! Revisions: the values of the facets that a pipeline tracks, each of one workload. Two environments run the same
//! revision if these values are equal.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// One aspect of what a workload runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facet {
    /// The version of the chart, without build metadata.
    Chart,
    /// The `appVersion` of the chart.
    App,
    /// The tag of an OCI source.
    Tag,
    /// The digest of an OCI source.
    Digest,
    /// The revision of the source, as Flux prints it.
    Source,
    /// The tag of an image, or its digest if it has no tag; the value is the image's repository.
    Image(String),
}

impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Facet::Chart => f.write_str("chart"),
            Facet::App => f.write_str("app"),
            Facet::Tag => f.write_str("tag"),
            Facet::Digest => f.write_str("digest"),
            Facet::Source => f.write_str("source"),
            Facet::Image(repository) => write!(f, "image:{repository}"),
        }
    }
}

/// The error for a text that does not name a facet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a facet: write chart, app, tag, digest, source or image:<repository>")]
pub struct InvalidFacet(pub String);

impl FromStr for Facet {
    type Err = InvalidFacet;

    fn from_str(text: &str) -> Result<Self, InvalidFacet> {
        Ok(match text {
            "chart" => Facet::Chart,
            "app" => Facet::App,
            "tag" => Facet::Tag,
            "digest" => Facet::Digest,
            "source" => Facet::Source,
            other => match other.strip_prefix("image:") {
                Some(repository) if !repository.is_empty() => Facet::Image(repository.into()),
                _ => return Err(InvalidFacet(text.into())),
            },
        })
    }
}

/// A facet of one workload: workloads are matched between environments by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FacetKey {
    /// The workload's kind: Kustomization or HelmRelease.
    pub kind: String,
    /// The workload's name.
    pub name: String,
    /// The aspect of the workload.
    pub facet: Facet,
}

impl fmt::Display for FacetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.kind, self.name, self.facet)
    }
}

impl FromStr for FacetKey {
    type Err = InvalidFacet;

    fn from_str(text: &str) -> Result<Self, InvalidFacet> {
        let wrong = || InvalidFacet(text.into());
        let (workload, facet) = text.split_once(':').ok_or_else(wrong)?;
        let (kind, name) = workload.split_once('/').ok_or_else(wrong)?;
        Ok(FacetKey { kind: kind.into(), name: name.into(), facet: facet.parse()? })
    }
}

/// The values of the tracked facets, never empty. Revisions are compared, proven and promoted.
///
/// A controller keeps thousands of them, mostly of one facet: a sorted list takes the least memory, and copies share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(Arc<[(FacetKey, String)]>);

impl Revision {
    /// Returns the revision with these facets, or `None` if there are none.
    pub fn new(facets: BTreeMap<FacetKey, String>) -> Option<Self> {
        (!facets.is_empty()).then(|| Self(facets.into_iter().collect()))
    }

    /// Returns the revision with one facet.
    pub fn of_one(key: FacetKey, value: String) -> Self {
        Self(Arc::new([(key, value)]))
    }

    /// Reads a revision from the form that Kubernetes objects store. Keys that name no facet are left out.
    pub fn from_strings(facets: &BTreeMap<String, String>) -> Option<Self> {
        Self::new(facets.iter().filter_map(|(k, v)| Some((k.parse().ok()?, v.clone()))).collect())
    }

    /// Returns the form that Kubernetes objects store.
    pub fn to_strings(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(k, v)| (k.to_string(), v.clone())).collect()
    }

    /// Returns the value of one facet.
    pub(crate) fn value(&self, key: &FacetKey) -> Option<&str> {
        self.0.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|i| self.0[i].1.as_str())
    }

    /// Returns the place in memory of its facets, which only equal revisions share.
    pub(crate) fn address(&self) -> *const (FacetKey, String) {
        self.0.as_ptr()
    }

    /// Returns the part of the revision that has the facets of another one; `None` if there is none.
    pub(crate) fn with_facets_of(&self, other: &Revision) -> Option<Revision> {
        let own = self.0.iter().filter(|(key, _)| other.value(key).is_some());
        Self::new(own.cloned().collect())
    }

    /// Returns the revision as `known` has it, or adds it there: equal revisions then take memory once.
    pub fn shared_in(self, known: &mut HashSet<Revision>) -> Revision {
        if let Some(same) = known.get(&self) {
            return same.clone();
        }
        known.insert(self.clone());
        self
    }

    /// Returns the revision with the facets of another one that it does not have itself.
    pub(crate) fn with_missing_of(self, other: &Revision) -> Revision {
        let missing: Vec<_> = other.0.iter().filter(|(key, _)| self.value(key).is_none()).cloned().collect();
        if missing.is_empty() {
            self
        } else {
            Self(self.0.iter().cloned().chain(missing).collect::<BTreeMap<_, _>>().into_iter().collect())
        }
    }

    /// Returns the newer of two revisions with the facets that only the older one has; the one that there is if there is one.
    pub(crate) fn completed(newer: Option<Revision>, older: Option<&Revision>) -> Option<Revision> {
        match (newer, older) {
            (Some(newer), Some(older)) => Some(newer.with_missing_of(older)),
            (newer, older) => newer.or_else(|| older.cloned()),
        }
    }

    /// Returns the part of the revision of which neither of the others has the same facet: `shown` any value of it, `proven` the
    /// same value. `None` if there is none.
    pub(crate) fn without(&self, shown: &Revision, proven: Option<&Revision>) -> Option<Revision> {
        let is_proven = |key: &FacetKey, value: &str| proven.is_some_and(|r| r.value(key) == Some(value));
        let own = self.0.iter().filter(|(key, value)| shown.value(key).is_none() && !is_proven(key, value));
        Self::new(own.cloned().collect())
    }

    /// Returns the part of the revision with these facets; `None` if it has none of them.
    pub(crate) fn restricted_to_facets(&self, facets: &BTreeSet<&FacetKey>) -> Option<Revision> {
        Self::new(self.0.iter().filter(|(key, _)| facets.contains(key)).cloned().collect())
    }

    /// Returns the part of the revision that belongs to workloads of which `shown` has no facet; `None` if there is none.
    pub(crate) fn of_workloads_not_in(&self, shown: &Revision) -> Option<Revision> {
        // They are in the order of their workloads.
        let is_shown = |key: &FacetKey| {
            let order = |other: &FacetKey| (&other.kind, &other.name).cmp(&(&key.kind, &key.name));
            shown.0.binary_search_by(|(other, _)| order(other)).is_ok()
        };
        Self::new(self.0.iter().filter(|(key, _)| !is_shown(key)).cloned().collect())
    }

    /// Returns the facets with their values, in the order of their keys.
    pub fn facets(&self) -> impl Iterator<Item = (&FacetKey, &str)> {
        self.0.iter().map(|(k, v)| (k, v.as_str()))
    }

    /// Returns about how many bytes of memory it takes if no other revision shares them.
    pub fn bytes(&self) -> usize {
        let facet = |(key, value): &(FacetKey, String)| {
            let text = match &key.facet {
                Facet::Image(repository) => repository.len(),
                _ => 0,
            };
            size_of::<(FacetKey, String)>() + key.kind.len() + key.name.len() + text + value.len()
        };
        self.0.iter().map(facet).sum()
    }

    /// Returns the length of its facets and values as texts, in bytes.
    pub fn text_len(&self) -> usize {
        self.0.iter().map(|(key, value)| text_len(&key.kind, &key.name, &key.facet, value)).sum()
    }

    /// Returns true if `other` has every facet of this revision with the same value.
    pub fn is_run_by(&self, other: &Revision) -> bool {
        self.facets().all(|(k, v)| other.value(k) == Some(v))
    }

    /// Returns the part of the revision that belongs to these workloads, by kind and name.
    pub fn restricted_to(&self, workloads: &BTreeSet<(&str, &str)>) -> Option<Revision> {
        let keep = |k: &FacetKey| workloads.contains(&(k.kind.as_str(), k.name.as_str()));
        Self::new(self.0.iter().filter(|(k, _)| keep(k)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// Returns true if this revision is older than `other` by semantic versioning: a facet that both have is older
    /// here, whatever the other facets are. `None` if no facet is older, and some cannot be compared.
    ///
    /// Two pre-releases of one version, such as `1.0.0-1a2b3c4` and `1.0.0-9f8e7d6`, cannot be compared if
    /// the first dot-separated identifier in which they differ contains a hash: hashes have no order. A hash
    /// is 7 to 64 hexadecimal digits, with or without the `g` of `git describe`, between hyphens or alone.
    /// Digits that are a date (`20240131`, or a date and a time) are a number.
    pub fn is_older_than(&self, other: &Revision) -> Option<bool> {
        let mut comparable = true;
        for (key, ours) in self.facets() {
            let Some(theirs) = other.value(key).filter(|theirs| *theirs != ours) else { continue };
            match (version(ours), version(theirs)) {
                (Some(ours), Some(theirs)) if differ_by_hash(&ours, &theirs) => comparable = false,
                (Some(ours), Some(theirs)) if ours.cmp_precedence(&theirs).is_lt() => return Some(true),
                (Some(_), Some(_)) => {}
                _ => comparable = false,
            }
        }
        comparable.then_some(false)
    }
}

/// Parses a version with or without a leading `v`.
pub(crate) fn version(text: &str) -> Option<semver::Version> {
    semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// Returns true if the first difference of two versions is in a pre-release identifier that contains a hash.
fn differ_by_hash(one: &semver::Version, other: &semver::Version) -> bool {
    let numbers = |v: &semver::Version| (v.major, v.minor, v.patch);
    let mut identifiers = one.pre.split('.').zip(other.pre.split('.'));
    let differing = identifiers.find(|(a, b)| a != b).filter(|_| numbers(one) == numbers(other));
    // A version without a pre-release has one empty identifier here, and is newer than all that have one.
    let both = differing.filter(|(a, b)| !a.is_empty() && !b.is_empty());
    both.is_some_and(|(a, b)| [a, b].iter().any(|identifier| identifier.split('-').any(is_hash)))
}

/// Returns true if a text looks like a hash, whole or abbreviated. Git abbreviates to 7 digits or more.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix('g').unwrap_or(text);
    (7..=64).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit()) && !is_date(text)
}

/// Returns true if a text is a date as in version numbers: year, month and day, with or without a time.
fn is_date(text: &str) -> bool {
    let number = |at: std::ops::Range<usize>| text.get(at).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0);
    matches!(text.len(), 8 | 10 | 12 | 14)
        && text.bytes().all(|b| b.is_ascii_digit())
        && (1970..2200).contains(&number(0..4))
        && (1..=12).contains(&number(4..6))
        && (1..=31).contains(&number(6..8))
}

/// Returns the length of one facet and its value as a text, in bytes.
pub(crate) fn text_len(kind: &str, name: &str, facet: &Facet, value: &str) -> usize {
    let facet = match facet {
        Facet::Image(repository) => "image:".len() + repository.len(),
        _ => "digest".len(),
    };
    kind.len() + "/".len() + name.len() + ":".len() + facet + value.len()
}

/// Writes the value if all facets have the same one, else each facet with its value. Workloads are named only if there
/// are several.
impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: BTreeSet<&str> = self.facets().map(|(_, v)| v).collect();
        if let (1, Some(value)) = (values.len(), values.first()) {
            return f.write_str(value);
        }
        let workloads: BTreeSet<_> = self.facets().map(|(k, _)| (&k.kind, &k.name)).collect();
        for (i, (key, value)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            if workloads.len() > 1 {
                write!(f, "{}/", key.name)?;
            }
            match &key.facet {
                Facet::Image(repository) => {
                    write!(f, "{}:{value}", repository.rsplit('/').next().unwrap_or(repository))?
                }
                facet => write!(f, "{facet}={value}")?,
            }
        }
        Ok(())
    }
}

/// Returns a revision with its long checksums cut to eight digits, as the flux command line shows it.
pub fn shortened(revision: &str) -> String {
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let mut text = String::new();
    let mut rest = revision;
    while let Some(start) = rest.find(is_hex) {
        let (before, run) = rest.split_at(start);
        let (run, after) = run.split_at(run.find(|c| !is_hex(c)).unwrap_or(run.len()));
        text += before;
        text += if (40..=128).contains(&run.len()) { &run[..8] } else { run };
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(facets: &[(&str, &str)]) -> Revision {
        let strings = facets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Revision::from_strings(&strings).unwrap()
    }

    #[test]
    fn keys_are_written_and_read_back() {
        for text in [
            "HelmRelease/podinfo:chart",
            "Kustomization/podinfo:image:registry:5000/team/podinfo",
            "Kustomization/a.b:source",
        ] {
            assert_eq!(text.parse::<FacetKey>().unwrap().to_string(), text);
        }
        for text in ["", "podinfo:chart", "HelmRelease/podinfo", "HelmRelease/podinfo:colour", "a/b:image:"] {
            assert!(text.parse::<FacetKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_text_is_as_short_as_it_can_be_without_ambiguity() {
        assert_eq!(revision(&[("HelmRelease/a:chart", "6.1.8")]).to_string(), "6.1.8");
        assert_eq!(
            revision(&[("HelmRelease/a:chart", "6.1.8"), ("HelmRelease/b:chart", "6.1.8")]).to_string(),
            "6.1.8"
        );
        assert_eq!(
            revision(&[("HelmRelease/a:chart", "1.4.0"), ("HelmRelease/a:image:ghcr.io/x/app", "2.7")])
                .to_string(),
            "chart=1.4.0 app:2.7"
        );
        assert_eq!(
            revision(&[("HelmRelease/a:chart", "1"), ("HelmRelease/b:chart", "2")]).to_string(),
            "a/chart=1 b/chart=2"
        );
    }

    #[test]
    fn a_revision_is_older_if_one_version_is_lower() {
        let chart = |v: &str| revision(&[("HelmRelease/a:chart", v)]);
        assert_eq!(chart("6.1.5").is_older_than(&chart("6.1.8")), Some(true));
        assert_eq!(chart("6.1.10").is_older_than(&chart("6.1.9")), Some(false));
        assert_eq!(chart("1.0.0-rc.1").is_older_than(&chart("1.0.0")), Some(true));
        assert_eq!(chart("v1.2.3").is_older_than(&chart("1.3.0")), Some(true));
        assert_eq!(chart("main@sha1:aa").is_older_than(&chart("main@sha1:bb")), None);
        let both = |a: &str, b: &str| revision(&[("HelmRelease/a:chart", a), ("HelmRelease/a:app", b)]);
        assert_eq!(both("1.0.0", "2.0.0").is_older_than(&both("1.1.0", "1.0.0")), Some(true));
        assert_eq!(both("1.1.0", "blue").is_older_than(&both("1.0.0", "red")), None);
        assert_eq!(both("1.0.0", "blue").is_older_than(&both("1.1.0", "red")), Some(true));
    }

    #[test]
    fn hashes_in_pre_releases_have_no_order() {
        let chart = |v: &str| revision(&[("HelmRelease/a:chart", v)]);
        for (one, other) in [
            ("1.0.0-1234567", "1.0.0-9f8e7d6"),
            ("1.0.0-1234567", "1.0.0-7654321"),
            ("1.0.0-0abc123def456", "1.0.0-fedcba654321"),
            ("1.0.0-g1a2b3c4", "1.0.0-gffffff0"),
            ("1.0.0-main.1a2b3c4", "1.0.0-main.9f8e7d6"),
            ("1.0.0-main-1a2b3c4", "1.0.0-main-9f8e7d6"),
            ("1.0.0-5-g1a2b3c4", "1.0.0-12-g9f8e7d6"),
            ("1.0.0-rc.1", "1.0.0-1a2b3c4"),
            ("1.0.0-20240101-1a2b3c4", "1.0.0-20240102-9f8e7d6"),
        ] {
            assert_eq!(chart(one).is_older_than(&chart(other)), None, "{one} and {other}");
            assert_eq!(chart(other).is_older_than(&chart(one)), None, "{other} and {one}");
        }
        for (older, newer) in [
            // The version numbers, and the identifiers before the hash, decide.
            ("1.0.0-fffffff", "1.0.1-0a0a0a0"),
            ("1.0.0-1a2b3c4", "1.0.0"),
            ("1.0.0-alpha.fffffff", "1.0.0-beta.0a0a0a0"),
            ("1.0.0-9.fffffff", "1.0.0-10.0a0a0a0"),
            // Numbers, dates and words are no hashes.
            ("1.0.0-9", "1.0.0-123456"),
            ("1.0.0-20240131", "1.0.0-20240201"),
            ("1.0.0-20240131235959", "1.0.0-20240201000000"),
            ("1.0.0-rc.1", "1.0.0-snapshot"),
        ] {
            assert_eq!(chart(older).is_older_than(&chart(newer)), Some(true), "{older} and {newer}");
            assert_eq!(chart(newer).is_older_than(&chart(older)), Some(false), "{newer} and {older}");
        }
    }

    #[test]
    fn checksums_are_cut_as_in_flux() {
        for (whole, cut) in [
            ("main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f", "main@sha1:1eabc9a4"),
            ("6.1.8", "6.1.8"),
            (
                "6.1.8@sha256:0cc9a8446c95009ef382f5eade883a67c257f77d50f84e78ecef2aac9428d1e5",
                "6.1.8@sha256:0cc9a844",
            ),
        ] {
            assert_eq!(shortened(whole), cut);
        }
    }
}
