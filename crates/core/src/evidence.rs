//! Proofs: the revisions that each target has run healthily, in the order of their arrival. A proof stays valid when
//! the target runs another revision, fails or cannot be read any more. Arrivals are counted and not timed, so that
//! clocks cannot change their order. What a target has run last without being healthy is kept beside them: a target that
//! cannot be read still runs that, and not what it has proven before.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::observed::{Health, ObservedTarget, ObservedTargets, is_tracked};
use crate::pipeline::{Environment, MinReady, Pipeline, Policy};
use crate::promotion::Promotion;
pub use crate::proof::Proof;
use crate::proven::{self, TargetProofs};
use crate::revision::{FacetKey, Revision};

/// How many proofs are kept for each target, whether an environment needs them or not.
pub const MIN_PROOFS: usize = 10;
/// The most proofs that are kept for a target, while an environment needs them.
pub const MAX_PROOFS: usize = 64;
/// The most proofs that are kept for all targets of a pipeline together, unless [`MIN_PROOFS`] for each target are
/// more. A proof takes about 300 bytes of the status.
const MAX_PROOFS_OF_PIPELINE: usize = 2000;

/// The most bytes of the proofs of a pipeline, unless the newest one of each target takes more. A revision has as many facets as
/// its owner wants, and the status keeps no more than a mebibyte of them.
const MAX_BYTES_OF_PIPELINE: usize = 8 << 20;

/// The most revisions that targets run now and that are compared with a proof of other facets.
const MAX_COMPARED: usize = 32;

/// The proofs of a pipeline, by environment and target, each list oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    proofs: BTreeMap<String, BTreeMap<String, Vec<Proof>>>,
    unproven: BTreeMap<String, BTreeMap<String, Revision>>,
}

/// What the predecessors of an environment have proven.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proven {
    /// The revision that may be promoted.
    pub candidate: Option<Candidate>,
    /// The newest revision that not enough targets have proven yet, if it is newer than the candidate.
    pub upcoming: Option<Shortfall>,
}

/// A revision that may be promoted into an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The revision.
    pub revision: Revision,
    /// When enough targets had proven the revision, in the order of arrivals.
    pub arrival: u64,
    /// How many times the revision had come back before.
    pub run: u32,
    /// The targets that have proven the revision: environment, target and time.
    pub proven_by: Arc<[ProvenBy]>,
}

/// A target that has proven a revision: the environment, the target, and the time.
pub type ProvenBy = (String, String, Timestamp);

impl Evidence {
    /// Adds the stored proofs of a target, oldest first.
    pub fn insert(&mut self, environment: &str, target: &str, proofs: Vec<Proof>) {
        if !proofs.is_empty() {
            self.proofs.entry(environment.into()).or_default().insert(target.into(), proofs);
        }
    }

    /// Adds the stored revision that a target has run last, and was not healthy with since.
    pub fn insert_unproven(&mut self, environment: &str, target: &str, revision: Revision) {
        self.unproven.entry(environment.into()).or_default().insert(target.into(), revision);
    }

    /// Forgets what a target has run: its name means another place now.
    pub fn forget(&mut self, environment: &str, target: &str) {
        self.proofs.get_mut(environment).and_then(|of| of.remove(target));
        self.unproven.get_mut(environment).and_then(|of| of.remove(target));
    }

    /// Returns the revision that a target has run last, if it has not been healthy with it since it began to run it.
    pub fn unproven(&self, environment: &str, target: &str) -> Option<&Revision> {
        self.unproven.get(environment)?.get(target)
    }

    /// Returns the revision that a target has run last, healthily or not.
    pub fn last(&self, environment: &str, target: &str) -> Option<Revision> {
        let proven = self.of(environment, target).last().map(|proof| &proof.revision);
        Revision::completed(self.unproven(environment, target).cloned(), proven)
    }

    /// Returns about how many bytes all revisions take if none shares its facets.
    pub fn bytes(&self) -> usize {
        self.revisions().map(Revision::bytes).sum()
    }

