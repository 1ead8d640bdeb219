//! The columns of `kubectl get`.

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, Request};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::shared;

/// Returns the table that `kubectl get` prints: the names of the columns that are always shown, and the cells of the first
/// row.
async fn table(client: &kube::Client, namespace: &str, plural: &str) -> (Vec<String>, Vec<Value>) {
    let path = format!("/apis/pipelines.weave.works/v1alpha1/namespaces/{namespace}/{plural}");
    let mut request = Request::new(path).list(&ListParams::default()).unwrap();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap();
    request.headers_mut().insert("accept", accept);
    let table: Value = client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let always: Vec<usize> = (0..columns.len()).filter(|i| columns[*i]["priority"] == 0).collect();
    let name = |i: &usize| columns[*i]["name"].as_str().unwrap().to_string();
    let cell = |i: &usize| table["rows"][0]["cells"][*i].clone();
    (always.iter().map(name).collect(), always.iter().map(cell).collect())
}

#[tokio::test]
async fn a_list_of_pipelines_shows_revisions_and_promotions() {
    let hub = &shared().await.unwrap().hub;
    hub.namespace("shown").await.unwrap();
    let client = hub.client().await.unwrap();
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "shown");
    let pipeline = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "search"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [{"name": "dev", "targets": [{"namespace": "apps"}]}],
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(pipeline).unwrap()).await.unwrap();
    let status = json!({"status": {
        "summary": {"environments": "dev:6.1.8", "promoting": "6.1.8→prod Proposed"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "",
            "lastTransitionTime": "2026-11-21T09:00:00Z"}],
    }});
    api.patch_status("search", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (columns, cells) = table(&client, "shown", "pipelines").await;
    assert_eq!(columns, ["Name", "Application", "Environments", "Ready", "Promoting", "Age"]);
    assert_eq!(cells[..5], ["search", "podinfo", "dev:6.1.8", "True", "6.1.8→prod Proposed"]);
}

#[tokio::test]
async fn a_list_of_promotions_shows_revisions_and_phases() {
    let hub = &shared().await.unwrap().hub;
    hub.namespace("shown-promotions").await.unwrap();
    let client = hub.client().await.unwrap();
    let api: Api<Promotion> = Api::namespaced(client.clone(), "shown-promotions");
    let promotion = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "search-prod-1"},
        "spec": {"pipeline": "search", "environment": "prod", "revision": "6.1.8",
            "facets": {"HelmRelease/podinfo:chart": "6.1.8"}},
    });
    api.create(&PostParams::default(), &serde_json::from_value(promotion).unwrap()).await.unwrap();
    let status = json!({"status": {"phase": "Proposed"}});
    api.patch_status("search-prod-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (columns, cells) = table(&client, "shown-promotions", "promotions").await;
    assert_eq!(columns, ["Name", "Pipeline", "Environment", "Revision", "Phase", "Age"]);
    assert_eq!(cells[..5], ["search-prod-1", "search", "prod", "6.1.8", "Proposed"]);
}

#[tokio::test]
async fn the_kinds_have_short_names() {
    let client = shared().await.unwrap().hub.client().await.unwrap();
    let served = client.list_api_group_resources("pipelines.weave.works/v1alpha1").await.unwrap();
    let short = |kind: &str| {
        let found = served.resources.iter().find(|r| r.kind == kind && !r.name.contains('/')).unwrap();
        found.short_names.clone().unwrap_or_default()
    };
    assert_eq!(short("Pipeline"), ["pl"]);
    assert_eq!(short("Promotion"), ["promo"]);
}
