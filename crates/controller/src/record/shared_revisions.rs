//! The short form of what targets have run, for a status that would be too large with the facets at every target: each revision
//! is written once, and targets refer to it. Pure.

use std::collections::{BTreeMap, HashMap};

use sluice_core::evidence::{Evidence, Proof};
use sluice_core::{Revision, Time};

/// The most bytes of facets that are written at every target. More would take many times that memory while a status is composed.
const MAX_FULL_BYTES: usize = 512 << 10;

/// The revisions that are written once.
#[derive(Default)]
pub(super) struct SharedRevisions {
    places: HashMap<Revision, usize>,
    revisions: Vec<BTreeMap<String, String>>,
}

impl SharedRevisions {
    /// Returns the revisions to share, if the facets at every target would take too much memory.
    pub(super) fn if_large(evidence: &Evidence) -> Option<Self> {
        (evidence.bytes() > MAX_FULL_BYTES).then(Self::default)
    }

    /// Returns what a target has proven, and what it has run last without a proof, as references.
    pub(super) fn short_form(&mut self, proofs: &[Proof], unproven: Option<&Revision>) -> String {
        let mut texts: Vec<String> = proofs
            .iter()
            .map(|p| proof_text(self.place(&p.revision), p.arrival, p.run, Time::to_second(p.at)))
            .collect();
        texts.extend(unproven.map(|revision| self.place(revision).to_string()));
        texts.join(" ")
    }

    fn place(&mut self, revision: &Revision) -> usize {
        if let Some(place) = self.places.get(revision) {
            return *place;
        }
        self.revisions.push(revision.to_strings());
        self.places.insert(revision.clone(), self.revisions.len() - 1);
        self.revisions.len() - 1
    }

    /// Returns the revisions, in the order of their numbers.
    pub(super) fn into_revisions(self) -> Vec<BTreeMap<String, String>> {
        self.revisions
    }
}

/// Returns the short form of a proof of the revision with this number.
pub(super) fn proof_text(place: usize, arrival: u64, run: u32, at: Time) -> String {
    format!("{place}/{arrival}/{run}/{at}")
}
