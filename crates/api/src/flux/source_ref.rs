//! References to sources.

use serde::{Deserialize, Serialize};

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
