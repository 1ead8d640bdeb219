//! How much a server may send, and how much of it is kept. A cluster is somebody else's: what it sends is
//! read in pieces and counted, and where it is more than a cluster of real use sends, the kind counts as
//! too large and the rest is not read. WatchLimits are generous: they bound memory, and shape nothing.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Response;
use http_body_util::Limited;
use kube::client::DynBody;
use tokio::sync::Notify;

use super::relist::ScopeLists;
use crate::observe::facts::ClusterKey;

/// The most bytes of one object: etcd takes 1.5 MiB, and API servers 3 MiB, by default.
pub const OBJECT_BYTES: usize = 4 << 20;
/// The most values in one object: each may take a hundred times its text when it is read.
pub const OBJECT_VALUES: usize = 50_000;
/// Objects with more values than this are read one after the other.
const MANY_VALUES: usize = 5_000;
/// The most objects in one list.
const LIST_OBJECTS: usize = 250_000;
/// The most bytes of one list, after decompression.
const LIST_BYTES: usize = 1 << 30;
/// How long reading one list may take.
const LIST_TIME: Duration = Duration::from_secs(300);
/// How many changes may come at once.
const BURST: f64 = 20_000.0;
/// How many changes a second may come for long.
const CHANGES_A_SECOND: f64 = 1_000.0;
/// So many bytes count as one more change.
const CHANGE_BYTES: f64 = 16_384.0;
/// The most bytes of a single answer, after decompression.
pub const ANSWER_BYTES: usize = 2 << 20;
/// The most values of a single answer.
pub const ANSWER_VALUES: usize = 100_000;
/// The most bytes of the text of an error.
const ERROR_BYTES: usize = 64 << 10;
/// How many events of a cluster may wait for the loop.
const QUEUE: usize = 128;
/// By how much the memory charged to a watch grows at a time.
const STEP: usize = 4 << 10;

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The text of one object.
    #[error("it sends an object of more than {} MiB", OBJECT_BYTES >> 20)]
    Object,
    /// The objects in a list.
    #[error("it lists more than {} objects", LIST_OBJECTS)]
    ListObjects,
    /// The text of a list.
    #[error("its list has more than {} MiB", LIST_BYTES >> 20)]
    ListBytes,
    /// The time that a list takes.
    #[error("its list takes more than {} seconds", LIST_TIME.as_secs())]
    ListTime,
    /// Changes in a short time.
    #[error("it sends more than {} changes a second", CHANGES_A_SECOND)]
    Changes,
    /// What is kept of one cluster.
    #[error("what Sluice keeps of its objects takes more than {0} MiB")]
    Cluster(usize),
    /// What is kept of all clusters together.
    #[error(
        "what Sluice keeps of all clusters takes more than {0} MiB, and this one has more than its share \
         (--observed-memory)"
    )]
    All(usize),
    /// One answer.
    #[error("one of its answers has more than {} KiB", ANSWER_BYTES >> 10)]
    Answer,
}

impl From<TooLarge> for kube::Error {
    fn from(what: TooLarge) -> Self {
        kube::Error::ReadEvents(std::io::Error::other(what))
    }
}

/// The limit that an error of a client is about.
pub fn of(error: &kube::Error) -> Option<TooLarge> {
    let kube::Error::ReadEvents(error) = error else { return None };
    error.get_ref()?.downcast_ref().copied()
}

/// The limits of one watch.
#[derive(Clone)]
pub struct WatchLimits {
    /// The server and what is read of it, for the log.
    pub source: String,
    /// Absent where the server is trusted, as the hub is for Pipelines: then only the size of one object is
    /// limited.
    foreign: Option<Foreign>,
}

#[derive(Clone)]
struct Foreign {
    account: Arc<Account>,
    queue: Arc<Queue>,
    lists: ScopeLists,
}

impl WatchLimits {
    /// The limits of a watch on the hub's own objects.
    pub fn hub(kind: &str) -> Self {
        WatchLimits { source: format!("the hub: {kind}"), foreign: None }
    }

    /// The limits of a watch on a cluster that may be hostile.
    pub fn cluster(source: String, account: Arc<Account>, queue: Arc<Queue>, lists: ScopeLists) -> Self {
        WatchLimits { source, foreign: Some(Foreign { account, queue, lists }) }
    }

