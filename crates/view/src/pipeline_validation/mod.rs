//! Whether an API server accepts a manifest of a Pipeline: metadata, schema and rules, from the definitions in the binary.

mod cel_rule;
mod metadata;
mod schema;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::Resource;
use serde_json::Value;
use sluice_api::Pipeline;

pub use schema::SchemaProblem;

/// The schema of Pipelines.
static SCHEMA: LazyLock<Option<JSONSchemaProps>> = LazyLock::new(|| {
    let crd = sluice_api::all_crds().into_iter().find(|crd| crd.spec.names.kind == Pipeline::kind(&()))?;
    crd.spec.versions.into_iter().find_map(|version| version.schema?.open_api_v3_schema)
});

/// Returns the problems for which an API server refuses an object as a Pipeline. The object is changed as an API server
/// and kubectl change it before they check it.
pub fn problems(object: &mut Value) -> Vec<SchemaProblem> {
    metadata::normalize(object);
    let mut problems = metadata::problems(object, &Pipeline::api_version(&()));
    if let Some(schema) = &*SCHEMA {
        problems.extend(schema::problems(schema, object));
    }
    problems
}
