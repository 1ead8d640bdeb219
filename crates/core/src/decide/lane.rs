//! The environment, or the one target of it, that is decided about.

use std::cell::OnceCell;

use super::facts::Facts;
use super::readers::Readers;
use crate::evidence::{Proof, Proven};
use crate::observed::ObservedTarget;
use crate::pipeline::Environment;
use crate::repository::Repository;
use crate::revision::Revision;

/// The facts, with the environment or target that is decided about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    /// The facts of the whole pipeline.
    pub facts: Facts<'a>,
    /// The environment, or one target of it, as returned by [`Environment::lanes`].
    pub environment: &'a Environment,
    /// What is the same for all lanes of the environment.
    pub shared: &'a SharedFacts,
    /// How many bytes the revisions of further promotions of the pipeline may take.
    pub room: usize,
}

/// Facts about an environment that are the same for all its lanes. Each is found out once: an environment has up to 128 lanes.
#[derive(Debug, Default)]
pub(super) struct SharedFacts {
    /// What the predecessors of the environment have proven.
    pub proven: Proven,
    readers: OnceCell<Readers>,
}

impl SharedFacts {
    /// Returns the facts about an environment.
    pub(super) fn of(facts: Facts<'_>, environment: &Environment) -> SharedFacts {
        let policy = environment.policy.as_ref().filter(|_| !environment.depends_on.is_empty());
        let proven =
            policy.map(|policy| facts.evidence.proven(facts.pipeline, environment, policy.min_ready));
        SharedFacts { proven: proven.unwrap_or_default(), readers: OnceCell::new() }
    }

    /// Returns which targets read the branch that promotions into the environment write to.
    pub(super) fn readers(&self, facts: Facts<'_>, written: &Repository) -> &Readers {
        self.readers.get_or_init(|| Readers::of(facts, written))
    }
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

    /// Whether promotions are written to a branch. Otherwise a receiver does the work.
    pub(super) fn writes_to_branch(self) -> bool {
        self.environment.policy.as_ref().is_some_and(|policy| policy.writes_to.is_some())
    }

    /// Returns the revision that a target has run last, healthily or not, also if it cannot be read now. A facet that it does not
    /// show now is as it was.
    pub(super) fn ran_last(self, target: &str) -> Option<Revision> {
        let last = self.facts.evidence.last(&self.environment.name, target);
        Revision::completed(self.running(target), last.as_ref())
    }

    /// Returns the proofs of a target, oldest first.
    pub(super) fn proofs(self, target: &str) -> &'a [Proof] {
        self.facts.evidence.of(&self.environment.name, target)
    }
}
