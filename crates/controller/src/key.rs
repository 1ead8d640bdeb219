//! Names of objects on the hub.

use std::fmt;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use sluice_api::Promotion;

/// The namespace and name of a Pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for PipelineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PipelineKey {
    /// Returns the namespace and name of any object.
    pub(crate) fn named(metadata: &ObjectMeta) -> Self {
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        PipelineKey { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
    }

    /// Returns the key of the pipeline that a promotion belongs to.
    pub(crate) fn of_promotion(promotion: &Promotion) -> Self {
        PipelineKey {
            namespace: promotion.namespace().unwrap_or_default(),
            name: promotion.spec.pipeline.clone(),
        }
    }
}

/// Returns the resourceVersion of an object as a number, 0 if it has none. Later versions are greater, at every
/// API server (KEP-5504).
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Notes the version of a list. Returns true if the list before had a higher version: the API server was restored
/// from a backup in between.
pub(crate) fn went_back(listed_at: &mut u64, version: u64) -> bool {
    std::mem::replace(listed_at, version) > version
}
