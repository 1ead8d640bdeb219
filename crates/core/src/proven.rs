//! Which revisions enough targets have proven. Each proof is looked at once, because a pipeline may have two thousand targets
//! with ten proofs each, and its owner chooses them. Pure.

use std::collections::BTreeMap;

use crate::proof::Proof;
use crate::revision::{FacetKey, Revision};

/// The targets of one environment, each with its proofs, oldest first.
pub(crate) type TargetProofs<'a> = Vec<&'a [Proof]>;

/// The most comparisons of revisions whose facets differ. After that many, only a target with exactly the same facets proves a
/// revision.
const MAX_COMPARISONS: usize = 1_000_000;

/// The newest revisions among the proven ones, by arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestRevisions<'a> {
    /// The one that arrived last of those that enough targets of each environment have proven.
    pub proven: Option<&'a Revision>,
    /// The one that a target has proven last of those that not enough targets have proven.
    pub short: Option<&'a Revision>,
}

/// A proof of a revision: the index of the environment, the index of the target in it, and the arrival.
type Found = (usize, usize, u64);

/// Returns the newest revisions. `needed` returns how many of a number of targets must have proven a revision, and `counts`
/// whether a revision may be promoted at all.
pub(crate) fn newest<'a>(
    environments: &[TargetProofs<'a>],
    needed: impl Fn(usize) -> usize,
    counts: impl Fn(&Revision) -> bool,
) -> NewestRevisions<'a> {
    let needed: Vec<usize> = environments.iter().map(|targets| needed(targets.len())).collect();
    let mut by_revision: BTreeMap<&Revision, Vec<Found>> = BTreeMap::new();
    for (environment, targets) in environments.iter().enumerate() {
        for (target, proofs) in targets.iter().enumerate() {
            for proof in *proofs {
                by_revision.entry(&proof.revision).or_default().push((environment, target, proof.arrival));
            }
        }
    }
    let mut covering = Covering::of(by_revision.keys().copied());
    let mut newest_first: Vec<(&Revision, u64)> =
        by_revision.iter().map(|(revision, found)| (*revision, last_arrival(found))).collect();
    newest_first.sort_by_key(|(_, arrival)| std::cmp::Reverse(*arrival));
    let (mut proven, mut short) = (None, None);
    for (revision, _) in newest_first.into_iter().filter(|(revision, _)| counts(revision)) {
        let mut found = by_revision.get(revision).cloned().unwrap_or_default();
        for other in covering.of_others(revision) {
            found.extend(by_revision.get(other).into_iter().flatten());
        }
        let (newest, arrival) = match proven_at(&mut found, &needed) {
            Some(arrival) => (&mut proven, arrival),
            None => (&mut short, last_arrival(&found)),
        };
        *newest = (*newest).max(Some((arrival, revision)));
    }
    NewestRevisions {
        proven: proven.map(|(_, revision)| revision),
        short: short.map(|(_, revision)| revision),
    }
}

fn last_arrival(found: &[Found]) -> u64 {
    found.iter().map(|(_, _, arrival)| *arrival).max().unwrap_or_default()
}

/// Returns when enough targets of every environment had proven a revision; `None` if they have not. Each target's newest proof
/// counts.
fn proven_at(found: &mut Vec<Found>, needed: &[usize]) -> Option<u64> {
    found.sort_unstable_by_key(|(environment, target, arrival)| {
        (*environment, *target, std::cmp::Reverse(*arrival))
    });
    found.dedup_by_key(|(environment, target, _)| (*environment, *target));
    let mut at = 0;
    for (environment, needed) in needed.iter().enumerate() {
        let of_environment = found.iter().filter(|(of, _, _)| *of == environment);
        let mut arrivals: Vec<u64> = of_environment.map(|(_, _, arrival)| *arrival).collect();
        arrivals.sort_unstable();
        at = at.max(*arrivals.get(needed.checked_sub(1)?)?);
    }
    Some(at)
}

/// The revisions by their facets, to find those that have all facets of another one and more.
struct Covering<'a> {
    by_keys: BTreeMap<Vec<&'a FacetKey>, Vec<&'a Revision>>,
    left: usize,
}

impl<'a> Covering<'a> {
    fn of(revisions: impl Iterator<Item = &'a Revision>) -> Self {
        let mut by_keys: BTreeMap<Vec<&FacetKey>, Vec<&Revision>> = BTreeMap::new();
        for revision in revisions {
            by_keys.entry(keys(revision)).or_default().push(revision);
        }
        Covering { by_keys, left: MAX_COMPARISONS }
    }

