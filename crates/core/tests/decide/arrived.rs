//! A receiver is called again only if no target has run what it was asked for: otherwise a person may have taken it back.

use jiff::SignedDuration;
use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::promotion::{Phase, Promotion, ReceiverReport};
use sluice_core::repository::Repository;

use crate::simulation::{Simulation, member, shows};
use crate::table::{A, B};

/// A receiver was called for B, which goes into staging.
fn called() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("staging", &["s", "t"])]);
    sim.commits = true;
    sim.runs("staging", "s", A, Health::Ready);
    sim.runs("staging", "t", A, Health::Ready);
    sim.settle();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging").last().unwrap(), "1.1.0 Delivered");
    sim
}

fn last(sim: &Simulation) -> &Promotion {
    sim.promotions.last().unwrap()
}

fn pass_timeout(sim: &mut Simulation) {
    sim.now += SignedDuration::from_mins(31);
    sim.settle();
}

#[test]
fn what_no_target_has_run_may_be_lost() {
    let mut sim = called();
    pass_timeout(&mut sim);
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, "NotArrived"));
    // It arrives after the timeout, and is not healthy.
    sim.runs("staging", "t", B, Health::Failed);
    sim.settle();
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, "Unhealthy"));
    assert_eq!(sim.step(), 0, "and nothing more");
}

#[test]
fn what_a_target_has_run_was_not_lost_although_a_person_took_it_back() {
    let mut sim = called();
    sim.runs("staging", "s", B, Health::Failed);
    sim.settle();
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Delivered, "Arrived"));
    sim.runs("staging", "s", A, Health::Ready);
    pass_timeout(&mut sim);
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, "Unhealthy"));
}

/// Helm rolls back, or tries again later: the version that it tried never runs.
#[test]
fn a_failed_upgrade_has_arrived() {
    let mut sim = called();
    let mut shown = shows(A, Health::Failed);
    member(&mut shown).attempted = B.into();
    sim.observed.insert("staging", "s", shown);
    sim.settle();
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Delivered, "Arrived"));
}

#[test]
fn a_failure_that_the_receiver_reports_after_a_target_has_run_it_is_not_repeated() {
    for has_run in [false, true] {
        let mut sim = called();
        if has_run {
            sim.runs("staging", "s", B, Health::Failed);
            sim.settle();
        }
        sim.promotions.last_mut().unwrap().report = Some(ReceiverReport::Failed("checks failed".into()));
        sim.settle();
        let reason = if has_run { "Unhealthy" } else { "CallbackFailed" };
        assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, reason));
    }
}

#[test]
fn a_receiver_is_not_called_again_while_a_target_cannot_be_read() {
    let mut sim = called();
    let shown = sim.observed.target("staging", "t").unwrap().clone();
    sim.observed.insert("staging", "t", ObservedTarget::unreadable("connection refused"));
    pass_timeout(&mut sim);
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, "NotArrived"));
    let now = sim.now;
    sim.promotions.last_mut().unwrap().resumes_at = Some(now);
    sim.settle();
    assert!(sim.note("staging").contains("called again when t can be read"), "{}", sim.note("staging"));
    sim.observed.insert("staging", "t", shown);
    sim.settle();
    assert_eq!(last(&sim).phase, Phase::Delivered, "it is called again");
}

/// The former receiver has the key of its call, and could report about another call with the same key.
#[test]
fn another_receiver_is_called_in_another_round() {
    for has_moved in [false, true] {
        let mut sim = called();
        pass_timeout(&mut sim);
        let now = sim.now;
        let failed = sim.promotions.last_mut().unwrap();
        (failed.has_moved, failed.resumes_at) = (has_moved, Some(now));
        sim.settle();
        assert_eq!(!sim.undone.is_empty(), has_moved);
        assert_eq!(last(&sim).phase, Phase::Delivered, "it is called again");
    }
}

#[test]
fn a_commit_that_arrives_is_no_news() {
    let mut sim = called();
    let fleet = Repository { url: "https://git.example/fleet.git".into(), branch: "main".into() };
    sim.policy_of("staging").writes_to = Some(fleet);
    sim.observed.insert("staging", "s", shows(B, Health::Failed));
    sim.settle();
    assert_ne!(last(&sim).reason, "Arrived");
    pass_timeout(&mut sim);
    assert_eq!((last(&sim).phase, last(&sim).reason.as_str()), (Phase::Failed, "Unhealthy"));
}
