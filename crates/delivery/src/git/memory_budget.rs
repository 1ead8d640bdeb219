//! One budget of memory for all runs of git together. A run starts as a small one. A run that needs more memory is ended
//! and runs again as the large one, one at a time. So hostile repositories together cannot make git take more memory than
//! one of them could. Small runs do not wait for the large one, and the large one gives way to those of other namespaces.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use sluice_core::lock::lock;

use crate::fair_queue::{FairQueue, Slot, namespace};

/// The memory of all runs together, in KiB: half of what deploy/deployment.yaml gives to Sluice and git.
const BUDGET: u64 = 384 * 1024;
/// The memory that is left for small runs whatever the large one takes, in KiB. A fetch over https takes 10 MiB.
const SMALL_RUNS: u64 = 128 * 1024;
/// The memory of a process of a small run, in KiB. Measured with git 2.39: a repository of 10,000 files needs 10 MiB,
/// of 100,000 files 20 MiB, of 250,000 files 53 MiB.
const SMALL_PROCESS: u64 = 64 * 1024;

/// How often the memory of all runs is measured. A process uses about 25 MiB of new memory in this time.
const MEASURE_INTERVAL: Duration = Duration::from_millis(50);

/// For how long the large run does not give way: the push of a repository of 450,000 files takes less.
const UNDISTURBED: Duration = Duration::from_secs(5);
/// The same after it gave way some times in a row. The first fetch of a large repository over a slow network takes longer than
/// [`UNDISTURBED`], and would never end if others always waited.
const MAX_UNDISTURBED: Duration = Duration::from_secs(30);

/// How often the large run looks whether it has to give way.
const GIVE_WAY_INTERVAL: Duration = Duration::from_millis(250);

/// How much memory a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunSize {
    Small,
    Large,
}

impl RunSize {
    /// The limit of each process, in KiB.
    pub(super) fn process_limit(self) -> u64 {
        match self {
            RunSize::Small => SMALL_PROCESS,
            RunSize::Large => BUDGET - SMALL_RUNS,
        }
    }
}

/// The slot of the large run.
#[derive(Debug)]
pub(super) struct LargeSlot {
    slot: Slot,
    /// For how long it does not give way.
    undisturbed: Duration,
}

/// The memory of all runs.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    large: Arc<FairQueue>,
    /// For how long the next large run does not give way, of the namespaces whose last one gave way.
    extended: Mutex<HashMap<String, Duration>>,
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    by_group: HashMap<i32, Run>,
    /// Whether a thread measures them. It ends when there are no runs.
    are_measured: bool,
}

#[derive(Clone, Debug)]
struct Run {
    namespace: String,
    size: RunSize,
    was_ended: Arc<AtomicBool>,
}

/// A run whose memory is measured until this is dropped.
#[derive(Debug)]
pub(super) struct Measured {
    memory: Arc<MemoryBudget>,
    group: i32,
    was_ended: Arc<AtomicBool>,
}

impl Measured {
    /// Whether the run was ended because all runs together took too much.
    pub(super) fn was_ended(&self) -> bool {
        self.was_ended.load(Ordering::Relaxed)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.memory.runs().by_group.remove(&self.group);
    }
}

impl MemoryBudget {
    pub(super) fn new() -> Arc<Self> {
        let (extended, runs) = Default::default();
        Arc::new(MemoryBudget { large: FairQueue::new(1), extended, runs })
    }

    /// Waits for the slot of the large run.
    pub(super) async fn large(&self, pipeline: &str) -> LargeSlot {
        let slot = self.large.acquire(pipeline).await;
        let undisturbed = lock(&self.extended).get(namespace(pipeline)).copied().unwrap_or(UNDISTURBED);
        LargeSlot { slot, undisturbed }
    }

    /// Notes how a large run has ended: after it gave way, the next one of its namespace gets more time.
    pub(super) fn large_ended(&self, pipeline: &str, gave_way: bool) {
        let mut extended = lock(&self.extended);
        if gave_way {
            let time = extended.entry(namespace(pipeline).into()).or_insert(UNDISTURBED);
            *time = (*time * 2).min(MAX_UNDISTURBED);
        } else {
            extended.remove(namespace(pipeline));
        }
    }

