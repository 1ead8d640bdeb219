//! The namespaces and names of Pipelines and Promotions, by which everything about them is kept.

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

    /// Returns the key of the pipeline that a promotion belongs to: its owner, or without an owner the pipeline that its
    /// spec names. Without the rules of the CRDs somebody can change that name, and the owner then finds the change.
    pub(crate) fn of_promotion(promotion: &Promotion) -> Self {
        let named = &promotion.spec.pipeline;
        let owners = promotion.owner_references().iter().filter(|owner| owner.kind == "Pipeline");
        let mut owners = owners.map(|owner| &owner.name);
        let first = owners.clone().next();
        let name = owners.find(|owner| *owner == named).or(first).unwrap_or(named);
        PipelineKey { namespace: promotion.namespace().unwrap_or_default(), name: name.clone() }
    }

    /// Returns the key of a promotion of this pipeline.
    pub(crate) fn promotion(&self, name: &str) -> PromotionKey {
        PromotionKey { namespace: self.namespace.clone(), name: name.into() }
    }
}

/// The namespace and name of a Promotion. The name alone does not identify it: a tenant can create a Promotion with the name
/// of one in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromotionKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}
