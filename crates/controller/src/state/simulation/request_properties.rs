//! Properties of random histories of a pipeline that promotes by change request.

use proptest::prelude::*;
use proptest::sample::Index;

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault, SECOND_DEV};
use super::forge::RequestState;
use super::happening::{Happening, apply, cases, run};
use crate::state::effect::Effect;

fn fault() -> impl Strategy<Value = EffectFault> {
    prop_oneof![
        6 => Just(EffectFault::None),
        1 => Just(EffectFault::Refused),
        1 => Just(EffectFault::AnswerLost),
        2 => Just(EffectFault::OnlyPushed),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let index = any::<Index>;
    prop_oneof![
        1 => prop::bool::weighted(0.8).prop_map(Happening::Release),
        8 => Just(Happening::ReleaseBoth),
        5 => prop_oneof![3 => Just(0u32), 1 => Just(1), 1 => Just(2)].prop_map(Happening::Second),
        6 => prop_oneof![3 => Just(1), 1 => Just(2)].prop_map(Happening::First),
        1 => (index(), any::<bool>()).prop_map(|(i, healthy)| Happening::Health(i, healthy)),
        2 => (index(), any::<bool>()).prop_map(|(i, healthy)| Happening::ApplyFiles(i, healthy)),
        1 => any::<bool>().prop_map(Happening::Suspend),
        1 => any::<bool>().prop_map(Happening::Manual),
        1 => any::<bool>().prop_map(Happening::Merge),
        1 => any::<bool>().prop_map(Happening::Rename),
        1 => any::<bool>().prop_map(Happening::Strategy),
        2 => index().prop_map(Happening::Approve),
        3 => index().prop_map(Happening::Reject),
        2 => index().prop_map(Happening::Retry),
        1 => index().prop_map(Happening::MergeByHand),
        2 => index().prop_map(Happening::CloseByHand),
        8 => Just(Happening::Event),
        6 => Just(Happening::ClusterEvent),
        10 => (index(), fault()).prop_map(|(i, fault)| Happening::CarryOut(i, fault)),
        10 => index().prop_map(Happening::Answer),
        6 => prop_oneof![1u64..5, 30u64..900].prop_map(Happening::Pass),
        1 => Just(Happening::Relist),
        1 => Just(Happening::Restart),
        1 => index().prop_map(Happening::LateWrite),
        20 => (1u8..12).prop_map(Happening::Run),
    ]
}

/// How many histories are tried.
const CASES: u32 = 40;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(CASES), max_shrink_iters: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_change_request_belongs_to_one_promotion_and_the_newest_revision_arrives(
        manual in prop::bool::weighted(0.2),
        merges in prop::bool::weighted(0.4),
        happenings in prop::collection::vec(happening(), 10..80),
    ) {
        let mut simulation = ControllerSimulation::with_requests(manual);
        simulation.edit_requests(Some(merges), None);
        happenings.iter().for_each(|happening| apply(&mut simulation, happening));
        simulation.suspend(false);
        simulation.set_manual(manual);
        simulation.set_strategy(true);
        simulation.edit_requests(Some(merges), Some(false));
        simulation.settle();
        simulation.check_requests();
        simulation.check_rejections();
        simulation.close_unrecorded();
        // A newer revision than any other arrives, whatever became of the earlier ones.
        let newest = simulation.proven["dev"].iter().chain(&simulation.proven[SECOND_DEV]).max().unwrap() + 1;
        let newest = newest.max(simulation.fleet["dev"].version + 1);
        simulation.move_by_hand("dev", newest);
        simulation.move_by_hand(SECOND_DEV, newest);
        for round in 0..10 {
            simulation.settle();
            simulation.check_requests();
            simulation.check_rejections();
            if simulation.forge.nth_open(0).is_none() {
                break;
            }
            prop_assert!(round < 9, "change requests are opened without end: {}", simulation.summary());
            while simulation.forge.nth_open(0).is_some() {
                simulation.merge_by_hand(0);
            }
        }
        simulation.check_memory();
        simulation.check_stories();
        // P3 and P4.
        if !manual {
            for environment in ENVIRONMENTS {
                prop_assert_eq!(simulation.fleet[environment].version, newest, "{}: {}", environment, simulation.summary());
            }
        }
        // P5: at rest nothing is written or done.
        let counts = |s: &ControllerSimulation| (s.creations, s.pipeline_writes, s.promotion_writes, s.jobs);
        let before = counts(&simulation);
        simulation.pass_hours();
        prop_assert_eq!(counts(&simulation), before, "{}", simulation.summary());
    }
}

