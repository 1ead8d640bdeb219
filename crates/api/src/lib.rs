//! What Sluice reads from and writes to Kubernetes: its own kinds, and the few fields of other
//! projects' kinds that it looks at. Plain data; nothing here decides or talks to a server.

#![allow(clippy::duplicated_attributes, reason = "kube's derive takes one printcolumn for each column")]

pub mod cluster;
pub mod flux;
pub mod pipeline;
pub mod promotion;
pub mod workload;

pub use cluster::GitopsCluster;
pub use pipeline::{Pipeline, PipelineSpec, PipelineStatus};
pub use promotion::{Promotion, PromotionSpec, PromotionStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// The API group of Sluice's own kinds.
pub const GROUP: &str = "pipelines.weave.works";

/// The field manager under which Sluice writes, and the reporting controller of its events.
pub const FIELD_MANAGER: &str = "sluice";

/// Labels that make a Kustomization or HelmRelease in a target's namespace a member of the
/// pipeline that is the label's value. The first is Sluice's; the others are those of the documents
/// that came before it.
pub const MEMBER_LABELS: [&str; 3] = [
    "pipelines.weave.works/pipeline",
    "pipelines.wego.weave.works/pipeline",
    "pipelines.wego.weave.works/name",
];

/// The custom resource definitions that a hub cluster needs, in the order to apply them.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![Pipeline::crd(), Promotion::crd()];
    for crd in &mut crds {
        let annotations = crd.metadata.annotations.get_or_insert_default();
        // Flux would otherwise replace what looks like a variable in a field's description.
        annotations.insert("kustomize.toolkit.fluxcd.io/substitute".into(), "disabled".into());
        for version in &mut crd.spec.versions {
            if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
                drop_foreign_formats(schema);
            }
        }
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert("app.kubernetes.io/part-of".into(), "sluice".into());
    }
    crds
}

/// Kubernetes knows no format for unsigned numbers, and warns of it: their least value says the same.
fn drop_foreign_formats(schema: &mut JSONSchemaProps) {
    if schema.format.as_ref().is_some_and(|f| f.starts_with("uint")) {
        schema.format = None;
    }
    schema.properties.iter_mut().flat_map(|p| p.values_mut()).for_each(drop_foreign_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_foreign_formats(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(more)) = &mut schema.additional_properties {
        drop_foreign_formats(more);
    }
}