    /// Measures the memory of a process group from now on.
    pub(super) fn measure(self: &Arc<Self>, group: Pid, pipeline: &str, size: RunSize) -> Measured {
        let (group, was_ended) = (group.as_raw_nonzero().get(), Arc::<AtomicBool>::default());
        let run = Run { namespace: namespace(pipeline).into(), size, was_ended: was_ended.clone() };
        let mut runs = self.runs();
        runs.by_group.insert(group, run);
        if !runs.are_measured {
            let memory = self.clone();
            // Most runs end before the first measurement, so that nothing reads /proc for them.
            let keep = move || {
                std::thread::sleep(MEASURE_INTERVAL);
                while memory.keep_budget() {
                    std::thread::sleep(MEASURE_INTERVAL);
                }
            };
            // A thread of its own, which is on time when all other threads are busy.
            runs.are_measured = std::thread::Builder::new().name("git-memory".into()).spawn(keep).is_ok();
        }
        Measured { memory: self.clone(), group, was_ended }
    }

    /// Ends runs until the rest is within the budget. Returns whether there are any runs.
    fn keep_budget(&self) -> bool {
        let groups: HashSet<i32> = self.runs().by_group.keys().copied().collect();
        let taken = private_memory(&groups);
        let mut runs = self.runs();
        let by_group = &runs.by_group;
        let taken =
            by_group.iter().map(|(group, run)| (*group, run, taken.get(group).copied().unwrap_or_default()));
        for group in excess(taken.collect()) {
            if let (Some(run), Some(pid)) = (by_group.get(&group), Pid::from_raw(group)) {
                run.was_ended.store(true, Ordering::Relaxed);
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        runs.are_measured = !runs.by_group.is_empty();
        runs.are_measured
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        lock(&self.runs)
    }
}

/// The process groups to end, so that the rest is within the budget: of the namespace whose small runs take most, the
/// one that takes most; the large run only if the small ones take no more than what is left to them in any case.
fn excess(mut runs: Vec<(i32, &Run, u64)>) -> Vec<i32> {
    let mut ended = Vec::new();
    let sum = |runs: &[(i32, &Run, u64)], counts: &dyn Fn(&Run) -> bool| {
        runs.iter().filter(|(_, run, _)| counts(run)).map(|(_, _, taken)| taken).sum::<u64>()
    };
    while sum(&runs, &|_| true) > BUDGET {
        let size = match sum(&runs, &|run| run.size == RunSize::Small) > SMALL_RUNS {
            true => RunSize::Small,
            false => RunSize::Large,
        };
        let of = |namespace: &str| sum(&runs, &|run| run.size == size && run.namespace == namespace);
        let candidates = runs.iter().enumerate().filter(|(_, (_, run, _))| run.size == size);
        let most = candidates.max_by_key(|(_, (_, run, taken))| (of(&run.namespace), *taken));
        let Some((at, _)) = most else { break };
        ended.push(runs.swap_remove(at).0);
    }
    ended
}

/// The memory of each of these process groups that is neither a file's nor shared, in KiB. Empty if there is no /proc
/// (proc(5): `stat`, fields 2 and 5; `status`, `RssAnon`).
fn private_memory(groups: &HashSet<i32>) -> HashMap<i32, u64> {
    let mut taken = HashMap::new();
    if groups.is_empty() {
        return taken;
    }
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let read = |file: &str| std::fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let group = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse::<i32>().ok();
        let anonymous = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(group) = group(&read("stat")).filter(|group| groups.contains(group))
            && let Some(kib) = anonymous(&read("status"))
        {
            *taken.entry(group).or_default() += kib;
        }
    }
    taken
}

impl LargeSlot {
    /// Waits until the large run has had some time, and has to give way. A server can keep a run for as long as it likes, and a
    /// repository can have any size.
    pub(super) async fn must_give_way(&self) {
        tokio::time::sleep(self.undisturbed).await;
        while !self.slot.should_give_way() {
            tokio::time::sleep(GIVE_WAY_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Whether this ends within some seconds.
    async fn within(seconds: u64, ends: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        tokio::time::timeout(Duration::from_secs(seconds), ends).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_large_run_gives_way_to_a_namespace_that_has_had_less_time() {
        let memory = MemoryBudget::new();
        let slot = memory.large("hostile/app").await;
        let mut ends = Box::pin(slot.must_give_way());
        let mut same = Box::pin(memory.large("hostile/other"));
        assert!((&mut same).now_or_never().is_none());
        assert!(!within(120, &mut ends).await, "no other namespace waits");
        let mut quiet = Box::pin(memory.large("quiet/app"));
        assert!((&mut quiet).now_or_never().is_none());
        assert!(within(1, &mut ends).await);
        drop(ends);
        drop(slot);

        // Its next run is ended after five seconds; that of the quiet one is not ended for it.
        let slot = quiet.await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!slot.slot.should_give_way());
        drop(slot);
        let slot = same.await;
        let mut ends = Box::pin(slot.must_give_way());
        let mut quiet = Box::pin(memory.large("quiet/app"));
        assert!((&mut quiet).now_or_never().is_none());
        assert!(!within(4, &mut ends).await && within(2, &mut ends).await);
        drop(quiet);
        assert!(!slot.slot.should_give_way(), "it waits no more");
    }

    #[test]
    fn the_namespace_with_most_memory_loses_its_largest_runs_first() {
        use RunSize::{Large, Small};
        for (runs, expected) in [
            // Within the budget.
            (vec![("a", Small, 60), ("b", Large, 256), ("c", Small, 68)], vec![]),
            // The large run takes its share: the namespace that takes most loses small ones.
            (vec![("a", Small, 40), ("b", Large, 250), ("c", Small, 60), ("c", Small, 50)], vec![2]),
            (vec![("a", Small, 55), ("b", Large, 250), ("c", Small, 50), ("c", Small, 45)], vec![2]),
            // Many that are small each, and one that is larger than each of them.
            (vec![("a", Small, 60), ("b", Small, 50), ("b", Small, 30), ("c", Large, 256)], vec![1]),
            // The large one takes more than its share.
            (vec![("a", Small, 60), ("b", Large, 340)], vec![1]),
            // Without a large one the small ones have the whole budget.
            (vec![("a", Small, 60), ("b", Small, 64), ("c", Small, 64), ("d", Small, 64)], vec![]),
            (vec![("a", Small, 200), ("b", Small, 200), ("b", Small, 150)], vec![1]),
        ] {
            let run =
                |namespace: &str, size| Run { namespace: namespace.into(), size, was_ended: Arc::default() };
            let all: Vec<_> =
                runs.iter().map(|(namespace, size, mib)| (run(namespace, *size), mib << 10)).collect();
            let all = all.iter().enumerate().map(|(at, (run, kib))| (at as i32, run, *kib)).collect();
            assert_eq!(excess(all), expected, "{runs:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_run_ends_although_others_always_wait() {
        let memory = MemoryBudget::new();
        let work = async |pipeline: &str, seconds: u64| {
            let slot = memory.large(pipeline).await;
            let gave_way = tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(seconds)) => false,
                () = slot.must_give_way() => true,
            };
            memory.large_ended(pipeline, gave_way);
            !gave_way
        };
        let others = (0..4).map(async |_| {
            while tokio::time::timeout(Duration::from_secs(60), work("others/app", 0)).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let long = async {
            let mut tries = 1;
            while !work("long/app", 20).await {
                tries += 1;
            }
            tries
        };
        tokio::select! {
            tries = long => assert!((2..6).contains(&tries), "{tries}"),
            _ = futures::future::join_all(others) => panic!("the others have ended"),
        }
    }

    #[tokio::test]
    async fn a_run_over_the_budget_is_ended_with_all_its_processes() {
        // tail keeps a whole line in memory. It is not the process that leads the group.
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "head -c 600000000 /dev/zero | tail -n 1; true"]);
        let mut run = command.process_group(0).stdout(std::process::Stdio::null()).spawn().unwrap();
        let group = Pid::from_raw(run.id().unwrap().cast_signed()).unwrap();
        let measured = MemoryBudget::new().measure(group, "apps/podinfo", RunSize::Small);
        let status = run.wait().await.unwrap();
        assert!(measured.was_ended() && !status.success(), "{status}");
    }

    #[test]
    fn the_memory_of_this_process_is_measured() {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(
            private_memory(&HashSet::from([own])).get(&own).is_some_and(|kib| (100..10 << 20).contains(kib))
        );
    }
}
