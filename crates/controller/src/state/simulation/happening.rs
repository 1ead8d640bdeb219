//! What may happen to the simulated controller. Each property test chooses from it with weights of its own.

use proptest::sample::Index;

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault, SECOND_DEV};

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A new version runs in the first target of dev.
    Release(bool),
    /// A new version runs in both targets of dev.
    ReleaseBoth,
    /// The first target of dev goes back by so much.
    First(u32),
    /// The second target of dev runs what the first one runs, or a version that is older by so much.
    Second(u32),
    Health(Index, bool),
    ApplyFiles(Index, bool),
    Suspend(bool),
    Manual(bool),
    Merge(bool),
    /// The owner names another branch to commit to, or the first one again.
    Branch(bool),
    Rename(bool),
    Strategy(bool),
    Recreate,
    CollectGarbage,
    Approve(Index),
    Reject(Index),
    Retry(Index),
    Annotate(Index),
    Delete(Index),
    MergeByHand(Index),
    CloseByHand(Index),
    Event,
    RepeatEvent(Index),
    ClusterEvent,
    CarryOut(Index, EffectFault),
    Answer(Index),
    Pass(u64),
    SetClock(i64),
    Relist,
    Restart,
    MoveProd(bool),
    /// All status writes fail, so often.
    Outage(u32),
    LateWrite(Index),
    LoseCluster(bool),
    /// Everything goes on undisturbed for a while.
    Run(u8),
}

/// Lets it happen.
pub(super) fn apply(simulation: &mut ControllerSimulation, happening: &Happening) {
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
        Happening::First(behind) => simulation.move_by_hand("dev", dev.saturating_sub(*behind).max(1)),
        Happening::Second(behind) => simulation.move_by_hand(SECOND_DEV, dev.saturating_sub(*behind).max(1)),
        Happening::Health(index, healthy) => simulation.set_healthy(environment(index), *healthy),
        Happening::ApplyFiles(index, healthy) => simulation.apply_files(environment(index), *healthy),
        Happening::Suspend(suspend) => simulation.suspend(*suspend),
        Happening::Manual(manual) => simulation.set_manual(*manual),
        Happening::Branch(other) => simulation.set_branch(if *other { "other" } else { "main" }),
        Happening::Merge(merge) => simulation.edit_requests(Some(*merge), None),
        Happening::Rename(renamed) => simulation.edit_requests(None, Some(*renamed)),
        Happening::Strategy(requests) => simulation.set_strategy(*requests),
        Happening::Recreate => simulation.recreate(),
        Happening::CollectGarbage => simulation.collect_garbage(),
        Happening::Approve(index) => simulation.approve(nth(index)),
        Happening::Reject(index) => simulation.reject(nth(index)),
        Happening::Retry(index) => simulation.retry(nth(index)),
        Happening::Annotate(index) => simulation.annotate(nth(index)),
        Happening::Delete(index) => simulation.delete(nth(index)),
        Happening::MergeByHand(index) => simulation.merge_by_hand(nth(index)),
        Happening::CloseByHand(index) => simulation.close_by_hand(nth(index)),
        Happening::Event => simulation.deliver_event(),
        Happening::RepeatEvent(index) => simulation.repeat_event(nth(index)),
        Happening::ClusterEvent => simulation.deliver_cluster_event(),
        Happening::CarryOut(index, fault) => simulation.carry_out(nth(index), *fault),
        Happening::Answer(index) => simulation.answer(nth(index)),
        Happening::Pass(seconds) => simulation.pass(*seconds),
        Happening::SetClock(offset) => simulation.set_clock(*offset),
        Happening::Relist => simulation.relist(),
        Happening::Restart => simulation.begin(),
        Happening::MoveProd(is_remote) => simulation.move_prod(*is_remote),
        Happening::Outage(writes) => simulation.outage(*writes),
        Happening::LateWrite(index) => simulation.late_write(nth(index)),
        Happening::LoseCluster(is_lost) => simulation.lose_eu(*is_lost),
        Happening::Run(steps) => run(simulation, usize::from(*steps), 7),
    }
}

/// Everything goes on undisturbed for so many steps, with a pause of so many seconds after each.
pub(super) fn run(simulation: &mut ControllerSimulation, steps: usize, pause: u64) {
    for _ in 0..steps {
        simulation.deliver_event();
        simulation.deliver_cluster_event();
        simulation.carry_out(0, EffectFault::None);
        simulation.answer(0);
        simulation.pass(pause);
    }
}

/// How many histories are tried: `PROPTEST_CASES` in a longer run.
pub(super) fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
