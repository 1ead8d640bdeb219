//! What goes on when its cause is gone, and what is made again. B is 1.1.0, C is 1.2.0.

use jiff::SignedDuration;
use sluice_core::decide::Action;
use sluice_core::model::{Phase, Repository};
use sluice_core::world::Health;

use crate::sim::Sim;
use crate::table::{B, C, proposed};

#[test]
fn a_delivery_that_only_its_owner_can_correct_goes_on_when_that_is_done() {
    let mut sim = Sim::three();
    sim.refuses = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Promoting"]);
    assert_eq!(sim.note("staging"), "no file has the marker");
    sim.refuses = false;
    let (mut retried, mut newer) = (sim.clone(), sim.clone());
    sim.now += SignedDuration::from_mins(1);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Proposed"]);
    // A person who does not want to wait, and a newer revision, need not.
    retried.promotions[0].retry = Some("2026".into());
    retried.settle();
    assert_eq!(retried.story("staging"), ["1.1.0 Proposed"]);
    newer.runs("dev", "d", C, Health::Ready);
    newer.settle();
    assert_eq!(newer.story("staging"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn a_record_that_has_failed_without_a_delivery_stands_until_a_person_asks_again() {
    let mut sim = proposed();
    sim.close("staging");
    sim.promotions[0].phase = Phase::Failed;
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    sim.promotions[0].retry = Some("2026".into());
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Proposed"]);
}

/// B was committed for staging, which does not show it.
fn committed() -> Sim {
    let mut sim = Sim::three();
    sim.commits = true;
    let fleet = Repository { url: "https://git.example/fleet.git".into(), branch: "main".into() };
    sim.policy_of("staging").writes_to = Some(fleet);
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
    sim
}

fn checks(sim: &Sim) -> usize {
    sim.last.actions.iter().filter(|a| matches!(a, Action::CheckDelivered { .. })).count()
}

#[test]
fn a_commit_that_a_forced_push_removed_is_made_again() {
    let mut sim = committed();
    sim.policy_of("staging").manual = true;
    sim.promotions[0].approved = true;
    let before = sim.effects.len();
    sim.lost = vec![sim.promotions[0].name.clone()];
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
    assert_eq!((sim.effects.len(), sim.undone.as_slice()), (before + 1, &[B.to_string()][..]));
    assert!(sim.promotions[0].approved, "it is the revision that was approved");
    // Also when it was given up, for as long as it is wanted.
    sim.now += SignedDuration::from_mins(31);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    sim.lost = vec![sim.promotions[0].name.clone()];
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
}

#[test]
fn a_branch_is_looked_at_only_while_what_was_delivered_to_it_does_not_come() {
    let sim = committed();
    assert_eq!(checks(&sim), 1);
    let after = |change: fn(&mut Sim)| {
        let mut sim = sim.clone();
        change(&mut sim);
        sim.settle();
        checks(&sim)
    };
    assert_eq!(after(|sim| sim.runs("staging", "s", B, Health::Progressing)), 0);
    assert_eq!(after(|sim| sim.runs("staging", "s", B, Health::Failed)), 0);
    assert_eq!(after(|sim| sim.runs("staging", "s", B, Health::Ready)), 0);
    assert_eq!(after(|sim| sim.pipeline.suspended = true), 0);
    // A webhook writes to no branch; and what is not the candidate any more is not made again.
    assert_eq!(after(|sim| sim.policy_of("staging").writes_to = None), 0);
    assert_eq!(
        after(|sim| {
            sim.refuses = true;
            sim.runs("dev", "d", C, Health::Ready);
        }),
        0
    );
}
