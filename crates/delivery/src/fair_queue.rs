//! A queue for a limited number of slots, fair by namespace and then by pipeline: waiting namespaces are served in turn,
//! and so are the pipelines of each. So a namespace with a thousand pipelines delays another namespace by one slot at a
//! time, and a pipeline with two hundred deliveries delays another pipeline of its namespace by one slot at a time.
//! Some slots are reserved for namespaces that hold none. Half as many are kept free of slow work, so that slow work does
//! not take all slots.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use sluice_core::lock::lock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::slot_use::SlotUse;

/// A limited number of slots, and the callers that wait for one.
#[derive(Debug)]
pub struct FairQueue(Mutex<QueueState>);

/// One slot of this number is reserved for namespaces that hold none. A queue with fewer slots reserves none. If all
/// pipelines are in one namespace, three quarters of the slots are in use.
const SLOTS_PER_RESERVED: usize = 4;

/// The state of a queue. A caller waits only if no slot was free for it when the last slot was taken or released.
#[derive(Debug)]
struct QueueState {
    free: usize,
    /// The number of reserved slots. Namespaces with slow work leave half as many slots to others.
    reserved: usize,
    slot_use: SlotUse,
    /// Whether the last slot went to a namespace because its work is not slow. The next one goes to the first in turn.
    passed_over: bool,
    /// How many slots each namespace holds. Namespaces without a slot are absent.
    held: HashMap<String, usize>,
    waiting: Turns<Turns<VecDeque<oneshot::Sender<Slot>>>>,
}

/// Queues by name that are served in turn. No queue is empty.
#[derive(Debug)]
struct Turns<Q> {
    /// The names in the order in which they are served; the first is next, and then the last.
    order: VecDeque<String>,
    queues: HashMap<String, Q>,
}

impl<Q> Default for Turns<Q> {
    fn default() -> Self {
        Turns { order: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<Q: Default> Turns<Q> {
    /// The queue of this name. Makes it if there is none.
    fn of(&mut self, name: &str) -> &mut Q {
        if !self.queues.contains_key(name) {
            self.order.push_back(name.into());
        }
        self.queues.entry(name.into()).or_default()
    }

    /// Takes the next entry from the first queue in turn for which `may` returns true. `take` returns the entry, and
    /// whether the queue has more.
    fn next<T>(
        &mut self,
        may: impl Fn(&str) -> bool,
        take: impl FnOnce(&str, &mut Q) -> (Option<T>, bool),
    ) -> Option<T> {
        let at = self.order.iter().position(|name| may(name))?;
        let name = self.order.remove(at)?;
        let (taken, more) = take(&name, self.queues.get_mut(&name)?);
        if more {
            self.order.push_back(name);
        } else {
            self.queues.remove(&name);
        }
        taken
    }
}

/// The most queues that are kept without a caller. Tenants choose the names of hosts and branches.
const MAX_IDLE: usize = 1024;

/// Queues by name. Each is kept for as long as a caller waits in it or holds a slot of it. After slow work, it is kept until
/// the slow work is forgotten, or until [`MAX_IDLE`] other queues without a caller were used later.
#[derive(Debug, Default)]
pub(crate) struct FairQueues(Mutex<NamedQueues>);

#[derive(Debug, Default)]
struct NamedQueues {
    by_name: HashMap<String, NamedQueue>,
    uses: u64,
}

#[derive(Debug)]
struct NamedQueue {
    queue: Arc<FairQueue>,
    /// The number of the last use.
    used: u64,
}

impl NamedQueue {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.queue) == 1
    }
}

impl FairQueues {
    /// The queue of this name. Makes one if there is none.
    pub(crate) fn of(&self, name: &str, make: impl FnOnce() -> Arc<FairQueue>) -> Arc<FairQueue> {
        let mut queues = lock(&self.0);
        queues.forget_idle(Instant::now());
        queues.uses += 1;
        let used = queues.uses;
        let named = queues.by_name.entry(name.into()).or_insert_with(|| NamedQueue { queue: make(), used });
        named.used = used;
        named.queue.clone()
    }
}

impl NamedQueues {
    /// Removes the queues without a caller and without slow work, and then those without a caller that were used longest
    /// ago, until [`MAX_IDLE`] are left.
    fn forget_idle(&mut self, now: Instant) {
        self.by_name.retain(|_, named| !named.is_idle() || !named.queue.state().slot_use.is_empty(now));
        if self.by_name.len() <= MAX_IDLE {
            return;
        }
        let mut idle: Vec<u64> =
            self.by_name.values().filter(|named| named.is_idle()).map(|named| named.used).collect();
        idle.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(&last) = idle.get(MAX_IDLE) {
            self.by_name.retain(|_, named| !named.is_idle() || named.used > last);
        }
    }
}

/// A slot of a queue. Dropping it releases the slot.
#[derive(Debug)]
pub struct Slot(Option<HeldSlot>);

/// The slot of a namespace.
#[derive(Debug)]
struct HeldSlot {
    queue: Arc<FairQueue>,
    namespace: String,
    since: Instant,
}

impl FairQueue {
    /// A queue for this number of slots.
    pub fn new(slots: usize) -> Arc<Self> {
        let reserved = slots / SLOTS_PER_RESERVED;
        Self::with_reserved(slots - reserved, reserved)
    }