/// The owner renames the head branch and takes that back, and dev goes on to a newer revision and back.
#[test]
fn a_change_request_that_sluice_has_closed_earlier_is_no_rejection() {
    let mut simulation = ControllerSimulation::with_requests(false);
    let go_to = |simulation: &mut ControllerSimulation, version| {
        simulation.move_by_hand("dev", version);
        simulation.move_by_hand(SECOND_DEV, version);
        run(simulation, 60, 7);
    };
    simulation.edit_requests(Some(false), None);
    go_to(&mut simulation, 2);
    for is_renamed in [true, false] {
        simulation.edit_requests(None, Some(is_renamed));
        run(&mut simulation, 60, 7);
    }
    go_to(&mut simulation, 3);
    go_to(&mut simulation, 2);
    simulation.check_rejections();
    let open = simulation.forge.nth_open(0).map(|open| simulation.forge.requests[open].clone());
    assert_eq!(open.map(|open| simulation.forge.head(&open).version), Some(2), "{}", simulation.summary());
}

/// The owner renames the head branch. Sluice closes the change request, and its process ends before the answer arrives. Then the
/// owner takes the edit back.
#[test]
fn a_change_request_that_a_crashed_process_has_closed_is_no_rejection() {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    for target in ["dev", SECOND_DEV] {
        simulation.move_by_hand(target, 2);
    }
    run(&mut simulation, 60, 7);
    let first = simulation.forge.nth_open(0).expect("a change request");
    simulation.edit_requests(None, Some(true));
    for _ in 0..100 {
        simulation.deliver_event();
        simulation.close_and_lose_the_answer();
        if simulation.forge.requests[first].state != RequestState::Open {
            break;
        }
        simulation.carry_out(0, EffectFault::None);
        simulation.answer(0);
        simulation.pass(7);
    }
    assert_eq!(simulation.forge.requests[first].state, RequestState::Closed);
    simulation.edit_requests(None, Some(false));
    simulation.begin();
    run(&mut simulation, 60, 7);
    simulation.check_rejections();
    assert!(simulation.forge.nth_open(0).is_some_and(|open| open != first), "{}", simulation.summary());
}

/// An approval that arrives when its promotion has ended does not change the record in memory alone.
#[test]
fn a_late_approval_changes_no_record_of_an_ended_promotion() {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(true), None);
    for _ in 0..2 {
        apply(&mut simulation, &Happening::ReleaseBoth);
    }
    run(&mut simulation, 11, 7);
    simulation.set_strategy(false);
    simulation.move_by_hand("dev", 2);
    simulation.release(true);
    [27, 128].into_iter().for_each(|index| simulation.approve(index));
    simulation.set_strategy(true);
    simulation.settle();
    simulation.check_memory();
}

/// A later promotion has pushed to the change request, and dev goes back before the push is recorded. Sluice closes the change
/// request as that of the earlier one.
#[test]
fn a_change_request_that_was_closed_for_another_promotion_is_no_rejection() {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    let back = |simulation: &mut ControllerSimulation, by: u32| {
        simulation.move_by_hand("dev", simulation.fleet["dev"].version.saturating_sub(by).max(1));
    };
    apply(&mut simulation, &Happening::ReleaseBoth);
    back(&mut simulation, 1);
    simulation.release(false);
    simulation.release(true);
    simulation.carry_out(708, EffectFault::None);
    simulation.answer(0);
    apply(&mut simulation, &Happening::ReleaseBoth);
    back(&mut simulation, 2);
    simulation.carry_out(5, EffectFault::None);
    run(&mut simulation, 2, 7);
    back(&mut simulation, 1);
    run(&mut simulation, 11, 7);
    simulation.release(false);
    simulation.settle();
    simulation.check_rejections();
}

