//! Limits on what a cluster may send, and on what Sluice keeps of it. A cluster is untrusted: Sluice reads and
//! counts its answers in pieces. If a cluster sends more than clusters in real use do, the kind counts as too
//! large, and Sluice stops reading it. The limits are generous: they only bound memory.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Response;
use http_body_util::Limited;
use kube::client::DynBody;
use sluice_core::lock::lock;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::change_count::ChangeCount;
use super::event_queue::EventQueue;
use super::kubeconfig_secrets::KubeconfigSecrets;
use super::large_objects::LargeObject;
use super::observed_memory::WatchMemory;
use super::relist::ScopeLists;
use super::too_large::{MAX_LIST_OBJECTS, MAX_LIST_TIME, TooLarge};

/// The most values in one object. A parsed value may take a hundred times the memory of its text.
pub const MAX_OBJECT_VALUES: usize = 50_000;
/// Objects with more values than this are parsed one at a time.
const MANY_VALUES: usize = 5_000;
/// The most bytes of one list, after decompression.
const MAX_LIST_BYTES: usize = 1 << 30;
/// The most bytes of one list of the objects that one Flux object owns, after decompression.
const MAX_OWNED_BYTES: usize = 16 << 20;
/// The most values of a single answer.
pub const MAX_ANSWER_VALUES: usize = 100_000;
/// The most bytes of the text of an error.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// The limits of one watch.
#[derive(Clone)]
pub struct WatchLimits {
    /// The server and the kind, for the log.
    pub source: String,
    /// The secrets that no error of the server shows.
    pub(super) secrets: KubeconfigSecrets,
    /// `None` for a trusted server, such as the hub for Pipelines. Then only the size of one object is limited.
    untrusted: Option<UntrustedLimits>,
}

#[derive(Clone)]
struct UntrustedLimits {
    memory: Arc<WatchMemory>,
    queue: Arc<EventQueue>,
    lists: ScopeLists,
    max_list_bytes: usize,
}

impl WatchLimits {
    /// Returns the limits of a watch on the hub's own objects.
    pub fn hub(kind: &str) -> Self {
        WatchLimits { source: format!("the hub: {kind}"), secrets: Default::default(), untrusted: None }
    }

    /// Returns the limits of a watch on a cluster, which may be hostile.
    pub fn cluster(
        source: String,
        memory: Arc<WatchMemory>,
        queue: Arc<EventQueue>,
        lists: ScopeLists,
    ) -> Self {
        WatchLimits {
            source,
            secrets: KubeconfigSecrets::default(),
            untrusted: Some(UntrustedLimits { memory, queue, lists, max_list_bytes: MAX_LIST_BYTES }),
        }
    }

    /// Returns these limits for a server to which Sluice sends these secrets.
    pub fn hiding(self, secrets: KubeconfigSecrets) -> Self {
        Self { secrets, ..self }
    }

    /// Returns these limits for lists of the objects that one Flux object owns.
    pub fn of_owned(mut self) -> Self {
        self.untrusted.iter_mut().for_each(|untrusted| untrusted.max_list_bytes = MAX_OWNED_BYTES);
        self
    }

    /// Returns the earlier lists of the watch, which determine when it may list again; `None` for a trusted
    /// server.
    pub fn lists(&self) -> Option<&ScopeLists> {
        self.untrusted.as_ref().map(|untrusted| &untrusted.lists)
    }

    /// Waits until the controller's loop has handled enough of the earlier events.
    pub async fn wait_for_room(&self) {
        if let Some(untrusted) = &self.untrusted {
            untrusted.queue.wait_for_room().await;
        }
    }

    /// Waits until a large object may arrive; `None` for a trusted server.
    pub(super) async fn begin_large_object(&self) -> Option<LargeObject> {
        Some(self.untrusted.as_ref()?.memory.begin_large_object().await)
    }

    /// Records that Sluice keeps none of the watch's objects any more.
    pub fn clear(&self) {
        if let Some(untrusted) = &self.untrusted {
            untrusted.memory.clear();
        }
    }

    /// Starts counting a list.
    pub fn start_list(&self) -> ListCount {
        if let Some(untrusted) = &self.untrusted {
            untrusted.memory.start_list();
        }
        let max_bytes = self.untrusted.as_ref().map_or(usize::MAX, |untrusted| untrusted.max_list_bytes);
        ListCount {
            is_limited: self.untrusted.is_some(),
            objects: 0,
            bytes: 0,
            max_bytes,
            started: Instant::now(),
        }
    }