    /// Returns the proofs of all targets.
    fn all(&self) -> impl Iterator<Item = &Proof> {
        self.proofs.values().flat_map(BTreeMap::values).flatten()
    }

    /// Returns the revisions that targets have run, healthily or not.
    fn revisions(&self) -> impl Iterator<Item = &Revision> {
        self.all().map(|proof| &proof.revision).chain(self.unproven.values().flat_map(BTreeMap::values))
    }

    /// Returns the proofs of a target, oldest first.
    pub fn of(&self, environment: &str, target: &str) -> &[Proof] {
        self.proofs.get(environment).and_then(|of| of.get(target)).map_or(&[], Vec::as_slice)
    }

    /// Returns the proofs after an observation: these proofs, and those of the revisions that targets run healthily now.
    /// Proofs of targets that the pipeline does not have any more are dropped. New arrivals are counted from the highest
    /// number in the proofs and the promotions.
    pub fn updated(
        &self,
        pipeline: &Pipeline,
        observed: &ObservedTargets,
        promotions: &[Promotion],
        now: Timestamp,
    ) -> Evidence {
        let arrivals = self.all().map(|p| p.arrival).chain(promotions.iter().map(|p| p.arrival));
        let mut next = arrivals.max().unwrap_or(0);
        let (mut evidence, mut shared, mut known) = (Evidence::default(), None, None);
        for environment in &pipeline.environments {
            for target in &environment.targets {
                let mut list = self.of(&environment.name, target).to_vec();
                let shown = observed.target(&environment.name, target);
                let proven = shown.and_then(|t| t.proves(&pipeline.tracks));
                if let Some(revision) = proven.filter(|new| list.last().is_none_or(|p| p.revision != *new)) {
                    next += 1;
                    let revision = self.shared(revision, &mut shared);
                    let into_followers =
                        promotions.iter().filter(|p| follows(pipeline, &p.environment, environment));
                    append(&mut list, into_followers, Proof { revision, arrival: next, run: 0, at: now });
                }
                if let Some(unproven) =
                    self.unproven_after(&environment.name, target, shown, pipeline, &mut known)
                {
                    let is_known = self.unproven(&environment.name, target) == Some(&unproven);
                    let unproven = if is_known { unproven } else { self.shared(unproven, &mut shared) };
                    evidence.insert_unproven(&environment.name, target, unproven);
                }
                evidence.insert(&environment.name, target, list);
            }
        }
        evidence.drop_unneeded(pipeline, observed);
        evidence
    }

