//! Slots for work of callers, such as reading a repository. Work that takes long moves to slots of its own, so that
//! callers with slow repositories do not keep quick work of others waiting. Service accounts have slots apart from those
//! of people.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::access::Caller;
use sluice_core::slots::{ByCallerKind, CallerSlots};
use sluice_delivery::FairQueue;

/// How much work runs at a time in its first seconds, fair by caller: of people, and of service accounts.
const MAX_BEGINNING: usize = 4;
/// How long these are.
const BEGINNING: Duration = Duration::from_secs(2);
/// How much work runs longer than that, of all people, and of all service accounts.
const MAX_LONG: usize = 4;
/// The same, of one caller.
const MAX_LONG_OF_CALLER: usize = 1;

/// The slots. Copies share them.
#[derive(Clone)]
pub(super) struct WorkSlots {
    beginning: ByCallerKind<Arc<FairQueue>>,
    long: CallerSlots,
}

impl WorkSlots {
    /// Returns free slots.
    pub(super) fn new() -> WorkSlots {
        let long = CallerSlots::new(MAX_LONG, MAX_LONG_OF_CALLER);
        WorkSlots { beginning: ByCallerKind::new(|| FairQueue::new(MAX_BEGINNING)), long }
    }

    /// Does work of a caller for a pipeline that is named `namespace/name`, when there is a slot. Returns `None` if the
    /// work takes long and too much of that kind is running.
    pub(super) async fn run<T>(
        &self,
        caller: &Caller,
        pipeline: &str,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let slot = self.beginning.of(caller).acquire(&format!("{}/{pipeline}", caller.queue_name())).await;
        if let Ok(done) = tokio::time::timeout(BEGINNING, &mut work).await {
            return Some(done);
        }
        drop(slot);
        let _slot = self.long.take(caller)?;
        Some(work.await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::future::join_all;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn service_accounts_of_many_namespaces_delay_no_person_with_a_slow_repository() {
        let (slots, began) = (WorkSlots::new(), Instant::now());
        let robots = (0..40).map(async |n| {
            let name = format!("system:serviceaccount:team-{n}:robot");
            slots.run(&caller(name), "apps/slow", tokio::time::sleep(100 * BEGINNING)).await
        });
        let person = async {
            // The robots have all their slots by now.
            tokio::time::sleep(BEGINNING).await;
            slots.run(&caller("anna"), "apps/web", tokio::time::sleep(5 * BEGINNING)).await
        };
        tokio::select! {
            _ = join_all(robots) => unreachable!("they take longer"),
            done = person => assert!(done.is_some()),
        }
        assert_eq!(began.elapsed(), 6 * BEGINNING);
    }

    fn caller(name: impl Into<String>) -> Caller {
        Caller { name: name.into(), ..Caller::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_whose_work_never_ends_delay_quick_work_by_a_few_seconds() {
        let (slots, began) = (WorkSlots::new(), Instant::now());
        let slow = (0..8).map(async |n| {
            loop {
                let name = format!("system:serviceaccount:team-{n}:robot");
                let _refused = slots.run(&caller(name), "apps/slow", pending::<()>()).await;
            }
        });
        let quick = async {
            // The others have all slots by now.
            tokio::time::sleep(10 * BEGINNING).await;
            let began = Instant::now();
            assert_eq!(slots.run(&caller("anna"), "apps/quick", ready(1)).await, Some(1));
            began.elapsed()
        };
        let waited = tokio::select! {
            _ = join_all(slow) => unreachable!("they never end"),
            waited = quick => waited,
        };
        assert!(waited <= 3 * BEGINNING, "{waited:?}");
        assert!(began.elapsed() >= 10 * BEGINNING);
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_ends_in_slots_of_its_own_one_for_each_caller() {
        let slots = WorkSlots::new();
        let long = async |name: &'static str| {
            slots.run(&caller(name), "apps/web", tokio::time::sleep(10 * BEGINNING)).await
        };
        let (one, two, other) = tokio::join!(long("anna"), long("anna"), long("ben"));
        assert!(one.is_some() != two.is_some() && other.is_some(), "{one:?} {two:?} {other:?}");
        assert!(slots.long.is_unused());
    }
}
