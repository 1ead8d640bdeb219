//! Slots for the threads that parse and edit files. A parsed file takes up to fifty times its size in memory, and a repository
//! chooses its files: without a limit, hostile pipelines together could take all memory. Small work has slots of its own, and
//! waits for no large work.

use std::sync::Arc;

use crate::fair_queue::{FairQueue, Slot};

/// How much small work runs at a time: each takes a part of a second, and up to 15 MiB for usual manifests. The
/// worst file, of 128,000 empty comments, takes 40 MiB.
const SMALL: usize = 3;
/// How much large work runs at a time: each takes some seconds, and up to 65 MiB for a file with markers. The worst
/// work is an `update` list over files with 480,000 values: it takes 155 MiB.
const LARGE: usize = 1;
/// The most bytes of the files of small work.
const SMALL_BYTES: usize = 256 << 10;
/// The most entries of an `update` list of small work, each counted for each target.
const SMALL_ENTRIES: usize = 256;
/// The most paths, times the entries that they are matched with, of small work.
const SMALL_MATCHES: usize = 1_000_000;

/// How large work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EditSize {
    Small,
    Large,
}

impl EditSize {
    /// The size of the work of editing files of this many bytes by this many entries.
    pub(crate) fn of_edit(bytes: usize, entries: usize) -> Self {
        Self::small_if(bytes <= SMALL_BYTES && entries <= SMALL_ENTRIES)
    }

    /// The size of the work of matching paths with entries.
    pub(crate) fn of_selection(paths: usize, entries: usize) -> Self {
        Self::small_if(paths.saturating_mul(entries) <= SMALL_MATCHES && entries <= SMALL_ENTRIES)
    }

    fn small_if(is_small: bool) -> Self {
        if is_small { EditSize::Small } else { EditSize::Large }
    }
}

/// The slots, fair by namespace.
#[derive(Debug)]
pub(crate) struct EditSlots {
    small: Arc<FairQueue>,
    large: Arc<FairQueue>,
}

impl EditSlots {
    pub(crate) fn new() -> Self {
        EditSlots { small: FairQueue::new(SMALL), large: FairQueue::new(LARGE) }
    }

    /// Waits for a slot, in the queue of a pipeline that is named `namespace/name`.
    pub(crate) async fn acquire(&self, pipeline: &str, size: EditSize) -> Slot {
        match size {
            EditSize::Small => self.small.acquire(pipeline).await,
            EditSize::Large => self.large.acquire(pipeline).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn ordinary_work_is_small() {
        let small = EditSize::Small;
        assert_eq!(EditSize::of_edit(20 << 10, 32), small);
        assert_eq!(EditSize::of_selection(10_000, 32), small);
        for large in [
            EditSize::of_edit(SMALL_BYTES + 1, 1),
            EditSize::of_edit(1, SMALL_ENTRIES + 1),
            EditSize::of_selection(100_000, 32),
            EditSize::of_selection(1, SMALL_ENTRIES + 1),
        ] {
            assert_eq!(large, EditSize::Large);
        }
    }

    #[tokio::test]
    async fn large_work_waits_for_large_work_and_small_work_does_not() {
        let slots = EditSlots::new();
        let now = |pipeline: &str, size| slots.acquire(pipeline, size).now_or_never();
        let large = now("evil/a", EditSize::Large);
        assert!(large.is_some() && now("evil/b", EditSize::Large).is_none());
        let small: Vec<_> = (0..5).filter_map(|_| now("apps/web", EditSize::Small)).collect();
        assert_eq!(small.len(), SMALL);
    }
}