/// Found by random histories. A poll that was started before the promotion was superseded is answered after it has started again.
#[test]
fn a_promotion_that_starts_again_puts_its_revision_into_the_change_request_of_a_newer_one() {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    let go = |simulation: &mut ControllerSimulation, happening| apply(simulation, &happening);
    go(&mut simulation, Happening::ReleaseBoth);
    simulation.pass(567);
    simulation.deliver_cluster_event();
    go(&mut simulation, Happening::Second(0));
    go(&mut simulation, Happening::Run(7));
    simulation.deliver_cluster_event();
    simulation.deliver_cluster_event();
    go(&mut simulation, Happening::Run(5));
    simulation.set_manual(true);
    simulation.answer(555);
    simulation.answer(499);
    simulation.answer(422);
    go(&mut simulation, Happening::ReleaseBoth);
    go(&mut simulation, Happening::First(1));
    simulation.deliver_event();
    simulation.answer(277);
    simulation.deliver_cluster_event();
    simulation.apply_files("prod", false);
    simulation.release(true);
    simulation.deliver_event();
    go(&mut simulation, Happening::ReleaseBoth);
    simulation.answer(0);
    go(&mut simulation, Happening::First(1));
    simulation.set_manual(false);
    simulation.deliver_event();
    simulation.deliver_event();
    go(&mut simulation, Happening::Run(4));
    go(&mut simulation, Happening::First(1));
    go(&mut simulation, Happening::Run(4));
    go(&mut simulation, Happening::Second(0));
    simulation.suspend(false);
    simulation.set_manual(false);
    simulation.set_strategy(true);
    simulation.edit_requests(Some(false), Some(false));
    run(&mut simulation, 60, 1);
    simulation.settle();
    simulation.check_requests();
}

/// Found by random histories. A person has requested another try, which Sluice declines, and another person closes the change
/// request. Sluice reads that after dev has gone back to an earlier revision.
#[test]
fn a_change_request_that_was_closed_before_its_promotion_was_superseded_is_a_rejection() {
    use Happening::{First, Release, ReleaseBoth, Run, Second};
    let histories: [(&[Happening], &[Happening]); 3] = [
        (&[ReleaseBoth, Run(5)], &[Second(0), First(1), Run(4), Release(false)]),
        (
            &[ReleaseBoth, Run(5), First(1), Release(false)],
            &[Release(false), Run(3), First(2), Release(false)],
        ),
        (&[ReleaseBoth, Run(5), First(1), Release(false)], &[First(1), Run(3), Release(false)]),
    ];
    for (before, after) in histories {
        let mut simulation = ControllerSimulation::with_requests(false);
        simulation.edit_requests(Some(false), None);
        before.iter().for_each(|happening| apply(&mut simulation, happening));
        simulation.retry(0);
        simulation.close_by_hand(0);
        after.iter().for_each(|happening| apply(&mut simulation, happening));
        simulation.settle();
        simulation.check_requests();
        simulation.check_rejections();
        simulation.check_closed_stay_ended();
        assert!(simulation.summary().contains("was closed and not merged"), "{}", simulation.summary());
    }
}

/// A change request is open, and people merge it.
fn proposed() -> ControllerSimulation {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    apply(&mut simulation, &Happening::ReleaseBoth);
    run(&mut simulation, 5, 7);
    simulation
}

/// A person requests another try, and another closes the change request. Sluice learns of the close first.
#[test]
fn a_request_for_another_try_that_came_before_a_close_does_not_undo_it() {
    let mut simulation = proposed();
    simulation.retry(0);
    simulation.close_by_hand(0);
    for _ in 0..40 {
        simulation.pass(60);
        simulation.carry_out(0, EffectFault::None);
        simulation.answer(0);
    }
    simulation.settle();
    assert!(simulation.summary().contains("Rejected Rejected"), "{}", simulation.summary());
    simulation.check_requests();
}

