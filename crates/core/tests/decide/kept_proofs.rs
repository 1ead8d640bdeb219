//! Which proofs of a fast environment are kept until a slow one has caught up. prod depends on dev and perf, and
//! perf is slow.

use proptest::prelude::*;
use sluice_core::evidence::{Evidence, MAX_PROOFS, MIN_PROOFS};
use sluice_core::observed::{Health, ObservedTargets};
use sluice_core::pipeline::MinReady;

use crate::simulation::{Simulation, revision, shows};

/// dev → perf, and prod depends on both.
fn diamond() -> Simulation {
    let mut sim = Simulation::three();
    sim.pipeline.environments[1].name = "perf".into();
    sim.pipeline.environments[2].depends_on = vec!["dev".into(), "perf".into()];
    sim.observed.insert("perf", "s", shows("1.0.0", Health::Ready));
    sim.evidence = Evidence::default();
    sim
}

fn version(n: usize) -> String {
    format!("1.{n}.0")
}

/// Observes the targets once more.
fn look(sim: &mut Simulation) {
    sim.evidence = sim.evidence.updated(&sim.pipeline, &sim.observed, &[], sim.now);
}

/// The newest revision that both have proven.
fn candidate(sim: &Simulation) -> Option<String> {
    let prod = &sim.pipeline.environments[2];
    sim.evidence.candidate(&sim.pipeline, prod, MinReady::Count(1)).map(|c| c.revision.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// P3: however many revisions dev goes through while perf proves one, prod gets the one that perf proves.
    #[test]
    fn proofs_of_a_fast_dev_are_kept_for_a_slow_perf(
        rounds in prop::collection::vec((0..90usize, any::<bool>()), 1..5)
    ) {
        let mut sim = diamond();
        let mut newest = 0;
        for (meanwhile, fails) in rounds {
            newest += 1;
            sim.runs("dev", "d", &version(newest), Health::Ready);
            look(&mut sim);
            let taken = newest;
            for _ in 0..=meanwhile {
                sim.runs("perf", "s", &version(taken), Health::Progressing);
                newest += 1;
                sim.runs("dev", "d", &version(newest), Health::Ready);
                look(&mut sim);
                prop_assert!(sim.evidence.of("dev", "d").len() <= MAX_PROOFS);
            }
            let before = candidate(&sim);
            let health = if fails { Health::Failed } else { Health::Ready };
            sim.runs("perf", "s", &version(taken), health);
            look(&mut sim);
            prop_assert_eq!(candidate(&sim), if fails { before } else { Some(version(taken)) });
            // P5 and P8: the same observation again changes nothing.
            let known = sim.evidence.clone();
            look(&mut sim);
            prop_assert_eq!(&sim.evidence, &known);
        }
        // Proofs of revisions that perf has caught up with are not kept.
        sim.runs("perf", "s", &version(newest), Health::Ready);
        look(&mut sim);
        prop_assert!(sim.evidence.of("dev", "d").len() <= MIN_PROOFS);
    }

    /// P2 and P3: a perf that is hundreds of revisions behind and proves each in its turn still feeds prod,
    /// never with a revision that dev has not proven.
    #[test]
    fn a_perf_that_is_far_behind_still_proves_revisions_for_prod(ahead in 1..250usize, every in 1..5usize) {
        let mut sim = diamond();
        for n in 1..=ahead {
            // dev fails at some of them.
            let health = if n % 7 == 3 { Health::Failed } else { Health::Ready };
            sim.runs("dev", "d", &version(n), health);
            look(&mut sim);
        }
        let mut fed = Vec::new();
        for n in (1..=ahead).filter(|n| n % every == 0 || *n == ahead) {
            sim.runs("perf", "s", &version(n), Health::Ready);
            look(&mut sim);
            fed.extend(candidate(&sim).filter(|c| fed.last() != Some(c)));
        }
        let proven = |v: &String| (1..=ahead).any(|n| n % 7 != 3 && n % every.max(1) == 0 && version(n) == *v);
        prop_assert!(fed.iter().all(|v| v == "1.0.0" || v == &version(ahead) || proven(v)), "{fed:?}");
        let due = (ahead / every).min(MAX_PROOFS / (2 * every)) / 2;
        prop_assert!(fed.len() >= due, "{} of {due}: {fed:?}", fed.len());
    }
}

#[test]
fn if_one_proof_is_enough_only_the_newest_are_kept() {
    let mut sim = Simulation::three();
    for n in 1..200 {
        sim.runs("dev", "d", &version(n), Health::Ready);
        look(&mut sim);
    }
    assert_eq!(sim.evidence.of("dev", "d").len(), MIN_PROOFS);
}

#[test]
fn many_targets_share_the_limit_of_a_pipeline() {
    let names: Vec<String> = (0..128).map(|n| format!("t{n}")).collect();
    let targets: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut sim = Simulation::new(&[("dev", &targets), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    let mut observed = ObservedTargets::default();
    for n in 1..100 {
        // The last target is stuck.
        for (i, target) in targets.iter().enumerate() {
            let stuck = i == targets.len() - 1;
            let shown = if stuck {
                shows(&version(1), Health::Progressing)
            } else {
                shows(&version(n), Health::Ready)
            };
            observed.insert("dev", target, shown);
        }
        sim.observed = observed.clone();
        look(&mut sim);
    }
    let kept: usize = targets.iter().map(|t| sim.evidence.of("dev", t).len()).sum();
    assert!(kept <= 2000, "{kept}");
    // The revision at which the last target is stuck is among the kept proofs of each other target.
    for target in &targets[..127] {
        let proofs = sim.evidence.of("dev", target);
        assert!(proofs.iter().any(|p| p.revision == revision(&version(1))), "{target}");
    }
}

/// dev comes back to a revision that was promoted, after so many others that its proof is not kept.
#[test]
fn a_revision_is_promoted_again_when_it_comes_back_after_many_others() {
    for others in [MIN_PROOFS - 1, MIN_PROOFS, 3 * MIN_PROOFS] {
        let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
        sim.policy_of("prod").allow_downgrade = true;
        let mut promote = |version: &str| {
            sim.runs("dev", "d", version, Health::Ready);
            sim.settle();
            sim.merge("prod");
            sim.runs("prod", "p", version, Health::Ready);
            sim.settle();
            sim.phases("prod").pop().unwrap_or_default()
        };
        for version in (1..=others + 1).map(version) {
            assert_eq!(promote(&version), format!("{version} Succeeded"));
        }
        for _ in 0..2 {
            assert_eq!(promote("1.1.0"), "1.1.0 Succeeded", "after {others} others");
            for version in (2..=others + 1).map(version) {
                promote(&version);
            }
        }
        let runs = sim.promotions.iter().filter(|p| p.revision == revision("1.1.0")).map(|p| p.run);
        assert_eq!(runs.collect::<Vec<_>>(), [0, 1, 2]);
    }
}

/// A person has rolled prod back. That dev still runs the revision does not promote it again, also if the proofs are lost.
#[test]
fn a_revision_that_did_not_leave_dev_has_not_come_back() {
    let mut sim = Simulation::new(&[("dev", &["d", "e"]), ("prod", &["p"])]);
    sim.policy_of("prod").allow_downgrade = true;
    for version in (1..=MIN_PROOFS + 2).map(version) {
        sim.runs("dev", "d", &version, Health::Ready);
        sim.settle();
        sim.merge("prod");
        sim.runs("prod", "p", &version, Health::Ready);
        sim.settle();
    }
    let records = sim.promotions.len();
    sim.runs("prod", "p", &version(1), Health::Ready);
    for is_lost in [false, true] {
        if is_lost {
            sim.evidence = Evidence::default();
        }
        // The other target of dev comes to the revision, and to one from before, for the first time.
        for version in [version(1), version(MIN_PROOFS + 2)] {
            sim.runs("dev", "e", &version, Health::Ready);
            sim.settle();
        }
        assert_eq!(sim.promotions.len(), records, "{:?}", sim.phases("prod"));
    }
}