    /// How the lists of the watch are paced; `None` where the server is trusted.
    pub fn lists(&self) -> Option<&ScopeLists> {
        self.foreign.as_ref().map(|foreign| &foreign.lists)
    }

    /// Waits until the loop has taken in enough of what was sent before.
    pub async fn room(&self) {
        if let Some(foreign) = &self.foreign {
            foreign.queue.room().await;
        }
    }

    /// Nothing is kept any more.
    pub fn clear(&self) {
        if let Some(foreign) = &self.foreign {
            foreign.account.clear();
        }
    }

    /// Begins to count a list.
    pub fn list(&self) -> ListCount<'_> {
        let account = self.foreign.as_ref().map(|f| f.account.as_ref());
        if let Some(account) = account {
            account.begin();
        }
        ListCount { account, objects: 0, bytes: 0, began: Instant::now() }
    }

    /// Begins to count changes.
    pub fn changes(&self) -> ChangeCount {
        ChangeCount { limited: self.foreign.is_some(), left: BURST, at: Instant::now() }
    }

    /// Whether so much was added since the last list that what is kept has to be counted anew, by a list.
    pub fn has_outgrown(&self) -> bool {
        self.foreign.as_ref().is_some_and(|f| f.account.check().is_err())
    }

    /// Whether an object has too many values to be read.
    pub fn has_too_many(&self, values: usize) -> bool {
        self.foreign.is_some() && values > OBJECT_VALUES
    }
}

/// Has objects with many values read one after the other, whichever watch they come from.
pub fn one_by_one<T>(values: usize, read: impl FnOnce() -> T) -> T {
    static READING: Mutex<()> = Mutex::new(());
    let _alone = (values > MANY_VALUES).then(|| READING.lock().unwrap_or_else(PoisonError::into_inner));
    read()
}

/// How many values a JSON text has at most.
pub fn values(text: &[u8]) -> usize {
    text.iter().filter(|b| matches!(b, b',' | b'{' | b'[')).count()
}

/// Counts what comes of a list.
pub struct ListCount<'a> {
    account: Option<&'a Account>,
    objects: usize,
    bytes: usize,
    began: Instant,
}

impl ListCount<'_> {
    /// How long the list may take from now on.
    pub fn time_left(&self) -> Duration {
        match self.account {
            Some(_) => LIST_TIME.saturating_sub(self.began.elapsed()),
            None => Duration::MAX,
        }
    }

    /// So many more bytes have come.
    ///
    /// # Errors
    /// When that is too much.
    pub fn bytes(&mut self, more: usize) -> Result<(), TooLarge> {
        self.bytes += more;
        if self.account.is_some() && self.bytes > LIST_BYTES {
            return Err(TooLarge::ListBytes);
        }
        Ok(())
    }

    /// One more object has come, and is kept or is not.
    ///
    /// # Errors
    /// When that is too much.
    pub fn object(&mut self) -> Result<(), TooLarge> {
        self.objects += 1;
        let Some(account) = self.account else { return Ok(()) };
        if self.objects > LIST_OBJECTS {
            return Err(TooLarge::ListObjects);
        }
        account.check()
    }

    /// The list is whole.
    pub fn end(self) {
        if let Some(account) = self.account {
            account.end();
        }
    }
}

/// Counts changes: a bucket that fills again with time.
pub struct ChangeCount {
    limited: bool,
    left: f64,
    at: Instant,
}

impl ChangeCount {
    /// One more change has come, of so many bytes.
    ///
    /// # Errors
    /// When too many have come.
    pub fn change(&mut self, bytes: usize) -> Result<(), TooLarge> {
        let now = Instant::now();
        let filled = now.duration_since(self.at).as_secs_f64() * CHANGES_A_SECOND;
        self.at = now;
        self.left = (self.left + filled).min(BURST) - 1.0 - bytes as f64 / CHANGE_BYTES;
        if self.limited && self.left < 0.0 { Err(TooLarge::Changes) } else { Ok(()) }
    }
}

