//! Gates that hold a promotion until a person approves it. A is 1.0.0, B is 1.1.0, C is 1.2.0.

use jiff::SignedDuration;
use sluice_core::decide::Action;
use sluice_core::evidence::Evidence;
use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::promotion::Phase;

use crate::simulation::{Simulation, member, shows};
use crate::table::{A, B, C};

#[test]
fn an_unreported_target_holds_a_promotion_until_a_report_or_an_approval() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
    let mut silent = shows("", Health::Unknown);
    member(&mut silent).facets.clear();
    // As after the status was lost: there is no evidence about the target either.
    sim.evidence = Evidence::default();
    sim.observed.insert("prod", "us", silent);
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
    assert!(sim.note("prod").contains("it is unknown what prod/us runs"), "{}", sim.note("prod"));
    let (mut approved, mut reports) = (sim.clone(), sim.clone());
    let name = sim.promotions[0].name.clone();
    approved.promotion(&name).approved = true;
    approved.settle();
    assert_eq!(approved.phases("prod"), ["1.1.0 Proposed"]);
    reports.runs("prod", "us", A, Health::Ready);
    reports.settle();
    assert_eq!(reports.phases("prod"), ["1.1.0 Proposed"]);
    // A promotion that was proposed before the target became silent is not held for it.
    let mut proposed = reports.clone();
    proposed.observed.insert("prod", "us", sim.observed.target("prod", "us").unwrap().clone());
    proposed.evidence = Evidence::default();
    proposed.step();
    let merges = |action: &Action| matches!(action, Action::Follow { may_merge: true, .. });
    assert!(proposed.last.actions.iter().any(merges), "{:?}", proposed.last);
    // The target reports a newer revision, so another gate holds the promotion.
    sim.runs("prod", "us", C, Health::Ready);
    sim.settle();
    assert!(sim.note("prod").contains("it is older than 1.2.0"), "{}", sim.note("prod"));
    sim.policy_of("prod").allow_downgrade = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

/// The owner adds a target, or gives one another name, while its cluster cannot be read. A target that was read before is not
/// waited for.
#[test]
fn a_target_that_was_never_read_holds_a_promotion() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
    for target in ["eu", "us"] {
        sim.runs("prod", target, A, Health::Ready);
    }
    sim.settle();
    let known = sim.evidence.clone();
    sim.cannot_be_read("prod", "us");
    sim.runs("dev", "d", B, Health::Ready);
    let mut added = sim.clone();
    added.evidence = Evidence::default();
    added.settle();
    assert_eq!(added.phases("prod"), ["1.1.0 Pending"]);
    assert!(
        added.note("prod").contains("it is unknown what prod/us runs (the cluster is gone)"),
        "{}",
        added.note("prod")
    );
    sim.evidence = known;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
    // The owner renames it now. What is proposed is not merged.
    sim.evidence.forget("prod", "us");
    sim.step();
    let merges = |action: &Action| matches!(action, Action::Follow { may_merge: true, .. });
    assert!(!sim.last.actions.iter().any(merges), "{:?}", sim.last);
    assert!(sim.note("prod").contains("it is unknown what prod/us runs"), "{}", sim.note("prod"));
    // Nothing runs in a target that was read and has no members.
    let mut empty = added.clone();
    empty.observed.insert("prod", "us", ObservedTarget::empty("there is no HelmRelease"));
    empty.settle();
    assert_eq!(empty.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn the_gate_of_unreported_targets_names_all_that_an_approval_counts_for() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us", "as", "af", "au"])]);
    let mut silent = shows("", Health::Unknown);
    member(&mut silent).facets.clear();
    sim.evidence = Evidence::default();
    for target in ["us", "as", "af", "au"] {
        sim.observed.insert("prod", target, silent.clone());
    }
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    let note = sim.note("prod");
    assert!(note.contains("it is unknown what prod/us, prod/as, prod/af and 1 other runs"), "{note}");
}

#[test]
fn an_incomparable_revision_that_has_run_before_is_a_downgrade() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("staging", &["s"])]);
    for version in ["red", "blue"] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
        sim.runs("staging", "s", version, Health::Ready);
        sim.merge("staging");
    }
    assert_eq!(sim.phases("staging"), ["red Succeeded", "blue Succeeded"]);
    sim.runs("dev", "d", "red", Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["red Succeeded", "blue Succeeded", "red Pending"]);
    assert_ne!(sim.promotions[0].name, sim.promotions[2].name);
}

/// The hash after the version has no order: the revision that arrived later is the newer one.
#[test]
fn a_build_whose_hash_sorts_lower_is_promoted_like_any_newer_revision() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    for version in ["1.1.0-f00dbab", "1.1.0-0c0ffee", "1.1.0-badcafe"] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
        sim.runs("prod", "p", version, Health::Ready);
        sim.merge("prod");
    }
    let succeeded = ["1.1.0-f00dbab Succeeded", "1.1.0-0c0ffee Succeeded", "1.1.0-badcafe Succeeded"];
    assert_eq!(sim.phases("prod"), succeeded);
}

/// After a takeover, the watches of the new replica may lag: dev seems to return to B, and prod seems to run A.
#[test]
fn a_revision_older_than_the_last_delivered_one_is_held_although_targets_show_older_ones() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.runs("prod", "p", A, Health::Ready);
    for version in [B, C] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
        sim.runs("prod", "p", version, Health::Ready);
        sim.merge("prod");
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Succeeded", "1.2.0 Succeeded"]);
    sim.runs("dev", "d", B, Health::Ready);
    sim.runs("prod", "p", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Succeeded", "1.2.0 Succeeded", "1.1.0 Pending"]);
    let note = sim.note("prod");
    assert!(note.contains("it is older than 1.2.0, which was promoted into prod last"), "{note}");
    // The same if C was delivered, and did not become healthy.
    let mut failed = sim.clone();
    let name = failed.promotions[1].name.clone();
    failed.promotion(&name).phase = Phase::Failed;
    failed.settle();
    assert!(failed.note("prod").contains("it is older than 1.2.0"), "{}", failed.note("prod"));
    // The watches catch up.
    for environment in ["dev", "prod"] {
        sim.runs(environment, &environment[..1], C, Health::Ready);
    }
    sim.settle();
    let phases = sim.phases("prod");
    assert!(!phases.contains(&"1.1.0 Proposed".into()) && phases[2] != "1.1.0 Succeeded", "{phases:?}");
}

/// If the clock was set back between two deliveries, each of them may be the last one: what is older than one of them waits.
#[test]
fn a_clock_that_is_set_back_between_deliveries_holds_more_and_never_less() {
    for (minutes, phase) in [(1, "Proposed"), (-1, "Pending")] {
        let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
        for version in [B, "main-7"] {
            sim.runs("dev", "d", version, Health::Ready);
            sim.settle();
            sim.runs("prod", "p", version, Health::Failed);
            sim.merge("prod");
            sim.now += SignedDuration::from_mins(minutes);
        }
        sim.runs("dev", "d", "0.9.0", Health::Ready);
        sim.settle();
        let last = format!("0.9.0 {phase}");
        assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "main-7 Delivered", &last], "{minutes}");
    }
}
