//! Which records of ended promotions to delete.

use std::collections::{BTreeMap, BTreeSet};

use crate::promotion::{Phase, Promotion};

/// How many succeeded promotions are kept beside the newest records: that of the running revision, and that of the
/// revision to roll back to.
const SUCCEEDED_KEPT: usize = 2;
/// How many rejected promotions are kept beside the newest records: without its record, a rejected revision that comes
/// back would be promoted.
const REJECTED_KEPT: usize = 50;

/// The most bytes of the revisions of all ended promotions of a pipeline; beyond that, fewer are kept. Its owner chooses the
/// size of a revision.
const MAX_BYTES: usize = 8 << 20;

/// Returns the names of the records to delete: of each environment (or target) all promotions that have ended, except
///
/// - the newest `keep`, at least one, which says why its revision is not promoted again; fewer if all of the pipeline
///   together take too much memory;
/// - those that are needed to roll back;
/// - the newest rejected ones;
/// - those whose change request is still open.
pub fn surplus(promotions: &[Promotion], keep: usize) -> Vec<String> {
    let ended = promotions.iter().filter(|p| p.phase.has_ended());
    let all: BTreeMap<&str, usize> = ended.map(|p| (p.name.as_str(), p.revision.bytes())).collect();
    let (all_bytes, mut keep) = (all.values().sum::<usize>(), keep.max(1));
    loop {
        let surplus = surplus_beyond(promotions, keep);
        let deleted: usize = surplus.iter().map(|name| all[name.as_str()]).sum();
        if keep == 1 || all_bytes - deleted <= MAX_BYTES {
            return surplus;
        }
        keep = keep.div_ceil(2);
    }
}

fn surplus_beyond(promotions: &[Promotion], keep: usize) -> Vec<String> {
    let mut lanes: BTreeMap<(&str, Option<&str>), Vec<&Promotion>> = BTreeMap::new();
    for promotion in promotions.iter().filter(|p| p.phase.has_ended()) {
        let lane = (promotion.environment.as_str(), promotion.target.as_deref());
        lanes.entry(lane).or_default().push(promotion);
    }
    let mut surplus = Vec::new();
    for mut ended in lanes.into_values().filter(|e| e.len() > keep) {
        ended.sort_by_key(|p| std::cmp::Reverse(p.order()));
        let newest = |phase: Phase, count: usize| {
            ended.iter().filter(move |p| p.phase == phase).take(count).map(|p| p.sequence)
        };
        let succeeded = newest(Phase::Succeeded, SUCCEEDED_KEPT);
        let needed: BTreeSet<u64> = succeeded.chain(newest(Phase::Rejected, REJECTED_KEPT)).collect();
        let old = ended.into_iter().skip(keep);
        let old = old.filter(|p| !needed.contains(&p.sequence) && p.open_request().is_none());
        surplus.extend(old.map(|p| p.name.clone()));
    }
    surplus
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::revision::{FacetKey, Revision};

    fn promotion(sequence: u64, phase: Phase) -> Promotion {
        let key: FacetKey = "HelmRelease/app:chart".parse().unwrap();
        Promotion {
            name: format!("p{sequence}"),
            environment: "prod".into(),
            target: None,
            revision: Revision::new(BTreeMap::from([(key, sequence.to_string())])).unwrap(),
            run: 0,
            arrival: sequence,
            sequence,
            trigger: None,
            phase,
            approved: false,
            retries: 0,
            rejected: None,
            gates: Vec::new(),
            retry: None,
            next_attempt: None,
            resumes: false,
            delivered: None,
            request: None,
            is_checked: false,
            report: None,
            reason: String::new(),
            message: String::new(),
        }
    }

    #[test]
    fn the_newest_record_and_those_with_an_open_change_request_are_kept() {
        let mut all: Vec<Promotion> = (1..=4).map(|n| promotion(n, Phase::Superseded)).collect();
        all[1].request = Some(crate::promotion::RecordedRequest { number: 7, open: true, outdated: false });
        assert_eq!(surplus(&all, 0), ["p3", "p1"]);
    }

    #[test]
    fn a_rejected_promotion_is_kept_however_many_others_come_after_it() {
        let mut all = vec![promotion(1, Phase::Rejected)];
        all.extend((2..500).map(|n| promotion(n, Phase::Superseded)));
        let removed = surplus(&all, 20);
        assert_eq!(removed.len(), all.len() - 21);
        assert!(!removed.contains(&"p1".to_string()));
        let rejected: Vec<_> = (1..=100).map(|n| promotion(n, Phase::Rejected)).collect();
        assert_eq!(surplus(&rejected, 20).len(), 100 - REJECTED_KEPT);
    }

    #[test]
    fn fewer_records_are_kept_if_their_revisions_are_large() {
        let key: FacetKey = "HelmRelease/app:chart".parse().unwrap();
        let large = |sequence: u64| Promotion {
            revision: Revision::of_one(key.clone(), "x".repeat(1 << 20)),
            ..promotion(sequence, Phase::Superseded)
        };
        let all: Vec<Promotion> = (1..=30).map(large).collect();
        assert_eq!(surplus(&all, 20).len(), 25);
        let small: Vec<Promotion> = (1..=30).map(|n| promotion(n, Phase::Superseded)).collect();
        assert_eq!(surplus(&small, 20).len(), 10);
    }

    #[test]
    fn the_newest_records_and_those_needed_to_roll_back_are_kept() {
        use Phase::{Delivered, Failed, Succeeded, Superseded};
        let phases = [Succeeded, Succeeded, Superseded, Succeeded, Failed, Failed, Superseded, Delivered];
        let all: Vec<_> = phases.iter().enumerate().map(|(i, p)| promotion(i as u64, *p)).collect();
        assert_eq!(surplus(&all, 3), ["p2", "p0"]);
        assert_eq!(surplus(&all, 100), Vec::<String>::new());
    }
}
