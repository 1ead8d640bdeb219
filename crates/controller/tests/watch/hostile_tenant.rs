//! A tenant of a cluster who may do everything in namespaces of its own. The objects of other namespaces are still seen.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::stream::{StreamExt, iter};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sluice_controller::ObserveScope;
use sluice_controller::watch::limit::WatchLimits;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_controller::watch::stream::{ObjectEvent, ParsedObjectApi, follow};
use sluice_core::fleet::{ClusterEvent, Kind};
use sluice_testkit::ControlPlane;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use crate::fake_api_server;
use crate::running_session::RunningSession;
use crate::{TIMEOUT, run};

fn deployment(name: &str, annotation: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "annotations": {"a": annotation}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}})
}

async fn create(client: &Client, namespace: &str, object: Value) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn create_namespaces(client: &Client, names: &[&str]) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    for name in names {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        api.create(&PostParams::default(), &namespace).await?;
    }
    Ok(())
}

/// A deployment that etcd accepts, and whose JSON text has more bytes than Sluice parses: each of these characters takes
/// six bytes there.
fn huge_deployment(name: &str) -> Value {
    let mut huge = deployment(name, "");
    let arguments = vec!["<".repeat(100_000); 10];
    huge["spec"]["template"]["spec"]["containers"][0]["args"] = json!(arguments);
    huge
}

/// Waits until the session reports a deployment of `apps`, by its list or its watch. Fails if the kind is too large.
async fn sees(session: &mut RunningSession, name: &str) -> Result<()> {
    let is_it = |key: &sluice_core::fleet::ObjectKey| {
        key.kind == Kind::Deployment && key.namespace == "apps" && key.name == name
    };
    let seen = session.first(|event| match event {
        ClusterEvent::Listed(_, _, all) => all.iter().any(|(key, _)| is_it(key)).then_some(Ok(())),
        ClusterEvent::Applied(key, _) => is_it(&key).then_some(Ok(())),
        ClusterEvent::TooLarge(_, _, why) | ClusterEvent::Unreadable(Kind::Deployment, _, why) => {
            Some(Err(why))
        }
        _ => None,
    });
    seen.await?.map_err(anyhow::Error::msg)
}

#[test]
fn an_object_of_any_size_stops_neither_list_nor_watch_of_its_kind() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("shared").await?;
        let client = cluster.client().await?;
        create_namespaces(&client, &["apps", "eve"]).await?;
        create(&client, "apps", deployment("first", "")).await?;
        let start = |client| {
            RunningSession::start(client, "shared", ObserveScope::All, ObservedMemory::new(128 << 20))
        };
        let mut session = start(client.clone());
        sees(&mut session, "first").await?;
        let of_eve: Api<Deployment> = Api::namespaced(client.clone(), "eve");
        // By default, Sluice parses no object with so many values.
        create(&client, "eve", deployment("commas", &",".repeat(65_000))).await?;
        create(&client, "eve", huge_deployment("huge")).await?;
        create(&client, "apps", deployment("second", "")).await?;
        sees(&mut session, "second").await?;
        let mut later = start(client.clone());
        sees(&mut later, "second").await?;
        for name in ["commas", "huge"] {
            of_eve.delete(name, &DeleteParams::default()).await?;
        }
        create(&client, "apps", deployment("third", "")).await?;
        sees(&mut session, "third").await?;
        sees(&mut later, "third").await
    })
}

#[test]
fn an_api_server_leaves_out_the_namespaces_of_a_selector() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("selector").await?;
        let client = cluster.client().await?;
        create_namespaces(&client, &["apps", "eve", "mallory"]).await?;
        for namespace in ["apps", "eve", "mallory"] {
            create(&client, namespace, deployment("listed", "")).await?;
        }
        let (sender, mut events) = unbounded_channel();
        let api: ParsedObjectApi<Deployment> = Api::all(client.clone());
        let without = "metadata.namespace!=eve,metadata.namespace!=mallory".to_string();
        let name = |object: Deployment| Some((object.namespace().unwrap_or_default(), object.name_any()));
        tokio::spawn(follow(api, Some(without), WatchLimits::hub("deployments"), name, move |event| {
            match sender.send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        }));
        let Some(ObjectEvent::Listed(listed, _)) = timeout(TIMEOUT, events.recv()).await? else {
            anyhow::bail!("no list");
        };
        ensure!(listed == [("apps".to_string(), "listed".to_string())], "{listed:?}");
        for namespace in ["eve", "mallory", "apps"] {
            create(&client, namespace, deployment("changed", "")).await?;
        }
        let event = timeout(TIMEOUT, events.recv()).await?;
        ensure!(
            matches!(&event, Some(ObjectEvent::Applied((namespace, _))) if namespace == "apps"),
            "{event:?}"
        );
        Ok(())
    })
}

/// The lines of a watch, in which the deployments of a namespace change.
fn changes(namespace: &'static str, count: usize) -> Bytes {
    let line = |n: usize| {
        let mut object = deployment(&format!("web-{}", n % 10), "");
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["resourceVersion"] = (n + 10).to_string().into();
        json!({"type": "MODIFIED", "object": object}).to_string() + "\n"
    };
    (0..count).map(line).collect::<String>().into()
}

/// Answers as an API server in which the deployments of `eve` change without end, unless the request leaves them out.
fn answer(request: &Request, requests_without_eve: &AtomicUsize) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let leaves_out =
        query.contains("metadata.namespace%21%3Deve") || query.contains("metadata.namespace!%3Deve");
    let list = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
    let stream = match (request.uri().path(), query.contains("watch")) {
        ("/version", _) => return "{}".into_response(),
        ("/apis", _) => return r#"{"groups":[]}"#.into_response(),
        (_, false) => return list.into_response(),
        (path, _) if !path.ends_with("/deployments") => futures::stream::pending().boxed(),
        _ if leaves_out => {
            requests_without_eve.fetch_add(1, Ordering::Relaxed);
            iter([changes("apps", 1)]).chain(futures::stream::pending()).boxed()
        }
        _ => futures::stream::repeat(changes("eve", 1000)).boxed(),
    };
    Body::from_stream(stream.map(Ok::<_, Infallible>)).into_response()
}

#[test]
fn a_namespace_whose_objects_change_without_end_is_left_out() -> Result<()> {
    run(async {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answers =
            Router::new().fallback(move |request: Request| async move { answer(&request, &counted) });
        let client = Client::try_from(fake_api_server::start(answers).await?)?;
        let memory = ObservedMemory::new(128 << 20);
        let mut session = RunningSession::start(client, "shared", ObserveScope::All, memory);
        let why = session.first(|event| match event {
            ClusterEvent::TooLarge(Kind::Deployment, Some(namespace), why) if namespace == "eve" => {
                Some(Ok(why))
            }
            ClusterEvent::TooLarge(_, _, why) | ClusterEvent::Unreadable(_, _, why) => Some(Err(why)),
            _ => None,
        });
        let why = timeout(TIMEOUT + Duration::from_secs(60), why).await??.map_err(anyhow::Error::msg)?;
        ensure!(why.contains("eve") && why.contains("changes a second"), "{why}");
        sees(&mut session, "web-0").await?;
        ensure!(asked.load(Ordering::Relaxed) == 1, "{asked:?}");
        Ok(())
    })
}