/// What may be kept of all clusters together, in bytes. No cluster may have more than a third of it. Once all
/// of it is taken, each namespace of GitopsClusters may have an equal share: whoever makes many clusters takes
/// nothing from the clusters of others.
#[derive(Debug)]
pub struct Budget {
    all: usize,
    used: Mutex<HashMap<ClusterKey, usize>>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all, used: Mutex::default() })
    }

    fn charge(&self, cluster: &ClusterKey, more: usize) -> Result<(), TooLarge> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.get(cluster).copied().unwrap_or_default() + more;
        if own > self.all / 3 {
            return Err(TooLarge::Cluster((self.all / 3) >> 20));
        }
        if used.values().sum::<usize>() + more > self.all {
            let group = |key: &ClusterKey| match key {
                ClusterKey::Local => None,
                ClusterKey::Remote { namespace, .. } => Some(namespace.clone()),
            };
            let mut groups: HashSet<_> = used.keys().map(group).collect();
            groups.insert(group(cluster));
            let of_group = used.iter().filter(|(key, _)| group(key) == group(cluster));
            if of_group.map(|(_, bytes)| bytes).sum::<usize>() + more > self.all / groups.len() {
                return Err(TooLarge::All(self.all >> 20));
            }
        }
        used.insert(cluster.clone(), own);
        Ok(())
    }

    fn release(&self, cluster: &ClusterKey, less: usize) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = used.get_mut(cluster) {
            *own = own.saturating_sub(less);
            if *own == 0 {
                used.remove(cluster);
            }
        }
    }

    /// How much is charged for all clusters, in bytes.
    pub fn used(&self) -> usize {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// What one watch keeps, in bytes. Objects that change are not told from new ones: what was added since
/// the last list is counted, and where it is much the list is read again.
#[derive(Debug)]
pub struct Account {
    cluster: ClusterKey,
    budget: Arc<Budget>,
    /// What was added since the last list began.
    kept: AtomicUsize,
    charged: AtomicUsize,
}

impl Account {
    /// An account of nothing.
    pub fn new(cluster: ClusterKey, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { cluster, budget, kept: AtomicUsize::default(), charged: AtomicUsize::default() })
    }

    /// So many bytes more are kept.
    pub fn add(&self, bytes: usize) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    fn begin(&self) {
        self.kept.store(0, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), TooLarge> {
        let kept = self.kept.load(Ordering::Relaxed);
        let charged = self.charged.load(Ordering::Relaxed);
        if kept <= charged {
            return Ok(());
        }
        let more = (kept - charged).next_multiple_of(STEP);
        self.budget.charge(&self.cluster, more)?;
        self.charged.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn end(&self) {
        let keep = self.kept.load(Ordering::Relaxed).next_multiple_of(STEP);
        let charged = self.charged.load(Ordering::Relaxed);
        if charged > keep {
            self.charged.store(keep, Ordering::Relaxed);
            self.budget.release(&self.cluster, charged - keep);
        }
    }

    /// Nothing is kept any more.
    pub fn clear(&self) {
        self.kept.store(0, Ordering::Relaxed);
        let charged = self.charged.swap(0, Ordering::Relaxed);
        self.budget.release(&self.cluster, charged);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The events of one cluster that wait for the loop.
#[derive(Default)]
pub struct Queue {
    waiting: AtomicUsize,
    taken: Notify,
}

impl Queue {
    /// A place in the queue, which is free again when it is dropped.
    pub fn slot(self: &Arc<Self>) -> QueueSlot {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        QueueSlot(self.clone())
    }

    /// Waits until there is room.
    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.waiting.load(Ordering::SeqCst) < QUEUE {
                return;
            }
            // Woken for nothing where several watches wait: whoever finds no room waits again.
            let _ = tokio::time::timeout(Duration::from_secs(1), taken).await;
        }
    }
}

/// A place in a queue.
pub struct QueueSlot(Arc<Queue>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.taken.notify_one();
    }
}

impl fmt::Debug for QueueSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueSlot")
    }
}

/// WatchLimits the texts of errors, which a client reads whole.
pub fn limit_errors(response: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if !is_error {
        return response;
    }
    response.map(|body| Box::new(Limited::new(body, ERROR_BYTES)) as Box<DynBody>)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_cluster_waits_for_the_loop_when_its_queue_is_full() {
        let queue = Arc::new(EventQueue::default());
        let mut slots = Vec::new();
        for _ in 0..QUEUE {
            assert!(queue.room().now_or_never().is_some());
            slots.push(queue.slot());
        }
        let mut room = Box::pin(queue.room());
        assert!((&mut room).now_or_never().is_none());
        slots.pop();
        assert!(room.now_or_never().is_some());
    }
}