    /// Returns the revisions with more facets that run this one.
    fn of_others(&mut self, revision: &Revision) -> Vec<&'a Revision> {
        let own = keys(revision);
        let mut found = Vec::new();
        for (keys, revisions) in self.by_keys.iter().filter(|(keys, _)| **keys != own) {
            let has_all = own.len() < keys.len() && own.iter().all(|key| keys.binary_search(key).is_ok());
            // Each has as many facets.
            let comparisons = own.len() * if has_all { revisions.len() } else { 1 };
            let Some(left) = self.left.checked_sub(comparisons) else { return found };
            self.left = left;
            if has_all {
                found.extend(revisions.iter().filter(|other| revision.is_run_by(other)));
            }
        }
        found
    }
}

/// The facets of a revision, which are sorted.
fn keys(revision: &Revision) -> Vec<&FacetKey> {
    revision.facets().map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn revision(facets: &[(String, u8)]) -> Option<Revision> {
        let named =
            |(name, version): &(String, u8)| (format!("HelmRelease/{name}:chart"), version.to_string());
        Revision::from_strings(&facets.iter().map(named).collect())
    }

    /// What the module says in words, revision by revision and target by target.
    fn one_by_one<'a>(environments: &[TargetProofs<'a>], needed: usize) -> NewestRevisions<'a> {
        let proofs = |of: &[&'a [Proof]]| of.iter().flat_map(|list| list.iter()).collect::<Vec<_>>();
        let (mut proven, mut short) = (None, None);
        for revision in environments.iter().flat_map(|of| proofs(of)).map(|proof| &proof.revision) {
            let newest = |list: &&[Proof]| {
                list.iter()
                    .filter(|proof| revision.is_run_by(&proof.revision))
                    .map(|proof| proof.arrival)
                    .max()
            };
            let arrivals: Vec<Vec<u64>> = environments
                .iter()
                .map(|of| {
                    let mut all: Vec<u64> = of.iter().filter_map(newest).collect();
                    all.sort_unstable();
                    all
                })
                .collect();
            let enough: Option<Vec<u64>> = arrivals.iter().map(|all| all.get(needed - 1).copied()).collect();
            match enough.and_then(|all| all.into_iter().max()) {
                Some(at) => proven = proven.max(Some((at, revision))),
                None => short = short.max(arrivals.iter().flatten().max().map(|at| (*at, revision))),
            }
        }
        NewestRevisions { proven: proven.map(|(_, r)| r), short: short.map(|(_, r)| r) }
    }

    proptest! {
        #[test]
        fn the_newest_are_those_of_a_search_one_by_one(
            environments in proptest::collection::vec(
                proptest::collection::vec(
                    proptest::collection::vec(proptest::collection::btree_map("[ab]", 0u8..3, 1..3), 0..4),
                    1..4,
                ),
                1..3,
            ),
            order in any::<u64>(),
            needed in 1usize..3,
        ) {
            let mut arrival = order % 7;
            let proof = |facets: std::collections::BTreeMap<String, u8>| {
                arrival = (arrival * 5 + 3) % 61;
                let revision = revision(&facets.into_iter().collect::<Vec<_>>()).unwrap();
                Proof { revision, arrival, run: 0, at: jiff::Timestamp::UNIX_EPOCH }
            };
            let mut proof = proof;
            let lists: Vec<Vec<Vec<Proof>>> = environments
                .into_iter()
                .map(|of| of.into_iter().map(|list| list.into_iter().map(&mut proof).collect()).collect())
                .collect();
            let all: Vec<TargetProofs<'_>> = lists.iter().map(|of| of.iter().map(Vec::as_slice).collect()).collect();
            prop_assert_eq!(newest(&all, |_| needed, |_| true), one_by_one(&all, needed));
        }
    }

    /// What a hostile pipeline may have: 2,000 targets, each with ten revisions of its own, and with facets of its own.
    #[test]
    fn no_proofs_take_long() {
        let proofs = |target: usize, own_facets: bool| -> Vec<Proof> {
            let proof = |n: usize| {
                let name = if own_facets { format!("app-{target}-{n}") } else { "app".into() };
                let facets = [(format!("HelmRelease/{name}:chart"), format!("{target}.{n}.0"))];
                let revision = Revision::from_strings(&facets.into()).unwrap();
                Proof { revision, arrival: (10 * target + n) as u64, run: 0, at: jiff::Timestamp::UNIX_EPOCH }
            };
            (0..10).map(proof).collect()
        };
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for own_facets in [false, true] {
                let all: Vec<Vec<Proof>> = (0..2000).map(|target| proofs(target, own_facets)).collect();
                let environment: TargetProofs<'_> = all.iter().map(Vec::as_slice).collect();
                let found = newest(&[environment], |targets| targets, |_| true);
                assert_eq!((found.proven, found.short), (None, Some(&all[1999][9].revision)));
            }
            let _ = done.send(());
        });
        finished.recv_timeout(std::time::Duration::from_secs(60)).expect("it takes longer than 60 s");
    }
}