/// Found by random histories. A promotion has pushed to the change request of a later one, is superseded, and is rejected then. The
/// promotion that comes next waits for an approval.
#[test]
fn a_change_request_that_carries_a_rejected_promotion_is_closed_also_if_another_has_recorded_it() {
    use Happening::{First, ReleaseBoth, Run, Second};
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    let go = |simulation: &mut ControllerSimulation, happenings: &[Happening]| {
        happenings.iter().for_each(|happening| apply(simulation, happening));
    };
    go(&mut simulation, &[ReleaseBoth, ReleaseBoth, ReleaseBoth, ReleaseBoth]);
    simulation.carry_out(29, EffectFault::None);
    simulation.reject(0);
    go(&mut simulation, &[Run(5), ReleaseBoth, First(1), Second(1), Second(2), Run(8), First(1)]);
    simulation.carry_out(0, EffectFault::None);
    simulation.set_healthy("dev", false);
    go(&mut simulation, &[First(2), ReleaseBoth, Run(3)]);
    simulation.reject(214);
    simulation.settle();
    assert!(simulation.summary().contains("waits for approval, since"), "{}", simulation.summary());
    simulation.check_requests();
}

/// A person closes the change request, and another requests another try. Before that is proposed, something newer replaces it.
#[test]
fn a_close_that_a_person_has_answered_with_another_try_does_not_reject_that_one() {
    let mut simulation = proposed();
    simulation.close_by_hand(0);
    run(&mut simulation, 60, 60);
    assert!(simulation.summary().contains("Rejected Rejected"), "{}", simulation.summary());
    simulation.set_manual(true);
    run(&mut simulation, 11, 7);
    simulation.retry(0);
    run(&mut simulation, 11, 7);
    apply(&mut simulation, &Happening::ReleaseBoth);
    run(&mut simulation, 60, 7);
    let summary = simulation.summary();
    assert!(summary.contains("Superseded") && !summary.contains("Rejected Rejected"), "{summary}");
}

/// A person rejects a promotion again after another try. Before the watch reports that, it reports an earlier version, with the
/// rejection of the earlier try, and the delivery takes effect.
#[test]
fn a_rejection_that_the_state_does_not_know_yet_stops_no_delivery() {
    let mut simulation = ControllerSimulation::with_requests(false);
    simulation.edit_requests(Some(false), None);
    run(&mut simulation, 3, 7);
    simulation.edit_requests(None, Some(true));
    apply(&mut simulation, &Happening::ReleaseBoth);
    run(&mut simulation, 5, 7);
    simulation.reject(0);
    simulation.relist();
    simulation.retry(0);
    simulation.edit_requests(None, Some(false));
    run(&mut simulation, 10, 7);
    let is_start = |effect: &Effect| matches!(effect, Effect::Start(_));
    let start = simulation.pending.iter().position(is_start).expect("a delivery");
    simulation.reject(0);
    simulation.deliver_event();
    simulation.carry_out(start, EffectFault::None);
    simulation.settle();
    simulation.check_rejections();
}

/// Found by random histories. A promotion has pushed to the change request of another one, and is superseded before it records
/// that. The other one starts again and waits for an approval. Its change request stays open meanwhile, as that of any superseded
/// promotion, until it is approved.
#[test]
fn a_promotion_that_waits_for_an_approval_proposes_nothing_until_it_has_it() {
    let mut simulation = ControllerSimulation::with_requests(true);
    simulation.edit_requests(Some(false), None);
    simulation.set_manual(false);
    let go = |simulation: &mut ControllerSimulation, happenings: &[Happening]| {
        happenings.iter().for_each(|happening| apply(simulation, happening));
    };
    go(
        &mut simulation,
        &[Happening::ReleaseBoth, Happening::ReleaseBoth, Happening::Run(3), Happening::Second(1)],
    );
    simulation.carry_out(977, EffectFault::None);
    simulation.carry_out(0, EffectFault::None);
    simulation.deliver_event();
    go(&mut simulation, &[Happening::Run(3)]);
    simulation.set_manual(true);
    let carried = |simulation: &ControllerSimulation| {
        let open = simulation.forge.nth_open(0).map(|open| &simulation.forge.requests[open]);
        open.map(|open| simulation.forge.head(open).version)
    };
    simulation.settle();
    simulation.check_requests();
    assert_eq!(carried(&simulation), Some(2), "{}", simulation.summary());
    (0..2).for_each(|index| simulation.approve(index));
    simulation.settle();
    simulation.check_requests();
    assert_eq!(carried(&simulation), Some(3), "{}", simulation.summary());
}
