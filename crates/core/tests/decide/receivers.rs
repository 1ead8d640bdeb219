//! A receiver that has accepted a promotion is called again only if a person requests it: what a receiver has accepted is its own
//! to finish, and a person may have taken it back. A is 1.0.0, B is 1.1.0.

use jiff::SignedDuration;
use sluice_core::observed::Health;
use sluice_core::promotion::{Phase, ReceiverReport};

use crate::simulation::{Effect, Simulation};
use crate::table::{A, B};

/// A receiver was called for B, which goes into staging.
fn called() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("staging", &["s", "t"])]);
    sim.commits = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(calls(&sim), 1);
    sim
}

fn calls(sim: &Simulation) -> usize {
    sim.effects.iter().filter(|effect| matches!(effect, Effect::Updated(..))).count()
}

fn is_called_again_only_by_a_person(sim: &mut Simulation, reason: &str) {
    assert_eq!((sim.promotions[0].phase, sim.promotions[0].reason.as_str()), (Phase::Failed, reason));
    for _ in 0..50 {
        sim.now += SignedDuration::from_hours(1);
        sim.settle();
    }
    assert_eq!(calls(sim), 1);
    assert!(sim.note("staging").contains("sluice retry"), "{}", sim.note("staging"));
    sim.promotions[0].report = None;
    sim.promotions[0].retry = Some("2026".into());
    sim.settle();
    assert_eq!((calls(sim), sim.promotions[0].phase), (2, Phase::Delivered));
}

#[test]
fn a_call_that_came_to_nothing_is_not_repeated() {
    let mut sim = called();
    sim.now += SignedDuration::from_mins(31);
    sim.settle();
    is_called_again_only_by_a_person(&mut sim, "Unhealthy");
}

#[test]
fn what_a_person_took_back_is_not_asked_for_again() {
    let mut sim = called();
    sim.runs("staging", "s", B, Health::Failed);
    sim.settle();
    sim.runs("staging", "s", A, Health::Ready);
    sim.now += SignedDuration::from_mins(31);
    sim.settle();
    is_called_again_only_by_a_person(&mut sim, "Unhealthy");
}

#[test]
fn a_call_whose_failure_the_receiver_reports_is_not_repeated() {
    let mut sim = called();
    sim.promotions[0].report = Some(ReceiverReport::Failed("checks failed".into()));
    sim.settle();
    is_called_again_only_by_a_person(&mut sim, "CallbackFailed");
}

#[test]
fn a_receiver_may_report_that_it_has_done_it_after_all() {
    let mut sim = called();
    sim.promotions[0].report = Some(ReceiverReport::Failed("no runner".into()));
    sim.settle();
    sim.promotions[0].report = Some(ReceiverReport::Fixed("build 8".into()));
    sim.settle();
    assert_eq!((calls(&sim), sim.promotions[0].phase), (1, Phase::Delivered));
}
