//! The custom resource definitions of Sluice's kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::pipeline::Pipeline;
use crate::promotion::Promotion;
use crate::promotion::spec_rules;

/// Returns the custom resource definitions that a hub cluster needs, in the order to apply them.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![Pipeline::crd(), Promotion::crd()];
    for crd in &mut crds {
        let annotations = crd.metadata.annotations.get_or_insert_default();
        // Without it, Flux replaces texts that look like variables in the descriptions of fields.
        annotations.insert("kustomize.toolkit.fluxcd.io/substitute".into(), "disabled".into());
        for version in &mut crd.spec.versions {
            if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
                bound_numbers(schema);
                if crd.spec.names.kind == "Promotion" {
                    spec_rules::add(schema);
                }
            }
        }
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert("app.kubernetes.io/part-of".into(), "sluice".into());
    }
    crds
}

/// The largest integer that every reader of JSON represents exactly.
const MAX_JSON_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Replaces the formats of integers by bounds. Kubernetes warns about the formats of unsigned integers and does not enforce
/// any format, but it enforces bounds: it refuses numbers that do not fit into our types.
fn bound_numbers(schema: &mut JSONSchemaProps) {
    let (least, most) = match schema.format.as_deref() {
        Some("uint32") => (0.0, f64::from(u32::MAX)),
        Some("uint64") => (0.0, MAX_JSON_INTEGER),
        Some("int64") => (-MAX_JSON_INTEGER, MAX_JSON_INTEGER),
        _ => (f64::MIN, f64::MAX),
    };
    if least > f64::MIN {
        schema.format.take_if(|format| format.starts_with("uint"));
        schema.minimum = Some(schema.minimum.unwrap_or(least));
        schema.maximum = Some(schema.maximum.unwrap_or(most));
    }
    schema.properties.iter_mut().flat_map(|p| p.values_mut()).for_each(bound_numbers);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        bound_numbers(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(more)) = &mut schema.additional_properties {
        bound_numbers(more);
    }
}
