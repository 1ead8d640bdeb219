//! What the watches of a cluster report.

use std::collections::BTreeMap;

use super::fact::Fact;
use super::object_key::ObjectKey;
use super::owned_check::FoundObject;
use super::watched_kind::Kind;

/// An event of a cluster. The optional text of an event about a kind is a namespace; `None` means all namespaces.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The cluster answers. All earlier state is outdated, and lists of all kinds follow.
    Connected,
    /// The cluster cannot be used; the text says why and what to do.
    Lost(String),
    /// All objects of a kind.
    Listed(Kind, Option<String>, Vec<(ObjectKey, Fact)>),
    /// All objects of a kind in all namespaces, except in those that take too much memory. The text of such a namespace says
    /// why and what to do. It is one event, because a state between two would prove revisions without these objects.
    PartlyListed(Kind, Vec<(ObjectKey, Fact)>, BTreeMap<String, String>),
    /// A kind cannot be read; the last text says why and what to do.
    Unreadable(Kind, Option<String>, String),
    /// A kind exceeds a limit, and Sluice keeps none of its objects; the last text says why and what to do.
    TooLarge(Kind, Option<String>, String),
    /// The user may not read a kind on the whole cluster, so Sluice reads it in each namespace with targets.
    ByNamespace(Kind),
    /// The cluster does not serve a kind.
    Absent(Kind),
    /// An object exists, or has changed.
    Applied(ObjectKey, Fact),
    /// An object was deleted.
    Deleted(ObjectKey),
    /// The objects that a Flux object owns were read for the check of this number, or why they could not be read.
    OwnedWasRead(ObjectKey, u64, Result<Vec<FoundObject>, String>),
}
