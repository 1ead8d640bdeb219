//! Approvals, rejections and changes of prod by hand that come while the controller delivers or writes.

use super::controller_simulation::{ControllerSimulation, EffectFault};
use crate::state::*;

/// Carries everything out in order, for a while. Flux applies no commit.
fn run(simulation: &mut ControllerSimulation) {
    for _ in 0..20 {
        simulation.deliver_event();
        simulation.deliver_cluster_event();
        simulation.carry_out(0, EffectFault::None);
        simulation.answer(0);
        simulation.pass(1);
    }
}

/// Delivers all events of the cluster and of the hub, and carries nothing out.
fn observe(simulation: &mut ControllerSimulation) {
    while simulation.server.has_news() || !simulation.cluster_events.is_empty() {
        simulation.deliver_event();
        simulation.deliver_cluster_event();
    }
}

fn is_write(effect: &Effect, of: &str) -> bool {
    matches!(effect, Effect::WriteStatus(write) if matches!(write.owner, StatusOwner::Promotion(..)) && write.status.get().contains(of))
}

fn is_delivery(effect: &Effect) -> bool {
    matches!(effect, Effect::Start(_))
}

fn carry_out_all(simulation: &mut ControllerSimulation) {
    while !simulation.pending.is_empty() {
        simulation.carry_out(0, EffectFault::None);
    }
}

/// Version 2 waits for an approval of staging. Then somebody moves staging to version 3 by hand, and the controller has not
/// stored yet that version 2 would go back.
fn moved_ahead_while_waiting() -> ControllerSimulation {
    let mut simulation = ControllerSimulation::new(true);
    simulation.release(true);
    run(&mut simulation);
    assert!(simulation.summary().contains("Pending WaitingForGate"), "{}", simulation.summary());
    simulation.move_by_hand("staging", 3);
    observe(&mut simulation);
    let writes = |effect: &Effect| is_write(effect, "Downgrade");
    assert!(simulation.pending.iter().any(writes), "{:?}", simulation.pending);
    simulation
}

#[test]
fn an_approval_from_before_a_gate_is_stored_does_not_open_it() {
    for is_observed_first in [false, true] {
        for restarts in [false, true] {
            let mut simulation = moved_ahead_while_waiting();
            simulation.approve(0);
            if is_observed_first {
                observe(&mut simulation);
            }
            carry_out_all(&mut simulation);
            if restarts {
                simulation.begin();
            }
            run(&mut simulation);
            let case = format!("{is_observed_first} {restarts} {}", simulation.summary());
            assert!(simulation.commits.is_empty() && case.contains("Pending WaitingForGate"), "{case}");
            // The approver sees the gate now.
            simulation.approve(0);
            run(&mut simulation);
            assert_eq!(simulation.commits.len(), 1, "{case}");
        }
    }
}

#[test]
fn a_gate_that_closes_stops_the_delivery_in_flight() {
    for manual in [false, true] {
        let mut simulation = ControllerSimulation::new(manual);
        simulation.release(true);
        for _ in 0..20 {
            observe(&mut simulation);
            simulation.approve(0);
            if let Some(write) = simulation.pending.iter().position(|effect| !is_delivery(effect)) {
                simulation.carry_out(write, EffectFault::None);
            }
            simulation.answer(0);
        }
        assert!(simulation.pending.iter().any(is_delivery), "{}", simulation.summary());
        simulation.move_by_hand("staging", 3);
        observe(&mut simulation);
        run(&mut simulation);
        assert_eq!(simulation.files["staging"], 1, "{manual} {}", simulation.summary());
        assert!(simulation.summary().contains("is held: it is older than 1.0.3"), "{}", simulation.summary());
    }
}

/// A delivery has failed, and that is stored over a rejection. The controller begins the next try before the watch reports the
/// rejection.
#[test]
fn the_next_try_is_not_stored_over_a_rejection_that_was_not_read() {
    for begins_later in [false, true] {
        let mut simulation = ControllerSimulation::new(true);
        simulation.release(true);
        run(&mut simulation);
        simulation.approve(0);
        observe(&mut simulation);
        let delivery = simulation.pending.iter().position(is_delivery).unwrap();
        simulation.carry_out(delivery, EffectFault::Refused);
        let has_failed = |effect: &Effect| is_write(effect, "NoMarker");
        while !simulation.pending.iter().any(has_failed) {
            carry_out_all(&mut simulation);
            observe(&mut simulation);
            simulation.answer(0);
        }
        simulation.reject(0);
        let begin_next_try = |simulation: &mut ControllerSimulation| {
            simulation.move_by_hand("staging", 3);
            simulation.deliver_cluster_event();
        };
        if !begins_later {
            begin_next_try(&mut simulation);
        }
        let write_all = |simulation: &mut ControllerSimulation| {
            for _ in 0..4 {
                carry_out_all(simulation);
                simulation.answer(0);
            }
        };
        write_all(&mut simulation);
        if begins_later {
            begin_next_try(&mut simulation);
        }
        write_all(&mut simulation);
        simulation.begin();
        run(&mut simulation);
        let end = simulation.summary();
        assert!(end.contains("Rejected Rejected") && simulation.commits.is_empty(), "{begins_later} {end}");
    }
}

/// Somebody deletes a promotion while it is delivered. The record that follows needs an approval of its own.
#[test]
fn the_delivery_of_a_deleted_promotion_does_not_take_effect() {
    let mut simulation = ControllerSimulation::new(true);
    simulation.release(true);
    run(&mut simulation);
    simulation.approve(0);
    observe(&mut simulation);
    assert!(simulation.pending.iter().any(is_delivery), "{}", simulation.summary());
    simulation.delete(0);
    observe(&mut simulation);
    run(&mut simulation);
    assert!(simulation.commits.is_empty(), "{}", simulation.summary());
    assert!(simulation.summary().contains("waits for approval"), "{}", simulation.summary());
}
