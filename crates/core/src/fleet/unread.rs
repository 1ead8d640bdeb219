//! What of a connected cluster cannot be read.

use super::Kind;
use super::observed_cluster::{KindState, ObservedCluster};

impl ObservedCluster {
    /// Returns why kinds, or their objects in one namespace, cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.kind_states.values().filter_map(|state| match state {
            KindState::Unreadable(why) => Some(why.as_str()),
            _ => None,
        })
    }

    /// Returns the kinds of which no object can be known: they are read by namespace, and in no namespace.
    pub fn unread_kinds(&self) -> impl Iterator<Item = Kind> {
        let has_namespace =
            |kind| self.kind_states.keys().any(|(of, namespace)| *of == kind && namespace.is_some());
        let is_unread = move |kind: &Kind| self.is_by_namespace(*kind) && !has_namespace(*kind);
        self.kind_states.keys().map(|(kind, _)| *kind).filter(is_unread)
    }
}
