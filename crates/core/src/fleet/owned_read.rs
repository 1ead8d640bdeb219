//! A request to read what a Kustomization or HelmRelease owns. See [`super::owned_check`].

use std::collections::BTreeSet;

use super::fact::Owned;
use super::object_key::ObjectKey;
use super::watched_kind::Kind;

/// A request to read the objects that a Flux object owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRead {
    /// The Flux object.
    pub owner: ObjectKey,
    /// What it owns, by its status.
    pub owned: Owned,
    /// The kinds and namespaces to read.
    pub scopes: BTreeSet<(Kind, String)>,
    /// The number of the check that needs the answer.
    pub number: u64,
}