    /// Returns the revision that a target has run last and was not healthy with since, after an observation. A target that comes
    /// back to the revision that it has proven last has to be healthy with it once more. A facet that the target does not show
    /// now, for example because its object is created again, is as it was, also if the rest of the target is healthy. Workloads
    /// whose names have a hash or a date come and go all the time: only facets that may be promoted are kept.
    fn unproven_after<'a>(
        &'a self,
        environment: &str,
        target: &str,
        shown: Option<&ObservedTarget>,
        pipeline: &Pipeline,
        known: &mut Option<BTreeSet<&'a FacetKey>>,
    ) -> Option<Revision> {
        let before = self.unproven(environment, target);
        let proven = self.of(environment, target).last().map(|proof| &proof.revision);
        let Some(running) = shown.and_then(|shown| shown.revision(&pipeline.tracks)) else {
            return before.cloned();
        };
        let mut promotable =
            |hidden: Revision| hidden.restricted_to_facets(known.get_or_insert_with(|| self.proven_facets()));
        if shown.is_some_and(|shown| shown.health() == Health::Ready) {
            let unproven = before.and_then(|before| before.without(&running, proven));
            let gone = proven.and_then(|proven| proven.of_workloads_not_in(&running));
            return Revision::completed(unproven, gone.as_ref()).and_then(promotable);
        }
        let last = self.last(environment, target);
        let hidden = last.as_ref().and_then(|last| last.without(&running, None)).and_then(&mut promotable);
        let running = Revision::completed(Some(running), hidden.as_ref());
        if last == running { before.cloned() } else { running }
    }

    /// Returns the facets of which any target has proven a value. No other is ever promoted.
    fn proven_facets(&self) -> BTreeSet<&FacetKey> {
        let mut seen = HashSet::new();
        let distinct =
            self.all().map(|proof| &proof.revision).filter(|revision| seen.insert(revision.address()));
        distinct.flat_map(|revision| revision.facets().map(|(key, _)| key)).collect()
    }

    /// Returns the revision as these proofs or `known` have it: equal revisions of all targets take memory once.
    fn shared(&self, revision: Revision, known: &mut Option<HashSet<Revision>>) -> Revision {
        let known = known.get_or_insert_with(|| self.revisions().cloned().collect());
        revision.shared_in(known)
    }

    /// Drops the proofs that no environment needs any more.
    ///
    /// The newest proofs are kept. An environment that needs several proofs of one revision also needs all that are
    /// newer than its candidate, because a fast target has them long before a slow one. If these are too many, every
    /// second one or so is dropped, evenly: a slow target that proves one revision after the other then reaches one that
    /// is kept. Proofs of revisions that targets run now are dropped last.
    fn drop_unneeded(&mut self, pipeline: &Pipeline, observed: &ObservedTargets) {
        self.drop_surplus(pipeline, observed);
        self.drop_excess();
        self.drop_unproven_excess(observed);
    }

    /// Drops the unproven revisions that take too much memory together. Targets that run the same one share it. Without what a
    /// target has run last, nothing that it has proven before counts as what it runs, unless it is healthy now.
    fn drop_unproven_excess(&mut self, observed: &ObservedTargets) {
        let (mut bytes, mut counted) = (0, HashSet::new());
        let all = || self.unproven.values().flat_map(BTreeMap::values);
        if all().map(Revision::bytes).sum::<usize>() <= MAX_BYTES_OF_PIPELINE {
            return;
        }
        for (environment, of) in &mut self.unproven {
            of.retain(|target, revision| {
                let more = if counted.contains(revision) { 0 } else { revision.bytes() };
                let is_kept = bytes + more <= MAX_BYTES_OF_PIPELINE;
                if is_kept {
                    bytes += more;
                    counted.insert(revision.clone());
                }
                let is_ready =
                    || observed.target(environment, target).is_some_and(|t| t.health() == Health::Ready);
                if !is_kept && !is_ready() {
                    self.proofs.get_mut(environment).and_then(|of| of.remove(target));
                }
                is_kept
            });
        }
    }

    /// Drops the oldest proofs if all together take too much memory, but never the newest one of a target.
    fn drop_excess(&mut self) {
        let mut kept = MAX_PROOFS;
        while kept > 1 && self.all().map(|p| p.revision.bytes()).sum::<usize>() > MAX_BYTES_OF_PIPELINE {
            kept = kept.div_ceil(2);
            for list in self.proofs.values_mut().flat_map(BTreeMap::values_mut) {
                list.drain(..list.len().saturating_sub(kept));
            }
        }
    }

    /// Drops the proofs that are too many by their number.
    fn drop_surplus(&mut self, pipeline: &Pipeline, observed: &ObservedTargets) {
        if self.proofs.values().flat_map(BTreeMap::values).all(|list| list.len() <= MIN_PROOFS) {
            return;
        }
        let followers: Vec<(&Environment, Option<Candidate>)> = pipeline
            .environments
            .iter()
            .filter(|into| needs_several(pipeline, into))
            .map(|into| {
                (into, into.policy.as_ref().and_then(|p| self.candidate(pipeline, into, p.min_ready)))
            })
            .collect();
        let targets: usize = pipeline.environments.iter().map(|e| e.targets.len()).sum();
        let limit = (MAX_PROOFS_OF_PIPELINE / targets.max(1)).clamp(MIN_PROOFS, MAX_PROOFS);
        let running: BTreeSet<Revision> = pipeline
            .environments
            .iter()
            .flat_map(|e| e.targets.iter().filter_map(|t| observed.target(&e.name, t)))
            .filter_map(|target| target.revision(&pipeline.tracks))
            .collect();
        let lists =
            self.proofs.iter_mut().flat_map(|(name, of)| of.values_mut().map(move |list| (name, list)));
        for (environment, list) in lists {
            let floor = |(into, candidate): &(&Environment, Option<Candidate>)| {
                let needed = into.depends_on.contains(environment);
                let proven = |c: &Candidate| list.iter().position(|p| c.revision.is_run_by(&p.revision));
                needed.then(|| candidate.as_ref().and_then(proven).unwrap_or(0))
            };
            let unneeded = followers.iter().filter_map(floor).min().unwrap_or(list.len());
            let surplus = list.len().saturating_sub(MIN_PROOFS).min(unneeded);
            list.drain(..surplus);
            while list.len() > limit {
                list.remove(least_needed(list, &running));
            }
        }
    }

    /// Returns true if every target of the environment ran this revision when it was last seen healthy, and nothing else since.
    pub fn has_settled(&self, environment: &Environment, revision: &Revision) -> bool {
        environment.targets.iter().all(|target| {
            let proven = self.of(&environment.name, target).last();
            let unproven = self.unproven(&environment.name, target);
            unproven.and_then(|unproven| unproven.with_facets_of(revision)).is_none()
                && proven.is_some_and(|p| revision.is_run_by(&p.revision))
        })
    }

    /// Returns true if a target of the environment has ever run this revision healthily.
    pub fn has_run(&self, environment: &Environment, revision: &Revision) -> bool {
        let mut targets = environment.targets.iter().flat_map(|t| self.of(&environment.name, t));
        targets.any(|p| revision.is_run_by(&p.revision))
    }

    /// Returns the revision that arrived last of those that enough targets of each predecessor have proven.
    pub fn candidate(&self, pipeline: &Pipeline, into: &Environment, needed: MinReady) -> Option<Candidate> {
        self.proven(pipeline, into, needed).candidate
    }

    /// Returns what the predecessors of an environment have proven. It is the same for all environments with the same
    /// predecessors and the same number of targets that are needed.
    pub fn proven(&self, pipeline: &Pipeline, into: &Environment, needed: MinReady) -> Proven {
        let before = predecessors(pipeline, into);
        let proofs = |e: &&Environment| e.targets.iter().map(|target| self.of(&e.name, target)).collect();
        let proofs: Vec<TargetProofs<'_>> = before.iter().map(proofs).collect();
        let newest = proven::newest(&proofs, |targets| needed.of(targets), |r| is_tracked(pipeline, r));
        let candidate = newest.proven.and_then(|revision| self.judge(revision, &before, needed).ok());
        let upcoming = newest.short.and_then(|revision| self.judge(revision, &before, needed).err());
        let known = candidate.as_ref().map_or(0, |candidate| candidate.arrival);
        Proven { upcoming: upcoming.filter(|short| short.arrival > known), candidate }
    }

    /// Returns the revision as a candidate if enough targets of every environment have proven it.
    fn judge(
        &self,
        revision: &Revision,
        environments: &[&Environment],
        needed: MinReady,
    ) -> Result<Candidate, Shortfall> {
        let mut candidate =
            Candidate { revision: revision.clone(), arrival: 0, run: 0, proven_by: Arc::default() };
        let mut proven_by = Vec::new();
        let mut shortfall =
            Shortfall { revision: revision.clone(), arrival: 0, needed: 0, has: 0, missing: Vec::new() };
        for environment in environments {
            let (mut arrivals, mut runs) = (Vec::new(), Vec::new());
            let mut missing = Vec::new();
            for target in &environment.targets {
                let proofs = self.of(&environment.name, target);
                match proofs.iter().rev().find(|p| revision.is_run_by(&p.revision)) {
                    Some(proof) => {
                        arrivals.push(proof.arrival);
                        runs.push(proof.run);
                        proven_by.push((environment.name.clone(), target.clone(), proof.at));
                        shortfall.arrival = shortfall.arrival.max(proof.arrival);
                    }
                    None => missing.push((environment.name.clone(), target.clone())),
                }
            }
            arrivals.sort_unstable();
            let enough = needed.of(environment.targets.len());
            match arrivals.get(enough - 1) {
                Some(arrival) => {
                    candidate.arrival = candidate.arrival.max(*arrival);
                    // The revision has come back as often as on enough of the targets.
                    runs.sort_unstable_by(|a, b| b.cmp(a));
                    candidate.run = candidate.run.max(runs[enough - 1]);
                }
                None => {
                    shortfall.needed = enough;
                    shortfall.has = arrivals.len();
                    shortfall.missing.extend(missing);
                }
            }
        }
        candidate.proven_by = proven_by.into();
        if shortfall.needed > 0 { Err(shortfall) } else { Ok(candidate) }
    }
}

