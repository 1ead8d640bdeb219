//! Properties of random histories: the effects of the state keep the promises P1 to P9, and when faults stop, the
//! newest revision arrives everywhere and the controller comes to rest.

use proptest::prelude::*;
use proptest::sample::Index;

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault};
use super::happening::{Happening, apply, cases, run};
use crate::state::effect::Effect;

fn fault() -> impl Strategy<Value = EffectFault> {
    prop_oneof![6 => Just(EffectFault::None), 1 => Just(EffectFault::Refused), 1 => Just(EffectFault::AnswerLost)]
}

fn happening() -> impl Strategy<Value = Happening> {
    let index = any::<Index>;
    prop_oneof![
        3 => any::<bool>().prop_map(Happening::Release),
        2 => (index(), any::<bool>()).prop_map(|(i, healthy)| Happening::Health(i, healthy)),
        4 => (index(), any::<bool>()).prop_map(|(i, healthy)| Happening::ApplyFiles(i, healthy)),
        2 => any::<bool>().prop_map(Happening::Suspend),
        1 => any::<bool>().prop_map(Happening::Manual),
        1 => any::<bool>().prop_map(Happening::Branch),
        1 => Just(Happening::Recreate),
        1 => Just(Happening::CollectGarbage),
        2 => index().prop_map(Happening::Approve),
        1 => index().prop_map(Happening::Reject),
        1 => index().prop_map(Happening::Retry),
        1 => index().prop_map(Happening::Annotate),
        1 => index().prop_map(Happening::Delete),
        12 => Just(Happening::Event),
        2 => index().prop_map(Happening::RepeatEvent),
        8 => Just(Happening::ClusterEvent),
        14 => (index(), fault()).prop_map(|(i, fault)| Happening::CarryOut(i, fault)),
        14 => index().prop_map(Happening::Answer),
        6 => prop_oneof![1u64..5, 30u64..900].prop_map(Happening::Pass),
        2 => prop_oneof![Just(0), Just(86_400), Just(-86_400)].prop_map(Happening::SetClock),
        2 => Just(Happening::Relist),
        1 => Just(Happening::Restart),
        1 => any::<bool>().prop_map(Happening::MoveProd),
        1 => Just(Happening::Outage(14)),
        1 => index().prop_map(Happening::LateWrite),
        1 => any::<bool>().prop_map(Happening::LoseCluster),
    ]
}

/// How many histories are tried.
const CASES: u32 = 400;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(CASES), max_shrink_iters: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_any_history_the_promises_hold_and_the_newest_revision_arrives(
        manual in prop::bool::weighted(0.2),
        happenings in prop::collection::vec(happening(), 1..120),
        takes_over in prop::bool::weighted(0.3),
        is_prod_lost in prop::bool::weighted(0.3),
    ) {
        let mut simulation = ControllerSimulation::new(manual);
        happenings.iter().for_each(|happening| apply(&mut simulation, happening));
        simulation.suspend(false);
        simulation.set_manual(manual);
        simulation.set_clock(0);
        if takes_over {
            simulation.fail_with_fast_clock();
        }
        let is_automatic = |simulation: &ControllerSimulation| !manual && !simulation.any_rejected();
        if is_prod_lost {
            simulation.move_prod(true);
            simulation.lose_eu(true);
            simulation.settle();
            simulation.check_isolation(is_automatic(&simulation));
        }
        simulation.lose_eu(false);
        simulation.settle();
        simulation.check_memory();
        simulation.check_stories();
        // P3 and P4: without rejections and approvals, everything runs what dev runs.
        let newest = simulation.fleet["dev"].version;
        if is_automatic(&simulation) {
            for environment in ENVIRONMENTS {
                prop_assert_eq!(simulation.fleet[environment].version, newest, "{}: {}", environment, simulation.summary());
            }
        }
        // P5: at rest nothing is written or done.
        let before = (simulation.creations, simulation.pipeline_writes, simulation.promotion_writes);
        simulation.pass_hours();
        prop_assert_eq!((simulation.creations, simulation.pipeline_writes, simulation.promotion_writes), before);
    }
}

#[test]
fn a_target_that_flaps_every_second_costs_few_writes() {
    let mut simulation = ControllerSimulation::new(false);
    simulation.settle();
    let before = simulation.pipeline_writes;
    for second in 0..600 {
        simulation.set_healthy("prod", second % 2 == 0);
        simulation.deliver_cluster_event();
        simulation.pass(1);
        simulation.carry_out(0, EffectFault::None);
        simulation.answer(0);
        simulation.deliver_event();
    }
    let writes = simulation.pipeline_writes - before;
    assert!((3..60).contains(&writes), "{writes} writes in ten minutes");
}

