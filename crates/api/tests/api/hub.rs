//! An API server that validates Pipelines strictly, as for `kubectl apply`.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::Value;
use sluice_api::Pipeline;
use sluice_testkit::{parse_yaml, shared};

/// Validates a Pipeline by a dry-run request.
///
/// # Errors
/// The message of the API server.
pub async fn validate(pipeline: &Value) -> Result<DynamicObject, String> {
    let client = shared().await.expect("the API server starts").hub.client().await.unwrap();
    let resource = ApiResource::erase::<Pipeline>(&());
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let params = PatchParams { dry_run: true, ..PatchParams::apply("test").validation_strict() };
    let name = pipeline["metadata"]["name"].as_str().unwrap();
    // The namespace does not matter here.
    let mut object = pipeline.clone();
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    api.patch(name, &params, &Patch::Apply(object)).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => panic!("the API server did not answer: {other}"),
    })
}

/// Validates each Pipeline of a YAML text.
///
/// # Errors
/// The message of the API server about the first refused Pipeline.
pub async fn validate_yaml(yaml: &str) -> Result<(), String> {
    let objects = parse_yaml(yaml).unwrap();
    assert!(!objects.is_empty());
    for object in objects {
        validate(&object).await?;
    }
    Ok(())
}
