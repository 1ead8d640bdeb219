//! Which changes a Kustomization or HelmRelease has made that the watches have not reported yet.
//!
//! A Flux object and its workloads are watched separately. A watch may report that a Kustomization is Ready at a new
//! revision before another one reports that its Deployment has changed. Then the old Deployment, which is still
//! healthy, would prove the new revision. So once a Flux object is Ready at a new revision, the API server is asked
//! what that object owns, and the revision counts when the watches have reported at least those changes.

use super::object_key::ObjectKey;

/// The most missing changes that are kept of one Flux object.
const MAX_MISSING: usize = 4;

/// The version of an object's spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecVersion {
    /// A hash of the object's UID, which tells it from a former object of the same name.
    pub uid: u64,
    /// The generation, which grows with each change of the spec.
    pub generation: i64,
}

impl SpecVersion {
    /// Whether an object of this version has all changes that an earlier answer reported.
    fn includes(self, read: SpecVersion) -> bool {
        self.uid == read.uid && self.generation >= read.generation
    }
}

/// An object that a read of the API server has found, and its version.
pub type FoundObject = (ObjectKey, SpecVersion);

/// The check of a Flux object that is Ready at a new revision. It ends when the watches have reported every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedCheck {
    /// Tells the check from earlier ones of the object.
    pub(super) number: u64,
    /// The number of reads so far that have not ended it.
    pub(super) reads: u32,
    pub(super) answer: OwnedAnswer,
}

/// What is known about the objects that a Flux object owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnedAnswer {
    /// The API server has not answered yet.
    Pending,
    /// The API server has not answered as expected; the text says why.
    Failed(String),
    /// The watches had not reported these changes when the answer arrived, nor others if `more`.
    Missing { first: Box<[FoundObject]>, more: bool },
}

impl OwnedAnswer {
    /// Returns what is missing of the objects that were found; `None` if nothing is. `reported` returns the version
    /// that the watches have reported of an object.
    pub(super) fn missing(
        found: Vec<FoundObject>,
        reported: impl Fn(&ObjectKey) -> Option<SpecVersion>,
    ) -> Option<Self> {
        let is_missing = |(key, read): &FoundObject| !reported(key).is_some_and(|own| own.includes(*read));
        let mut missing = found.into_iter().filter(is_missing);
        let first: Box<[FoundObject]> = missing.by_ref().take(MAX_MISSING).collect();
        (!first.is_empty()).then(|| Self::Missing { first, more: missing.next().is_some() })
    }

    /// Returns why the Flux object does not count yet; `None` if it does. The watches have reported the versions that
    /// `reported` returns; it returns `None` for an object that no watch would report.
    pub(super) fn why_not_yet(
        &self,
        reported: impl Fn(&ObjectKey) -> Option<Option<SpecVersion>>,
    ) -> Option<String> {
        match self {
            Self::Pending => Some("the objects that it owns are being read".into()),
            Self::Failed(why) => Some(why.clone()),
            Self::Missing { first, more } => {
                let is_missing = |(key, read): &&FoundObject| {
                    reported(key).is_some_and(|own| !own.is_some_and(|own| own.includes(*read)))
                };
                match first.iter().find(is_missing) {
                    Some((key, _)) => {
                        Some(format!("the watch has not reported the last change of {key} yet"))
                    }
                    None => more.then(|| "the objects that it owns are being read again".into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Kind;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { kind: Kind::Deployment, namespace: "apps".into(), name: name.into() }
    }

    fn version(uid: u64, generation: i64) -> SpecVersion {
        SpecVersion { uid, generation }
    }

    #[test]
    fn a_change_is_missing_until_the_same_object_has_its_generation() {
        let read = version(1, 5);
        for (reported, is_missing) in [
            (None, true),
            (Some(version(1, 4)), true),
            (Some(version(2, 9)), true),
            (Some(version(1, 5)), false),
            (Some(version(1, 6)), false),
        ] {
            let missing = OwnedAnswer::missing(vec![(key("web"), read)], |_| reported);
            assert_eq!(missing.is_some(), is_missing, "{reported:?}");
            let Some(missing) = missing else { continue };
            assert!(missing.why_not_yet(|_| Some(reported)).is_some_and(|why| why.contains("web")));
            assert_eq!(missing.why_not_yet(|_| Some(Some(read))), None);
            assert_eq!(missing.why_not_yet(|_| None), None, "no watch would report it");
        }
    }

    #[test]
    fn more_changes_than_are_kept_are_missing_until_the_next_read() {
        let found = |count| (0..count).map(|n| (key(&format!("web-{n}")), version(1, 1))).collect::<Vec<_>>();
        let why = |count| {
            let missing = OwnedAnswer::missing(found(count), |_| None).unwrap();
            missing.why_not_yet(|_| Some(Some(version(1, 1))))
        };
        assert_eq!(why(MAX_MISSING), None);
        assert!(why(MAX_MISSING + 1).is_some());
    }
}