    /// Charges an object of a list. The objects of the list before are charged, too, until this list is reported. Returns
    /// true if there is no room for both: then Sluice must drop those of the list before.
    ///
    /// # Errors
    /// When the objects of this list exceed the memory.
    pub fn charge_listed(&self) -> Result<bool, TooLarge> {
        self.untrusted.as_ref().map_or(Ok(false), |untrusted| untrusted.memory.charge_listed())
    }

    /// Records that a complete list is reported.
    pub fn finish_list(&self) {
        if let Some(untrusted) = &self.untrusted {
            untrusted.memory.finish_list();
        }
    }

    /// Starts counting changes.
    pub fn start_changes(&self) -> ChangeCount {
        ChangeCount::new(self.untrusted.is_some())
    }

    /// Whether the objects exceed the memory. Only a new list shows which of them are kept.
    pub fn has_outgrown(&self) -> bool {
        self.untrusted.as_ref().is_some_and(|untrusted| untrusted.memory.has_outgrown())
    }

    /// Leaves out a namespace whose objects change too often. Returns false if its changes cannot be left out.
    pub fn leave_out(&self, namespace: &str) -> bool {
        self.untrusted.as_ref().is_some_and(|untrusted| untrusted.memory.leave_out(namespace))
    }

    /// Returns the namespaces that were left out since the last list and the last call, and why.
    pub fn newly_left_out(&self) -> Vec<(String, TooLarge)> {
        self.untrusted.as_ref().map(|untrusted| untrusted.memory.newly_left_out()).unwrap_or_default()
    }

    /// Whether the server was asked to send nothing of this namespace.
    pub fn is_unwatched(&self, namespace: Option<&str>) -> bool {
        let is = |untrusted: &UntrustedLimits| namespace.is_some_and(|n| untrusted.memory.is_unwatched(n));
        self.untrusted.as_ref().is_some_and(is)
    }

    /// Returns the namespaces of which the server must send nothing.
    pub fn unwatched(&self) -> Vec<String> {
        self.untrusted.as_ref().map(|untrusted| untrusted.memory.unwatched()).unwrap_or_default()
    }

    /// Whether an object has too many values to be parsed.
    pub fn has_too_many(&self, values: usize) -> bool {
        self.untrusted.is_some() && values > MAX_OBJECT_VALUES
    }
}

/// Runs `parse`. For objects with many values, only one call runs at a time in the whole process, and the other tasks of its
/// thread, and of those that wait for it, go on.
pub fn one_at_a_time<T>(values: usize, parse: impl FnOnce() -> T) -> T {
    static LARGE_OBJECT: Mutex<()> = Mutex::new(());
    if values <= MANY_VALUES {
        return parse();
    }
    let alone = || {
        let _lock = lock(&LARGE_OBJECT);
        parse()
    };
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) {
        return tokio::task::block_in_place(alone);
    }
    alone()
}

/// Returns an upper bound of the number of values in a JSON text.
pub fn count_values(text: &[u8]) -> usize {
    text.iter().filter(|b| matches!(b, b',' | b'{' | b'[')).count()
}

/// Counts the objects and bytes of a list while it arrives.
pub struct ListCount {
    is_limited: bool,
    objects: usize,
    bytes: usize,
    max_bytes: usize,
    started: Instant,
}

impl ListCount {
    /// Returns the time that is left for the list.
    pub fn time_left(&self) -> Duration {
        match self.is_limited {
            true => MAX_LIST_TIME.saturating_sub(self.started.elapsed()),
            false => Duration::MAX,
        }
    }

    /// Does not count a time in which Sluice did not read.
    pub fn leave_out(&mut self, waited: Duration) {
        self.started += waited;
    }

    /// Counts bytes that have arrived.
    ///
    /// # Errors
    /// When the list has more bytes than the limits allow.
    pub fn add_bytes(&mut self, more: usize) -> Result<(), TooLarge> {
        self.bytes += more;
        if self.bytes > self.max_bytes {
            return Err(TooLarge::ListBytes(self.max_bytes >> 20));
        }
        Ok(())
    }

    /// Counts an object that has arrived, whether Sluice keeps it or not.
    ///
    /// # Errors
    /// When the list has more than [`MAX_LIST_OBJECTS`].
    pub fn add_object(&mut self) -> Result<(), TooLarge> {
        self.objects += 1;
        match self.is_limited && self.objects > MAX_LIST_OBJECTS {
            true => Err(TooLarge::ListObjects),
            false => Ok(()),
        }
    }
}

/// Limits the bodies of error responses, which the client reads whole.
pub fn limit_errors(response: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if !is_error {
        return response;
    }
    response.map(|body| Box::new(Limited::new(body, MAX_ERROR_BYTES)) as Box<DynBody>)
}
