//! What has been proven: which revisions each target has run healthily, in the order in which they
//! arrived. Proof outlives the moment: a target that moves on, fails or cannot be read any more
//! takes nothing back. Order is counted, never timed, so that clocks cannot change it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::{Environment, MinReady, Pipeline, Policy};
use crate::revision::Revision;
use crate::world::{World, is_tracked};

/// How many revisions are remembered for each target, whether another environment needs them or not.
pub const KEPT: usize = 10;
/// How many revisions are remembered at most for a target, while another environment needs them.
pub const LIMIT: usize = 64;
/// How many revisions are remembered at most for all targets of a pipeline together, unless [`KEPT`] for
/// each are more: one takes some 300 bytes of the status.
const LIMIT_OF_ALL: usize = 2000;

/// A revision that a target has run healthily.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Which.
    pub revision: Revision,
    /// Its place in the order of arrivals, over the whole pipeline.
    pub arrival: u64,
    /// How many times the target had come back to it before.
    pub run: u32,
    /// When it was first seen; for people.
    pub at: Timestamp,
}

/// Proofs by environment and target, each list oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    proofs: BTreeMap<(String, String), Vec<Proof>>,
}

/// A revision that may go into an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub revision: Revision,
    /// When it came to be one, in the order of arrivals.
    pub arrival: u64,
    /// Which return of this revision it is.
    pub run: u32,
    /// The targets that have proven it, by environment and target, with the time.
    pub proven_by: Vec<(String, String, Timestamp)>,
}

impl Evidence {
    /// Adds a list of proofs as it was kept, oldest first.
    pub fn insert(&mut self, environment: &str, target: &str, proofs: Vec<Proof>) {
        if !proofs.is_empty() {
            self.proofs.insert((environment.into(), target.into()), proofs);
        }
    }

    /// What a target has proven, oldest first.
    pub fn of(&self, environment: &str, target: &str) -> &[Proof] {
        self.proofs.get(&(environment.into(), target.into())).map_or(&[], Vec::as_slice)
    }

    /// What is proven after a look at the world: all of before, and what each target proves now.
    /// Targets that the pipeline does not have any more are forgotten. New arrivals count on from
    /// those that are remembered, and from `counted`: what is known to have arrived otherwise.
    pub fn after(&self, pipeline: &Pipeline, world: &World, counted: u64, now: Timestamp) -> Evidence {
        let known = self.proofs.values().flatten().map(|p| p.arrival).max().unwrap_or(0);
        let mut next = known.max(counted);
        let mut proofs = BTreeMap::new();
        for environment in &pipeline.environments {
            for target in &environment.targets {
                let mut list = self.of(&environment.name, target).to_vec();
                let shown = world.target(&environment.name, target);
                if let Some(revision) = shown.and_then(|t| t.proves(&pipeline.tracks)) {
                    append(&mut list, revision, &mut next, now);
                }
                if !list.is_empty() {
                    proofs.insert((environment.name.clone(), target.clone()), list);
                }
            }
        }
        let mut evidence = Evidence { proofs };
        evidence.forget(pipeline, world);
        evidence
    }

