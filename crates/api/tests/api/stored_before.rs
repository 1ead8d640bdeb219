//! Pipelines that were stored before the rules of today: what keeps their older form is accepted, so that Sluice can write
//! a status that says what to change.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_testkit::{WAIT_TIMEOUT, eventually, shared};

const GROUP: &str = "before.example.com";

/// Our definition of Pipelines in a group of its own, which no other test uses.
fn definition() -> CustomResourceDefinition {
    let mut definition = Pipeline::crd();
    definition.metadata.name = Some(format!("pipelines.{GROUP}"));
    definition.spec.group = GROUP.into();
    definition
}

async fn put(client: &Client, mut wanted: CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = wanted.metadata.name.clone().unwrap();
    match api.get_opt(&name).await.unwrap() {
        Some(stored) => {
            wanted.metadata.resource_version = stored.metadata.resource_version;
            api.replace(&name, &PostParams::default(), &wanted).await.unwrap();
        }
        None => drop(api.create(&PostParams::default(), &wanted).await.unwrap()),
    }
}

fn pipeline(name: &str, promotion: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Pipeline", "metadata": {"name": name},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}],
            "promotion": promotion,
        },
    });
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn a_stored_pipeline_of_an_older_form_can_be_labelled_and_gets_a_status() {
    let client = shared().await.unwrap().hub.client().await.unwrap();
    let mut lenient = definition();
    let any = JSONSchemaProps {
        type_: Some("object".into()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    lenient.spec.versions[0].schema = Some(CustomResourceValidation { open_api_v3_schema: Some(any) });
    put(&client, lenient).await;
    let kind = GroupVersionKind::gvk(GROUP, "v1alpha1", "Pipeline");
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
    let pull_request = |secret: Value| json!({"type": "github", "url": "https://github.com/acme/fleet", "baseBranch": "main", "secretRef": secret});
    let forms = [
        ("before-strategies", json!({"pull-request": pull_request(json!({"name": "git"}))})),
        ("notified", json!({"notification": {}})),
        ("of-the-rfc", json!({"pullRequest": {"url": "https://h/a", "branch": "main", "secretRef": "git"}})),
        ("called", json!({"webhook": {"url": "https://h/a", "secretRef": "key"}})),
        ("empty", json!({"strategy": {}})),
        ("without", json!({"manual": true})),
    ];
    for (name, promotion) in &forms {
        let create = async || Ok(api.create(&PostParams::default(), &pipeline(name, promotion)).await?);
        eventually(WAIT_TIMEOUT, create).await.unwrap();
    }
    put(&client, definition()).await;
    let is_refused = async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let created = api.create(&dry, &pipeline("new", &forms[0].1)).await;
        anyhow::ensure!(created.is_err(), "the rules of today do not count yet");
        Ok(())
    };
    eventually(WAIT_TIMEOUT, is_refused).await.unwrap();
    for (name, _) in &forms {
        let status = json!({"status": {"observedGeneration": 1}});
        let params = PatchParams::default();
        api.patch_status(name, &params, &Patch::Merge(&status)).await.unwrap();
        let labels = json!({"metadata": {"labels": {"team": "shop"}}});
        api.patch(name, &params, &Patch::Merge(&labels)).await.unwrap();
        // What changes the older form counts as new.
        let other = json!({"spec": {"promotion": {"pull-request": {"url": "https://other.example.com/a"}}}});
        assert!(api.patch(name, &params, &Patch::Merge(&other)).await.is_err(), "{name}");
    }
}
