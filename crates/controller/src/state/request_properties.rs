//! Properties of random histories of a pipeline that promotes by change request.

use proptest::prelude::*;
use proptest::sample::Index;

use super::simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault, SECOND_DEV};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happening {
    /// A new version runs in the first target of dev.
    Release(bool),
    /// A new version runs in both targets of dev.
    ReleaseBoth,
    /// The second target of dev runs what the first one runs, or a version that is older by so much.
    Second(u32),
    /// The first target of dev goes back by so much.
    First(u32),
    Health(Index, bool),
    ApplyFiles(Index, bool),
    Suspend(bool),
    Manual(bool),
    Merge(bool),
    Rename(bool),
    Strategy(bool),
    Approve(Index),
    Reject(Index),
    Retry(Index),
    MergeByHand(Index),
    CloseByHand(Index),
    Event,
    ClusterEvent,
    CarryOut(Index, EffectFault),
    Answer(Index),
    Pass(u64),
    Relist,
    Restart,
    LateWrite(Index),
    /// Everything goes on undisturbed for a while.
    Run(u8),
}

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

fn apply(simulation: &mut ControllerSimulation, happening: &Happening) {
    let environment = |index: &Index| ENVIRONMENTS[index.index(ENVIRONMENTS.len())];
    let nth = |index: &Index| index.index(1000);
    let dev = simulation.fleet["dev"].version;
    match happening {
        Happening::Release(healthy) => simulation.release(*healthy),
        Happening::ReleaseBoth => {
            simulation.release(true);
            simulation.move_by_hand(SECOND_DEV, dev + 1);
            for _ in 0..8 {
                simulation.deliver_cluster_event();
            }
        }
        Happening::Second(behind) => simulation.move_by_hand(SECOND_DEV, dev.saturating_sub(*behind).max(1)),
        Happening::First(behind) => simulation.move_by_hand("dev", dev.saturating_sub(*behind).max(1)),
        Happening::Health(index, healthy) => simulation.set_healthy(environment(index), *healthy),
        Happening::ApplyFiles(index, healthy) => simulation.apply_files(environment(index), *healthy),
        Happening::Suspend(suspend) => simulation.suspend(*suspend),
        Happening::Manual(manual) => simulation.set_manual(*manual),
        Happening::Merge(merge) => simulation.edit_requests(Some(*merge), None),
        Happening::Rename(renamed) => simulation.edit_requests(None, Some(*renamed)),
        Happening::Strategy(requests) => simulation.set_strategy(*requests),
        Happening::Approve(index) => simulation.approve(nth(index)),
        Happening::Reject(index) => simulation.reject(nth(index)),
        Happening::Retry(index) => simulation.retry(nth(index)),
        Happening::MergeByHand(index) => simulation.merge_by_hand(nth(index)),
        Happening::CloseByHand(index) => simulation.close_by_hand(nth(index)),
        Happening::Event => simulation.deliver_event(),
        Happening::ClusterEvent => simulation.deliver_cluster_event(),
        Happening::CarryOut(index, fault) => simulation.carry_out(nth(index), *fault),
        Happening::Answer(index) => simulation.answer(nth(index)),
        Happening::Pass(seconds) => simulation.pass(*seconds),
        Happening::Relist => simulation.relist(),
        Happening::Restart => simulation.begin(),
        Happening::LateWrite(index) => simulation.late_write(nth(index)),
        Happening::Run(steps) => {
            for _ in 0..*steps {
                simulation.deliver_event();
                simulation.deliver_cluster_event();
                simulation.carry_out(0, EffectFault::None);
                simulation.answer(0);
                simulation.pass(7);
            }
        }
    }
}

/// How many cases are tried; `PROPTEST_CASES` says how many in a longer run.
const CASES: u32 = 40;

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 1000, failure_persistence: None, ..ProptestConfig::default() })]

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
            simulation.merge_by_hand(0);
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
        for _ in 0..20 {
            simulation.pass(600);
        }
        prop_assert_eq!(counts(&simulation), before, "{}", simulation.summary());
    }
}