    /// A queue for this number of slots, and a number of further slots for namespaces that hold none.
    pub fn with_reserved(slots: usize, reserved: usize) -> Arc<Self> {
        let free = slots + reserved;
        let (held, waiting, slot_use, passed_over) = Default::default();
        let state = QueueState { free, reserved, slot_use, passed_over, held, waiting };
        Arc::new(FairQueue(Mutex::new(state)))
    }

    /// Waits for a slot, in the queue of a pipeline that is named `namespace/name`. A caller that stops
    /// waiting is passed over.
    pub async fn acquire(self: &Arc<Self>, pipeline: &str) -> Slot {
        let namespace = namespace(pipeline);
        let coming = {
            let mut state = self.state();
            if state.try_take(namespace) {
                return self.held_by(namespace);
            }
            state.add(pipeline)
        };
        // The sender is never dropped without a slot, as this call holds the queue. If it were, the caller would not wait.
        coming.await.unwrap_or(Slot(None))
    }

    /// Returns a slot if the pipeline need not wait for it.
    pub(crate) fn try_acquire(self: &Arc<Self>, pipeline: &str) -> Option<Slot> {
        let namespace = namespace(pipeline);
        self.state().try_take(namespace).then(|| self.held_by(namespace))
    }

    /// Takes back a slot, and gives free slots to the next callers.
    fn release(self: &Arc<Self>, namespace: &str, since: Instant) {
        {
            let (mut state, now) = (self.state(), Instant::now());
            state.put_back(namespace);
            state.slot_use.add(namespace, now.saturating_duration_since(since), now);
        }
        loop {
            let Some((sender, namespace)) = self.state().next() else { return };
            if let Err(mut slot) = sender.send(self.held_by(&namespace)) {
                // The caller does not wait any more, so the slot is still here.
                drop(slot.0.take());
                self.state().put_back(&namespace);
            }
        }
    }

    /// Returns how many slots a namespace holds.
    pub fn held_by_namespace(&self, namespace: &str) -> usize {
        self.state().held.get(namespace).copied().unwrap_or_default()
    }

    fn held_by(self: &Arc<Self>, namespace: &str) -> Slot {
        Slot(Some(HeldSlot { queue: self.clone(), namespace: namespace.into(), since: Instant::now() }))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.0)
    }
}

/// The namespace of a pipeline that is named `namespace/name`.
pub(crate) fn namespace(pipeline: &str) -> &str {
    pipeline.split_once('/').map_or(pipeline, |(namespace, _)| namespace)
}

impl QueueState {
    /// Returns whether a namespace may have one of the slots that are free. Quick work in slots that are left for it does not
    /// keep slow work waiting: what counts is how many slots slow work holds.
    fn may_have(&self, now: Instant) -> impl Fn(&str) -> bool {
        let quick = self.held.iter().filter(|(namespace, _)| !self.slot_use.is_slow(namespace, now));
        let left_by_slow = self.free + quick.map(|(_, held)| held).sum::<usize>();
        move |namespace| {
            self.free > 0
                && (self.free > self.reserved || !self.held.contains_key(namespace))
                && (left_by_slow > self.reserved.div_ceil(2) || !self.slot_use.is_slow(namespace, now))
        }
    }