    /// Forgets what no environment needs any more. Beside the newest, an environment that needs several
    /// proofs of one revision needs all that are newer than its candidate: a fast target has them long
    /// before a slow one. Where these are too many, they are thinned out evenly, so that a slow target that
    /// proves one revision after the other always comes to one that is remembered; what a target runs now
    /// is not thinned out.
    fn forget(&mut self, pipeline: &Pipeline, world: &World) {
        if self.proofs.values().all(|list| list.len() <= KEPT) {
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
        let limit = (LIMIT_OF_ALL / targets.max(1)).clamp(KEPT, LIMIT);
        let running: Vec<Revision> = pipeline
            .environments
            .iter()
            .flat_map(|e| e.targets.iter().filter_map(|t| world.target(&e.name, t)))
            .filter_map(|target| target.revision(&pipeline.tracks))
            .collect();
        for ((environment, _), list) in &mut self.proofs {
            let floor = |(into, candidate): &(&Environment, Option<Candidate>)| {
                let needed = into.after.contains(environment);
                let proven = |c: &Candidate| list.iter().position(|p| c.revision.is_run_by(&p.revision));
                needed.then(|| candidate.as_ref().and_then(proven).unwrap_or(0))
            };
            let unneeded = followers.iter().filter_map(floor).min().unwrap_or(list.len());
            let surplus = list.len().saturating_sub(KEPT).min(unneeded);
            list.drain(..surplus);
            while list.len() > limit {
                list.remove(least_needed(list, &running));
            }
        }
    }

    /// Whether every target of the environment ran this revision when it was last seen healthy.
    pub fn has_settled(&self, environment: &Environment, revision: &Revision) -> bool {
        environment.targets.iter().all(|target| {
            self.of(&environment.name, target).last().is_some_and(|p| revision.is_run_by(&p.revision))
        })
    }

    /// Whether some target of the environment has ever run this revision healthily.
    pub fn was_here(&self, environment: &Environment, revision: &Revision) -> bool {
        let mut targets = environment.targets.iter().flat_map(|t| self.of(&environment.name, t));
        targets.any(|p| revision.is_run_by(&p.revision))
    }

    /// The newest revision, by arrival, that enough targets of each environment before this one
    /// have proven.
    pub fn candidate(&self, pipeline: &Pipeline, into: &Environment, needed: MinReady) -> Option<Candidate> {
        let before = predecessors(pipeline, into);
        let revisions: BTreeSet<&Revision> = self.revisions(&before).collect();
        let tracked = revisions.into_iter().filter(|r| is_tracked(pipeline, r));
        tracked.filter_map(|r| self.judge(r, &before, needed).ok()).max_by_key(|c| c.arrival)
    }

    /// The newest revision before this environment that is not proven by enough targets yet, if it
    /// is newer than `candidate`: what the environment waits for, and the targets that lack it.
    pub fn upcoming(
        &self,
        pipeline: &Pipeline,
        into: &Environment,
        needed: MinReady,
        candidate: Option<&Candidate>,
    ) -> Option<Shortfall> {
        let before = predecessors(pipeline, into);
        let revisions: BTreeSet<&Revision> = self.revisions(&before).collect();
        let short = revisions.into_iter().filter(|r| is_tracked(pipeline, r));
        let newest = short.filter_map(|r| self.judge(r, &before, needed).err()).max_by_key(|s| s.arrival)?;
        (newest.arrival > candidate.map_or(0, |c| c.arrival)).then_some(newest)
    }

    fn revisions<'a>(&'a self, environments: &'a [&Environment]) -> impl Iterator<Item = &'a Revision> {
        environments
            .iter()
            .flat_map(|e| e.targets.iter().flat_map(|t| self.of(&e.name, t)))
            .map(|p| &p.revision)
    }

    /// Whether enough targets of every environment have proven a revision.
    fn judge(
        &self,
        revision: &Revision,
        environments: &[&Environment],
        needed: MinReady,
    ) -> Result<Candidate, Shortfall> {
        let mut candidate =
            Candidate { revision: revision.clone(), arrival: 0, run: 0, proven_by: Vec::new() };
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
                        let by = (environment.name.clone(), target.clone(), proof.at);
                        candidate.proven_by.push(by);
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
                    // It has come back as often as enough of them have.
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
        if shortfall.needed > 0 { Err(shortfall) } else { Ok(candidate) }
    }
}

/// A revision that not enough targets have proven.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortfall {
    /// Which.
    pub revision: Revision,
    /// When it was last proven by a target, in the order of arrivals.
    pub arrival: u64,
    /// How many targets must have proven it, in the environment that lacks it.
    pub needed: usize,
    /// How many have.
    pub has: usize,
    /// Those that have not, by environment and target.
    pub missing: Vec<(String, String)>,
}

fn predecessors<'a>(pipeline: &'a Pipeline, of: &Environment) -> Vec<&'a Environment> {
    pipeline.environments.iter().filter(|e| of.after.contains(&e.name)).collect()
}

fn append(list: &mut Vec<Proof>, revision: Revision, last_arrival: &mut u64, at: Timestamp) {
    if list.last().is_some_and(|p| p.revision == revision) {
        return;
    }
    let earlier = list.iter().position(|p| p.revision == revision).map(|i| list.remove(i));
    *last_arrival += 1;
    let run = earlier.map_or(0, |p| p.run + 1);
    list.push(Proof { revision, arrival: *last_arrival, run, at });
}

/// Whether one proof is not enough for a revision to go into an environment.
fn needs_several(pipeline: &Pipeline, into: &Environment) -> bool {
    let needed = |policy: &Policy| -> usize {
        predecessors(pipeline, into).iter().map(|e| policy.min_ready.of(e.targets.len())).sum()
    };
    into.policy.as_ref().is_some_and(|policy| needed(policy) > 1)
}

/// The place of the proof whose absence leaves the smallest gap in the order of arrivals: one of what targets
/// run now, one of the newest, or the oldest only if there is no other.
fn least_needed(list: &[Proof], running: &[Revision]) -> usize {
    let runs = |p: &Proof| running.iter().any(|r| r.is_run_by(&p.revision) || p.revision.is_run_by(r));
    let gap = |at: usize| match at.checked_sub(1) {
        Some(before) => list[at + 1].arrival.saturating_sub(list[before].arrival),
        None => u64::MAX,
    };
    let newest = list.len().saturating_sub(KEPT);
    let all = 0..list.len().saturating_sub(1);
    all.min_by_key(|at| (runs(&list[*at]), *at >= newest, gap(*at))).unwrap_or(0)
}