/// A revision that not enough targets have proven.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortfall {
    /// The revision.
    pub revision: Revision,
    /// When a target last proved the revision, in the order of arrivals.
    pub arrival: u64,
    /// How many targets must have proven the revision, in the predecessor that lacks proofs.
    pub needed: usize,
    /// How many targets have proven it.
    pub has: usize,
    /// The targets that have not proven it, by environment and target.
    pub missing: Vec<(String, String)>,
}

fn predecessors<'a>(pipeline: &'a Pipeline, of: &Environment) -> Vec<&'a Environment> {
    pipeline.environments.iter().filter(|e| of.depends_on.contains(&e.name)).collect()
}

/// Returns true if promotions into the environment of this name need proofs of another environment.
fn follows(pipeline: &Pipeline, name: &str, other: &Environment) -> bool {
    pipeline.environments.iter().any(|e| e.name == name && e.depends_on.contains(&other.name))
}

/// Adds the proof of a revision that a target runs now, with the number of times that the target has come back to it. If the
/// list does not have the earlier proof any more, the records of promotions from before all of its proofs have the number.
fn append<'a>(list: &mut Vec<Proof>, mut promotions: impl Iterator<Item = &'a Promotion>, new: Proof) {
    let earlier = list.iter().position(|p| p.revision == new.revision).map(|i| list.remove(i).run);
    let oldest = list.first().map_or(0, |proof| proof.arrival);
    let is_earlier = |p: &&Promotion| p.arrival < oldest && p.revision.is_run_by(&new.revision);
    let recorded = || promotions.by_ref().filter(is_earlier).map(|p| p.run).max();
    let run = earlier.or_else(recorded).map_or(0, |run| run + 1);
    list.push(Proof { run, ..new });
}

