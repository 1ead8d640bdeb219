//! Our types can read all objects that the definitions accept: each field gets unusual values, one at a time, and every
//! object that the API server accepts must be readable. The controller would ignore an unreadable object silently.

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::Client;
use kube::api::{PostParams, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sluice_api::{Pipeline, Promotion, all_crds};
use sluice_testkit::shared;

/// One field of an object.
type Place = Vec<String>;

fn schema(kind: &str) -> JSONSchemaProps {
    let crd = all_crds().into_iter().find(|c| c.spec.names.kind == kind).unwrap();
    crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
}

fn below(schema: &JSONSchemaProps) -> Vec<(String, &JSONSchemaProps)> {
    let fields = schema.properties.iter().flatten().map(|(name, field)| (name.clone(), field));
    let items = match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(("0".to_string(), items.as_ref())),
        _ => None,
    };
    let more = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(more)) => Some(("dev".to_string(), more.as_ref())),
        _ => None,
    };
    fields.chain(items).chain(more).collect()
}

/// Returns all fields below one, at any depth.
fn places(schema: &JSONSchemaProps, at: &Place, all: &mut Vec<Place>) {
    for (step, field) in below(schema) {
        let place = [at.as_slice(), &[step]].concat();
        all.push(place.clone());
        places(field, &place, all);
    }
}

/// Returns the smallest valid value.
fn example(schema: &JSONSchemaProps) -> Value {
    if let Some(first) = schema.enum_.iter().flatten().next() {
        return first.0.clone();
    }
    match schema.type_.as_deref() {
        Some("object") => {
            let wanted = schema.required.iter().flatten();
            let field = |name: &String| (name.clone(), example(&schema.properties.as_ref().unwrap()[name]));
            Value::Object(wanted.map(field).collect())
        }
        Some("array") => Value::Array(below(schema).into_iter().map(|(_, items)| example(items)).collect()),
        Some("boolean") => false.into(),
        Some("integer") => 1.into(),
        _ if schema.format.is_some() || schema.pattern.is_some() => "2026-11-21T09:00:00Z".into(),
        _ => "a".into(),
    }
}

/// Sets a value at a path, with the required values around it.
fn put(object: &mut Value, schema: &JSONSchemaProps, place: &[String], value: Value) {
    let Some((step, rest)) = place.split_first() else {
        *object = value;
        return;
    };
    if step == "strategy" {
        // Only one of several may be present.
        object[step] = json!({});
    }
    let below = below(schema);
    let (_, field) = below.iter().find(|(name, _)| name == step).unwrap();
    let next = match object {
        Value::Array(items) => {
            if items.is_empty() {
                items.push(example(field));
            }
            &mut items[0]
        }
        object => {
            if !object.is_object() {
                *object = Value::Object(Map::new());
            }
            object.as_object_mut().unwrap().entry(step.clone()).or_insert_with(|| example(field))
        }
    };
    put(next, field, rest, value);
}

fn odd_values() -> Vec<Value> {
    let numbers = ["-1", "0", "128", "2147483648", "4294967295", "4294967296", "9007199254740992"];
    let larger = ["9223372036854775808", "18446744073709551616", "1e20", "-1e20", "1.0", "1.5", "2e3"];
    let texts = [
        "",
        "1",
        "100%",
        "0%",
        "1e3",
        "null",
        "dev",
        "github",
        "2026-02-30T09:00:00Z",
        "2026-11-21T23:59:60Z",
        "2026-11-21t09:00:00z",
        "2026-11-21T09:00:00+23:59",
        "2026-11-21T09:00:00.123456789123Z",
        "9999-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "12026-11-21T09:00:00Z",
        "2026-11-21 09:00:00Z",
        "2026-11-21T09:00:00",
        "2026-11-21T09:00:00+0200",
        "2026-11-21T09:00Z",
        "2026-11-21",
    ];
    let numbers = numbers.iter().chain(&larger).map(|n| serde_json::from_str(n).unwrap());
    let others =
        [Value::Null, true.into(), json!([]), json!({}), json!([null]), json!({"x": null}), json!({"x": 1})];
    numbers.chain(texts.map(Value::from)).chain(others).collect()
}