#[test]
fn the_wait_of_an_approved_promotion_is_counted_once() {
    let mut simulation = ControllerSimulation::new(true);
    simulation.release(true);
    simulation.settle();
    assert_eq!(simulation.gate_waits, 0, "{}", simulation.summary());
    simulation.approve(0);
    simulation.settle();
    assert_eq!(simulation.fleet["staging"].version, 2);
    assert_eq!(simulation.gate_waits, 1, "{}", simulation.summary());
}

/// The targets do not read the branch that the pipeline names.
#[test]
fn a_failed_promotion_is_delivered_once_more_for_each_branch_that_the_owner_names() {
    let mut simulation = ControllerSimulation::new(false);
    simulation.release(true);
    for (edits, branch) in [(0, "main"), (1, "other"), (2, "main")] {
        simulation.set_branch(branch);
        run(&mut simulation, 200, 30);
        assert!(simulation.summary().contains("Failed Unhealthy"), "{}", simulation.summary());
        assert_eq!(simulation.delivered.len(), 1 + edits, "{branch}");
    }
    // Another edit is no reason to deliver again. A rejected promotion stays rejected.
    simulation.set_manual(true);
    run(&mut simulation, 200, 30);
    assert_eq!(simulation.delivered.len(), 3);
    simulation.set_manual(false);
    simulation.reject(0);
    simulation.set_branch("other");
    run(&mut simulation, 200, 30);
    assert!(simulation.summary().contains("Rejected Rejected"), "{}", simulation.summary());
    assert_eq!(simulation.delivered.len(), 3);
}

/// Its commit is still in the branch where it was made.
#[test]
fn a_promotion_that_waits_for_its_targets_is_not_delivered_to_another_branch() {
    let mut simulation = ControllerSimulation::new(false);
    simulation.release(true);
    let waits = |simulation: &ControllerSimulation| simulation.summary().contains("Delivered");
    while !waits(&simulation) {
        run(&mut simulation, 1, 1);
    }
    simulation.set_branch("other");
    while waits(&simulation) {
        assert_eq!(simulation.delivered.len(), 1, "{}", simulation.summary());
        run(&mut simulation, 1, 30);
    }
    assert!(simulation.summary().contains("Failed Unhealthy"), "{}", simulation.summary());
}

/// The API server accepts a rejection of the stored try, and the controller has begun the next one.
#[test]
fn a_rejection_that_comes_before_the_next_try_is_stored_survives_a_restart() {
    let mut simulation = ControllerSimulation::new(false);
    simulation.release(true);
    // Flux does not apply the commit.
    run(&mut simulation, 200, 30);
    assert!(simulation.summary().contains("Failed Unhealthy"), "{}", simulation.summary());
    simulation.retry(0);
    simulation.deliver_event();
    assert!(!simulation.pending.is_empty(), "no status is written");
    simulation.reject(0);
    simulation.carry_out(0, EffectFault::None);
    simulation.begin();
    run(&mut simulation, 200, 30);
    assert!(simulation.summary().contains("Rejected Rejected"), "{}", simulation.summary());
}

/// Found by random histories. A person rejects a promotion whose revision somebody has brought to its target by hand.
#[test]
fn a_rejection_that_comes_before_the_success_is_stored_counts() {
    let mut simulation = ControllerSimulation::new(true);
    simulation.release(true);
    run(&mut simulation, 60, 7);
    assert!(simulation.summary().contains("waits for approval"), "{}", simulation.summary());
    let version = simulation.fleet["dev"].version;
    simulation.move_by_hand("staging", version);
    for _ in 0..8 {
        simulation.deliver_cluster_event();
        simulation.pass(1);
    }
    let writes = |effect: &Effect| matches!(effect, Effect::WriteStatus(write) if write.status.get().contains("Succeeded"));
    assert!(simulation.pending.iter().any(writes), "{}", simulation.summary());
    simulation.reject(0);
    run(&mut simulation, 60, 7);
    assert!(simulation.summary().contains("Rejected Rejected"), "{}", simulation.summary());
}

/// The cluster of dev claims that another version runs there each second.
#[test]
fn a_version_that_changes_every_second_creates_few_promotions_and_the_last_one_arrives() {
    let mut simulation = ControllerSimulation::new(false);
    for _ in 0..600 {
        simulation.move_by_hand("dev", simulation.fleet["dev"].version + 1);
        run(&mut simulation, 1, 1);
    }
    let places = ENVIRONMENTS.len() - 1;
    assert!(simulation.creations <= places * (30 + 600 / 5 + 2), "{} creations", simulation.creations);
    let newest = simulation.fleet["dev"].version;
    simulation.settle();
    for environment in ENVIRONMENTS {
        assert_eq!(simulation.fleet[environment].version, newest, "{environment}: {}", simulation.summary());
    }
}
