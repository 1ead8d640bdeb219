//! The short form of what targets have run, for a status that would be too large with the facets at every target: each revision
//! is written once, and targets refer to it by its number. Pure.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use sluice_core::evidence::{Evidence, Proof};
use sluice_core::{Revision, Time};

/// The most bytes of facets that are written at every target. More would take many times that memory while a status is composed.
const MAX_FULL_BYTES: usize = 512 << 10;

/// The revisions that are written once, each by its facets. Revisions with the same key are the same.
pub(super) struct SharedRevisions<K> {
    places: HashMap<K, usize>,
    revisions: Vec<BTreeMap<String, String>>,
}

impl<K> Default for SharedRevisions<K> {
    fn default() -> Self {
        Self { places: HashMap::new(), revisions: Vec::new() }
    }
}

impl<K: Eq + Hash> SharedRevisions<K> {
    /// Returns the number of a revision.
    pub(super) fn place(&mut self, key: K, facets: impl FnOnce() -> BTreeMap<String, String>) -> usize {
        *self.places.entry(key).or_insert_with(|| {
            self.revisions.push(facets());
            self.revisions.len() - 1
        })
    }

    /// Returns the revisions, in the order of their numbers.
    pub(super) fn into_revisions(self) -> Vec<BTreeMap<String, String>> {
        self.revisions
    }
}

impl SharedRevisions<Revision> {
    /// Returns the revisions to share, if the facets at every target would take too much memory.
    pub(super) fn if_large(evidence: &Evidence) -> Option<Self> {
        (evidence.bytes() > MAX_FULL_BYTES).then(Self::default)
    }

    /// Returns what a target has proven, and what it has run last without a proof, as references.
    pub(super) fn short_form(&mut self, proofs: &[Proof], unproven: Option<&Revision>) -> String {
        let mut place = |revision: &Revision| self.place(revision.clone(), || revision.to_strings());
        let proven =
            proofs.iter().map(|p| proof_text(place(&p.revision), p.arrival, p.run, Time::to_second(p.at)));
        let mut texts: Vec<String> = proven.collect();
        texts.extend(unproven.map(|revision| place(revision).to_string()));
        texts.join(" ")
    }
}

/// Returns the short form of a proof of the revision with this number.
pub(super) fn proof_text(place: usize, arrival: u64, run: u32, at: Time) -> String {
    format!("{place}/{arrival}/{run}/{at}")
}