    /// Takes a slot, if the namespace may have one. Returns whether it did.
    fn try_take(&mut self, namespace: &str) -> bool {
        let may = self.may_have(Instant::now())(namespace);
        if may {
            self.take(namespace);
        }
        may
    }

    fn take(&mut self, namespace: &str) {
        self.free -= 1;
        *self.held.entry(namespace.into()).or_default() += 1;
    }

    fn put_back(&mut self, namespace: &str) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(namespace);
            }
        }
    }

    fn add(&mut self, pipeline: &str) -> oneshot::Receiver<Slot> {
        let (sender, coming) = oneshot::channel();
        self.waiting.of(namespace(pipeline)).of(pipeline).push_back(sender);
        coming
    }

    /// Takes a free slot for the next caller that may have it. Returns the caller and its namespace. Namespaces with slow
    /// work are passed over, but not two times in a row.
    fn next(&mut self) -> Option<(oneshot::Sender<Slot>, String)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let (mut served, now) = (String::new(), Instant::now());
        let is_slow = |namespace: &str| self.slot_use.is_slow(namespace, now);
        let may_have = self.may_have(now);
        let passes_over = !self.passed_over
            && waiting.order.iter().any(|namespace| !is_slow(namespace) && may_have(namespace));
        let may = |namespace: &str| may_have(namespace) && !(passes_over && is_slow(namespace));
        let next = waiting.next(may, |namespace, pipelines| {
            served.push_str(namespace);
            let next = pipelines.next(|_| true, |_, queue| (queue.pop_front(), !queue.is_empty()));
            (next, !pipelines.order.is_empty())
        });
        drop(may_have);
        self.waiting = waiting;
        next.map(|sender| {
            self.passed_over = passes_over;
            self.take(&served);
            (sender, served)
        })
    }
}

