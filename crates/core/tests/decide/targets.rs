//! Environments whose targets are promoted into separately.

use sluice_core::decide::Action;
use sluice_core::observed::Health;
use sluice_core::promotion::Phase;

use crate::simulation::Simulation;

/// dev with one target, and prod with two that are promoted into one by one. All run 1.0.0.
fn one_by_one() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
    sim.policy_of("prod").per_target = true;
    sim
}

#[test]
fn each_target_has_its_own_promotion_and_none_waits_for_another() {
    let mut sim = one_by_one();
    sim.runs("dev", "d", "1.1.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed", "1.1.0 Proposed"]);
    let targets: Vec<_> = sim.promotions.iter().map(|p| (p.target.as_deref(), p.name.as_str())).collect();
    assert_eq!((targets[0].0, targets[1].0), (Some("eu"), Some("us")));
    assert!(
        targets[0].1.starts_with("app-prod-eu-") && targets[1].1.starts_with("app-prod-us-"),
        "{targets:?}"
    );
    // The change request of eu is merged. That of us stays open, and the next revision takes it over.
    sim.merge("prod");
    sim.runs("prod", "eu", "1.1.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Succeeded", "1.1.0 Proposed"]);
    sim.runs("dev", "d", "1.2.0", Health::Ready);
    sim.settle();
    assert_eq!(
        sim.phases("prod"),
        ["1.1.0 Succeeded", "1.2.0 Proposed", "1.1.0 Superseded", "1.2.0 Proposed"]
    );
    assert_eq!(sim.open_requests("prod"), ["1.2.0", "1.2.0"]);
}

#[test]
fn a_requested_revision_goes_into_each_target_separately() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("dev").per_target = true;
    sim.trigger("dev", "1.1.0", "build-1");
    assert_eq!(sim.phases("dev"), ["1.1.0 Proposed", "1.1.0 Proposed"]);
    assert_eq!(sim.open_requests("dev").len(), 2);
    // The change request of eu is merged. The next request takes over that of us.
    sim.merge("dev");
    sim.runs("dev", "eu", "1.1.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.promotion("dev-eu-build-1").phase, Phase::Succeeded);
    sim.trigger("dev", "1.2.0", "build-2");
    assert_eq!(sim.promotion("dev-us-build-1").phase, Phase::Superseded);
    assert_eq!(sim.open_requests("dev"), ["1.2.0", "1.2.0"]);
    // The revision that eu has proven is promoted into prod.
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn a_note_names_the_target_that_waits_and_the_others_go_on() {
    let mut sim = one_by_one();
    sim.runs("prod", "us", "2.0.0", Health::Ready);
    sim.settle();
    sim.runs("dev", "d", "1.1.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed", "1.0.0 Superseded", "1.1.0 Pending"]);
    assert!(
        sim.note("prod").starts_with("us: 1.1.0 is held: it is older than 2.0.0"),
        "{}",
        sim.note("prod")
    );
    sim.cannot_be_read("prod", "eu");
    sim.runs("dev", "d", "1.2.0", Health::Ready);
    sim.settle();
    let note = sim.note("prod");
    assert!(note.starts_with("eu: 1.2.0 waits: no target can be read") && note.contains("; us: "), "{note}");
}

#[test]
fn regrouping_closes_open_change_requests_before_others_are_opened() {
    let mut sim = one_by_one();
    sim.policy_of("prod").per_target = false;
    sim.runs("dev", "d", "1.1.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.open_requests("prod").len(), 1);
    sim.policy_of("prod").per_target = true;
    sim.step();
    assert!(!sim.last.actions.iter().any(|a| matches!(a, Action::Deliver { .. })), "{:?}", sim.last.actions);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Cancelled", "1.1.0 Proposed", "1.1.0 Proposed"]);
    assert!(sim.promotions[0].message.contains("each target of prod is promoted into separately"));
    assert_eq!(sim.open_requests("prod").len(), 2);
    sim.pipeline.environments[1].targets.pop();
    sim.settle();
    assert_eq!(sim.open_requests("prod").len(), 1);
    assert!(sim.promotions[2].message.contains("prod has no target us any more"));
    sim.policy_of("prod").per_target = false;
    sim.settle();
    // A promotion with the same purpose uses the same record again.
    assert_eq!(sim.phases("prod")[0], "1.1.0 Proposed");
    assert_eq!(sim.open_requests("prod").len(), 1);
}