/// A dry-run request with a field's value.
struct Judge {
    client: Client,
    url: String,
    /// The object whose status is written; `None` if a new object is created.
    name: Option<String>,
}

impl Judge {
    async fn admits(&self, object: &Value) -> Option<Value> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let (request, body) = (Request::new(&self.url), serde_json::to_vec(object).unwrap());
        let request = match &self.name {
            Some(name) => request.replace_subresource("status", name, &params, body),
            None => request.create(&params, body),
        };
        self.client.request(request.unwrap()).await.ok()
    }
}

/// Sends each value at each path below `part`, and reads the accepted objects.
async fn all_admitted_is_read<K: DeserializeOwned>(kind: &str, mut base: Value, part: &str) {
    let hub = &shared().await.unwrap().hub;
    let namespace = format!("admitted-{}-{part}", kind.to_lowercase());
    hub.namespace(&namespace).await.unwrap();
    let client = hub.client().await.unwrap();
    let url = format!("/apis/pipelines.weave.works/v1alpha1/namespaces/{namespace}/{}s", kind.to_lowercase());
    let mut judge = Judge { client: client.clone(), url: url.clone(), name: None };
    assert!(judge.admits(&base).await.is_some(), "the base itself is refused");
    if part == "status" {
        // A status belongs to a stored object.
        let body = serde_json::to_vec(&base).unwrap();
        let request = Request::new(&url).create(&PostParams::default(), body).unwrap();
        base = client.request(request).await.unwrap();
        judge.name = base["metadata"]["name"].as_str().map(String::from);
    }
    let schema = schema(kind);
    let mut all = Vec::new();
    places(&schema.properties.as_ref().unwrap()[part], &vec![part.to_string()], &mut all);
    let tries = all.iter().flat_map(|place| odd_values().into_iter().map(move |value| (place, value)));
    let tried = futures::stream::iter(tries).map(async |(place, value)| {
        let mut object = base.clone();
        put(&mut object, &schema, place, value.clone());
        let read = judge.admits(&object).await.map(serde_json::from_value::<K>);
        read.map(|read| read.map(drop).map_err(|why| format!("{}: {value}: {why}", place.join("."))))
    });
    let admitted: Vec<_> = tried.buffer_unordered(8).filter_map(async |read| read).collect().await;
    let unreadable: Vec<_> = admitted.iter().filter_map(|read| read.as_ref().err()).collect();
    assert!(unreadable.is_empty(), "let in and not readable: {unreadable:#?}");
    // If nothing is accepted, the test proves nothing.
    assert!(admitted.len() > all.len(), "{} values for {} places", admitted.len(), all.len());
}

fn pipeline() -> Value {
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {
            "environments": [{"name": "dev", "targets": [{"namespace": "apps"}]}],
            "promotion": {"strategy": {"notification": {}}},
        },
    })
}

fn promotion() -> Value {
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": "podinfo"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"chart": "1"}},
    })
}

#[tokio::test]
async fn admitted_pipelines_are_readable() {
    all_admitted_is_read::<Pipeline>("Pipeline", pipeline(), "spec").await;
}

#[tokio::test]
async fn admitted_pipeline_statuses_are_readable() {
    all_admitted_is_read::<Pipeline>("Pipeline", pipeline(), "status").await;
}

#[tokio::test]
async fn admitted_promotions_are_readable() {
    all_admitted_is_read::<Promotion>("Promotion", promotion(), "spec").await;
}

#[tokio::test]
async fn admitted_promotion_statuses_are_readable() {
    all_admitted_is_read::<Promotion>("Promotion", promotion(), "status").await;
}
