//! Helm gives up on a release: the promotion of exactly that revision fails with Helm's cause at once, and
//! succeeds all the same when the targets run it after that.

use sluice_core::model::Phase;
use sluice_core::world::{Health, Target};

use crate::sim::{Sim, shows};
use crate::table::{A, B, proposed};

/// Helm has tried a chart for the last time, and the one before it runs.
fn gave_up_on(tried: &str) -> Target {
    let mut shown = shows(A, Health::Failed);
    shown.members[0].gave_up = Some(tried.into());
    shown.members[0].message = "Helm upgrade failed: timed out".into();
    shown
}

/// B is merged into staging, which shows this.
fn delivered(shown: Target) -> Sim {
    let mut sim = proposed();
    sim.world.insert("staging", "s", shown);
    sim.merge("staging");
    sim.settle();
    sim
}

#[test]
fn a_promotion_fails_at_once_with_the_cause_of_helm() {
    let mut sim = delivered(gave_up_on(B));
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    let promotion = sim.promotions.iter().find(|p| p.environment == "staging").unwrap();
    assert!(promotion.message.contains("Helm upgrade failed: timed out"), "{}", promotion.message);
    assert_eq!(sim.step(), 0, "and nothing more");
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn giving_up_on_another_revision_means_nothing() {
    for shown in [gave_up_on(A), shows(A, Health::Failed)] {
        let sim = delivered(shown);
        let phases: Vec<Phase> =
            sim.promotions.iter().filter(|p| p.environment == "staging").map(|p| p.phase).collect();
        assert_eq!(phases, [Phase::Delivered]);
    }
}