impl Slot {
    /// Whether the work of this slot should give way to a namespace that waits: to one that has held slots for clearly less time
    /// lately than the namespace of this one.
    pub(crate) fn should_give_way(&self) -> bool {
        let Some(held) = &self.0 else { return false };
        let (state, now) = (held.queue.state(), Instant::now());
        let held_now = now.saturating_duration_since(held.since);
        let waits = |pipelines: &Turns<VecDeque<oneshot::Sender<Slot>>>| {
            pipelines.queues.values().flatten().any(|sender| !sender.is_closed())
        };
        let mut others = state.waiting.queues.iter().filter(|(namespace, _)| **namespace != held.namespace);
        others.any(|(namespace, pipelines)| {
            waits(pipelines) && state.slot_use.is_clearly_less((namespace, &held.namespace), held_now, now)
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(HeldSlot { queue, namespace, since }) = self.0.take() {
            queue.release(&namespace, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::join_all;
    use std::time::Duration;
    use tokio::time::sleep;

    /// The order in which these pipelines get a slot, if they wait for a single one.
    async fn served(waiting: &[&str]) -> Vec<String> {
        let (queue, served) = (FairQueue::new(1), Mutex::new(Vec::new()));
        let held = queue.acquire("first").await;
        let all = join_all(waiting.iter().map(async |pipeline| {
            let _slot = queue.acquire(pipeline).await;
            served.lock().unwrap().push(pipeline.to_string());
        }));
        // Polled once, all of them wait.
        let mut all = Box::pin(all);
        assert!((&mut all).now_or_never().is_none());
        drop(held);
        all.await;
        served.into_inner().unwrap()
    }

    #[tokio::test]
    async fn pipelines_are_served_in_turn_and_each_in_the_order_it_came() {
        for (waiting, expected) in
            [("abc", "abc"), ("aaaaaaab", "abaaaaaa"), ("aaabbc", "abcaba"), ("aabbb", "ababb")]
        {
            let waiting: Vec<String> = waiting.chars().map(|c| format!("apps/{c}")).collect();
            let waiting: Vec<&str> = waiting.iter().map(String::as_str).collect();
            let expected: Vec<String> = expected.chars().map(|c| format!("apps/{c}")).collect();
            assert_eq!(served(&waiting).await, expected);
        }
    }

    #[tokio::test]
    async fn namespaces_are_served_in_turn_whatever_the_number_of_their_pipelines() {
        let busy: Vec<String> = (0..1000).map(|n| format!("busy/app-{n}")).collect();
        let mut waiting: Vec<&str> = busy.iter().map(String::as_str).collect();
        waiting.extend(["quiet/one", "quiet/two", "other/one"]);
        let served = served(&waiting).await;
        assert_eq!(
            served[..6],
            ["busy/app-0", "quiet/one", "other/one", "busy/app-1", "quiet/two", "busy/app-2"]
        );
        assert_eq!(served.len(), 1003);
        // The busy namespace in the order of its calls.
        let rest: Vec<&String> = served.iter().filter(|p| p.starts_with("busy/")).collect();
        assert_eq!(rest, busy.iter().collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_namespace_does_not_hold_the_reserved_slots() {
        let queue = FairQueue::new(8);
        let now = |pipeline: &str| queue.acquire(pipeline).now_or_never();
        let mut busy: Vec<Slot> = (0..6).map(|n| now(&format!("busy/app-{n}")).unwrap()).collect();
        let mut more = Box::pin(queue.acquire("busy/more"));
        assert!((&mut more).now_or_never().is_none(), "two slots are for others");
        let quiet = [now("quiet/app"), now("other/app")];
        assert!(quiet.iter().all(Option::is_some));
        // With all slots taken, the first caller that may have a slot is served.
        let mut third = Box::pin(queue.acquire("third/app"));
        assert!((&mut third).now_or_never().is_none());
        drop(busy.pop());
        assert!((&mut more).now_or_never().is_none(), "the slot is for a namespace that holds none");
        let third = third.now_or_never();
        assert!(third.is_some());
        // The slots of others count as reserved again.
        drop((quiet, third));
        assert!((&mut more).now_or_never().is_some());
    }

    #[tokio::test]
    async fn as_many_namespaces_as_slots_are_reserved_leave_one_for_another() {
        for first in 1..=6 {
            let queue = FairQueue::with_reserved(6, 8);
            let now = |pipeline: &str| queue.acquire(pipeline).now_or_never();
            // The first one comes with a few calls, and then all of them with as many as they can get.
            let early = (0..first).map(|_| "busy-0/app".to_string());
            let all = (0..8).flat_map(|n| (0..20).map(move |_| format!("busy-{n}/app")));
            let held: Vec<Slot> = early.chain(all).filter_map(|pipeline| now(&pipeline)).collect();
            assert!(held.len() >= 8, "{}", held.len());
            assert!(now("quiet/app").is_some(), "{first}");
        }
    }

    #[tokio::test]
    async fn a_namespace_with_a_reserved_slot_waits_for_a_second_one() {
        let queue = FairQueue::new(4);
        let now = |pipeline: &str| queue.acquire(pipeline).now_or_never();
        let busy = [now("busy/a"), now("busy/b"), now("busy/c")];
        let quiet = now("quiet/a");
        assert!(busy.iter().all(Option::is_some) && quiet.is_some());
        let mut waiting = [Box::pin(queue.acquire("quiet/b")), Box::pin(queue.acquire("busy/d"))];
        assert!(waiting.iter_mut().all(|slot| slot.now_or_never().is_none()));
        // One slot is free, and it is reserved.
        drop(quiet);
        assert!(waiting[0].as_mut().now_or_never().is_some());
        drop(busy);
        assert!(waiting[1].as_mut().now_or_never().is_some());
    }

    /// Takes a slot for this time, again and again.
    async fn hold(queue: Arc<FairQueue>, pipeline: String, time: Duration) {
        loop {
            let _slot = queue.acquire(&pipeline).await;
            sleep(time).await;
        }
    }

    /// The time for eight short runs of another namespace, after fifty namespaces have had slow ones for a while.
    async fn beside_fifty_slow_namespaces(queue: Arc<FairQueue>) -> Duration {
        let mut slow = tokio::task::JoinSet::new();
        for n in 0..50 {
            slow.spawn(hold(queue.clone(), format!("slow-{n}/app"), Duration::from_secs(60)));
        }
        sleep(Duration::from_secs(3600)).await;
        let began = Instant::now();
        for _ in 0..8 {
            let _slot = queue.acquire("quiet/app").await;
            sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_namespaces_with_slow_work_leave_a_slot_to_one_without() {
        assert_eq!(beside_fifty_slow_namespaces(FairQueue::with_reserved(6, 8)).await.as_secs(), 0);
        assert_eq!(beside_fifty_slow_namespaces(FairQueue::new(4)).await.as_secs(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_single_slot_quick_work_waits_for_one_or_two_slow_ones() {
        let took = beside_fifty_slow_namespaces(FairQueue::new(1)).await;
        assert!(took <= Duration::from_secs(8 * 2 * 61), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_gets_every_second_slot_at_least_and_is_forgotten() {
        let queue = FairQueue::new(1);
        let slot = queue.acquire("slow/app").await;
        sleep(Duration::from_secs(60)).await;
        let mut quick = tokio::task::JoinSet::new();
        for n in 0..50 {
            quick.spawn(hold(queue.clone(), format!("quick-{n}/app"), Duration::from_millis(100)));
        }
        drop(slot);
        let began = Instant::now();
        let _slot = queue.acquire("slow/app").await;
        assert!(began.elapsed() <= Duration::from_millis(5200), "{:?}", began.elapsed());
        assert!(queue.state().slot_use.is_slow("slow", Instant::now()));
        assert!(!queue.state().slot_use.is_slow("slow", Instant::now() + Duration::from_secs(6000)));
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_namespaces_with_quick_work_leave_slots_to_one_with_slow_work() {
        for queue in [FairQueue::with_reserved(6, 8), FairQueue::new(4), FairQueue::new(2)] {
            let slot = queue.acquire("slow/app").await;
            sleep(Duration::from_secs(60)).await;
            drop(slot);
            let mut quick = tokio::task::JoinSet::new();
            for n in 0..50 {
                quick.spawn(hold(queue.clone(), format!("quick-{n}/app"), Duration::from_millis(900)));
            }
            sleep(Duration::from_secs(10)).await;
            let began = Instant::now();
            let slot = tokio::time::timeout(Duration::from_secs(600), queue.acquire("slow/app")).await;
            assert!(slot.is_ok() && began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_with_slow_work_is_remembered_until_that_is_forgotten() {
        let queues = FairQueues::default();
        let of = |name: &str| queues.of(name, || FairQueue::new(1));
        for (held, then, is) in [(0, 0, false), (60, 0, true), (60, 6000, false)] {
            let queue = of("host");
            let weak = Arc::downgrade(&queue);
            let slot = queue.acquire("slow/app").await;
            drop(queue);
            sleep(Duration::from_secs(held)).await;
            drop(slot);
            sleep(Duration::from_secs(then)).await;
            drop(of("other"));
            assert_eq!(weak.upgrade().is_some(), is, "{held} {then}");
            sleep(Duration::from_secs(6000)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_queues_without_a_caller_is_limited() {
        let queues = FairQueues::default();
        let of = |name: &str| queues.of(name, || FairQueue::new(1));
        let all = (0..MAX_IDLE + 10).map(|n| of(&format!("host-{n}")));
        let held = join_all(all.map(async |queue| (queue.acquire("slow/app").await, queue))).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(lock(&queues.0).by_name.len(), MAX_IDLE + 10, "each has a caller");
        // The work of the first queue continues.
        let first = held.into_iter().next();
        drop(of("other"));
        let mut left: Vec<usize> = lock(&queues.0)
            .by_name
            .keys()
            .filter_map(|name| name.strip_prefix("host-")?.parse().ok())
            .collect();
        left.sort_unstable();
        let expected: Vec<usize> = std::iter::once(0).chain(10..MAX_IDLE + 10).collect();
        assert_eq!(left, expected);
        drop(first);
    }

    #[tokio::test]
    async fn the_number_of_slots_is_limited_and_a_caller_that_stops_waiting_takes_none() {
        let queue = FairQueue::new(2);
        let (one, other) = (queue.acquire("a").await, queue.acquire("a").await);
        // One caller stops before its turn, and one when it already has the slot.
        let mut early = Box::pin(queue.acquire("b"));
        let mut late = Box::pin(queue.acquire("c"));
        assert!((&mut early).now_or_never().is_none() && (&mut late).now_or_never().is_none());
        drop(early);
        drop(one);
        assert_eq!(queue.state().free, 0);
        drop(late);
        assert_eq!(queue.state().free, 1);
        drop(other);
        let both = [queue.acquire("d").now_or_never(), queue.acquire("d").now_or_never()];
        assert!(both.iter().all(Option::is_some));
        assert!(queue.acquire("d").now_or_never().is_none());
        drop(both);
        let state = queue.state();
        assert_eq!((state.free, state.held.len()), (2, 0));
    }
}
