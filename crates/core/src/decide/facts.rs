//! The input of a decision.

use jiff::Timestamp;

use crate::evidence::{Evidence, Proof, Proven};
use crate::observed::{ObservedTarget, ObservedTargets};
use crate::pipeline::{Environment, Pipeline};
use crate::promotion::Promotion;
use crate::revision::Revision;

/// Everything that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The pipeline as its owner wrote it.
    pub pipeline: &'a Pipeline,
    /// The observed state of the targets.
    pub observed: &'a ObservedTargets,
    /// The revisions that the targets have proven, those of this observation included.
    pub evidence: &'a Evidence,
    /// The recorded promotions of this pipeline, in any order.
    pub promotions: &'a [Promotion],
    /// Why the API server does not check who approves; `None` if it does.
    pub unguarded: Option<&'a str>,
    /// The current time. Only deadlines and retries depend on it.
    pub now: Timestamp,
}

/// The facts, with the environment or target that is decided about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    /// The facts of the whole pipeline.
    pub facts: Facts<'a>,
    /// The environment, or one target of it, as returned by [`Environment::lanes`].
    pub environment: &'a Environment,
    /// What its predecessors have proven.
    pub proven: &'a Proven,
}

impl<'a> Lane<'a> {
    /// Returns the observed state of a target, if it was observed.
    pub(super) fn observed(self, target: &str) -> Option<&'a ObservedTarget> {
        self.facts.observed.target(&self.environment.name, target)
    }

    /// Returns the revision that a target runs, as far as it is known.
    pub(super) fn running(self, target: &str) -> Option<Revision> {
        self.observed(target)?.revision(&self.facts.pipeline.tracks)
    }

    /// Returns the proofs of a target, oldest first.
    pub(super) fn proofs(self, target: &str) -> &'a [Proof] {
        self.facts.evidence.of(&self.environment.name, target)
    }
}
