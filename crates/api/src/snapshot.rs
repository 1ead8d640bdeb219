//! The Pipelines and Promotions of the hub at one moment, for those that show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::{Pipeline, Promotion};

/// A Pipeline whose status is kept as text: as a tree, the status takes ten times the memory.
#[derive(Clone, Debug)]
pub struct StoredPipeline {
    /// Metadata and spec.
    pub object: Arc<Pipeline>,
    /// The status; `None` before the controller has written one.
    pub status: Option<Arc<RawValue>>,
}

impl StoredPipeline {
    /// Returns the whole object.
    pub fn whole(&self) -> Pipeline {
        let status = self.status.as_ref().and_then(|status| serde_json::from_str(status.get()).ok());
        Pipeline { status, ..self.object.as_ref().clone() }
    }

    /// Whether both are the same object in memory. Two that are not may still have the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        let status = match (&self.status, &other.status) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        status && Arc::ptr_eq(&self.object, &other.object)
    }
}

/// The Pipelines and Promotions at one moment. Copies share the objects.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// False until all were read from the hub.
    pub is_complete: bool,
    /// The Pipelines, by namespace and name.
    pub pipelines: BTreeMap<(String, String), StoredPipeline>,
    /// The Promotions of each Pipeline, by the Pipeline's namespace and name.
    pub promotions: BTreeMap<(String, String), Vec<Arc<Promotion>>>,
}