/// Returns true if a revision needs more than one proof to be promoted into an environment.
fn needs_several(pipeline: &Pipeline, into: &Environment) -> bool {
    let needed = |policy: &Policy| -> usize {
        predecessors(pipeline, into).iter().map(|e| policy.min_ready.of(e.targets.len())).sum()
    };
    into.policy.as_ref().is_some_and(|policy| needed(policy) > 1)
}

/// Returns the index of the proof whose absence leaves the smallest gap in the order of arrivals. The proof of a
/// revision that a target runs now, one of the newest proofs, or the oldest proof is returned only if there is no other.
fn least_needed(list: &[Proof], running: &BTreeSet<Revision>) -> usize {
    // With more different revisions, only the same facets count: this is asked for each of thousands of targets.
    let compared = || running.iter().take(if running.len() <= MAX_COMPARED { running.len() } else { 0 });
    let runs = |p: &Proof| {
        running.contains(&p.revision)
            || compared().any(|r| r.is_run_by(&p.revision) || p.revision.is_run_by(r))
    };
    let gap = |at: usize| match at.checked_sub(1) {
        Some(before) => list[at + 1].arrival.saturating_sub(list[before].arrival),
        None => u64::MAX,
    };
    let newest = list.len().saturating_sub(MIN_PROOFS);
    let all = 0..list.len().saturating_sub(1);
    all.min_by_key(|at| (runs(&list[*at]), *at >= newest, gap(*at))).unwrap_or(0)
}
