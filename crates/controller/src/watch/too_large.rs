//! The error of a cluster that sends more than clusters in real use do, and the limits that it names.

use std::time::Duration;

/// The most bytes of an object that is parsed. By default etcd accepts 1.5 MiB, and API servers accept 3 MiB. A longer one
/// is unreadable.
pub const MAX_OBJECT_BYTES: usize = 4 << 20;
/// The most bytes of an object that are read. By default etcd accepts 1.5 MiB of an object; the JSON text of an object that
/// is stored in another form may be six times as long.
pub const MAX_READ_BYTES: usize = 16 << 20;
/// The longest time for receiving one large object. Those of other clusters may have to wait meanwhile.
pub const MAX_OBJECT_TIME: Duration = Duration::from_secs(30);
/// The most objects in one list.
pub const MAX_LIST_OBJECTS: usize = 250_000;
/// The longest time for reading one list.
pub const MAX_LIST_TIME: Duration = Duration::from_secs(300);
/// The most bytes of a single answer, after decompression.
pub const MAX_ANSWER_BYTES: usize = 2 << 20;
/// The most bytes of a resource version. API servers send at most 20 digits.
const MAX_VERSION_BYTES: usize = 128;
/// The most changes per second on average.
pub const MAX_CHANGES_PER_SECOND: f64 = 1_000.0;

/// The limit that a cluster exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The text of one object.
    #[error("it sends an object of more than {} MiB", MAX_READ_BYTES >> 20)]
    Object,
    /// The time that a large object takes to arrive.
    #[error("it takes more than {} seconds to send one object", MAX_OBJECT_TIME.as_secs())]
    ObjectTime,
    /// The number of objects in a list.
    #[error("it lists more than {} objects", MAX_LIST_OBJECTS)]
    ListObjects,
    /// The text of a list, in MiB.
    #[error("its list has more than {0} MiB")]
    ListBytes(usize),
    /// The time that a list takes.
    #[error("its list takes more than {} seconds", MAX_LIST_TIME.as_secs())]
    ListTime,
    /// The rate of changes.
    #[error("it sends more than {} changes a second", MAX_CHANGES_PER_SECOND)]
    Changes,
    /// The rate of changes of the objects of one namespace.
    #[error("with those of other namespaces they have more than {MAX_CHANGES_PER_SECOND} changes a second")]
    NamespaceChanges,
    /// The memory for the objects of one cluster, in MiB.
    #[error("its objects take more than {0} MiB of Sluice's memory")]
    Cluster(usize),
    /// The memory for the objects of all clusters together, in MiB.
    #[error(
        "the objects of all clusters take more than {0} MiB of Sluice's memory, and those of this cluster more than \
         its share (--observed-memory)"
    )]
    All(usize),
    /// The memory for the objects of a list, and of the list that it replaces. Those of the list before are dropped, and the
    /// list continues.
    #[error("Sluice's memory has no room for the old and the new objects together")]
    BothLists,
    /// The memory for the objects of one namespace of a cluster.
    #[error("its objects take more than the share of a namespace in Sluice's memory")]
    Namespace,
    /// The text of one answer.
    #[error("one of its answers has more than {} KiB", MAX_ANSWER_BYTES >> 10)]
    Answer,
    /// The resource version of a list, or of the line of a watch.
    #[error("it sends a resourceVersion of more than {MAX_VERSION_BYTES} bytes")]
    Version,
}

impl From<TooLarge> for kube::Error {
    fn from(limit: TooLarge) -> Self {
        kube::Error::ReadEvents(std::io::Error::other(limit))
    }
}

/// Returns a resource version that was received, empty if there is none. It is kept as long as the watch runs.
///
/// # Errors
/// When it has more than [`MAX_VERSION_BYTES`].
pub(super) fn version(received: Option<&str>) -> Result<String, TooLarge> {
    let version = received.unwrap_or_default();
    if version.len() > MAX_VERSION_BYTES {
        return Err(TooLarge::Version);
    }
    Ok(version.into())
}

impl TooLarge {
    /// Returns the limit that an error of the client reports, if it reports one.
    pub fn from_error(error: &kube::Error) -> Option<TooLarge> {
        let kube::Error::ReadEvents(error) = error else { return None };
        error.get_ref()?.downcast_ref().copied()
    }
}
