//! References to sources.

use serde::{Deserialize, Serialize};
use sluice_core::fleet::{Kind, ObjectKey};

/// A reference to a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceRef {
    /// GitRepository, OCIRepository, HelmRepository, Bucket or ExternalArtifact.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; default is that of the object that refers to it.
    pub namespace: Option<String>,
}

impl SourceRef {
    /// Returns the source that an object in the namespace `from` refers to; `None` if the kind is not one of a source.
    pub fn key(&self, from: &str) -> Option<ObjectKey> {
        let namespace = self.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or(from);
        Some(ObjectKey {
            kind: Kind::of_source(&self.kind)?,
            namespace: namespace.into(),
            name: self.name.clone(),
        })
    }
}
