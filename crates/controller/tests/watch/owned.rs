//! A session reads what a Flux object owns directly from the API server.

use std::collections::BTreeSet;

use std::convert::Infallible;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::{once, pending, repeat};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_controller::ObserveScope;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_core::fleet::fact::Owned;
use sluice_core::fleet::owned_check::FoundObject;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, Kind, ObjectKey};
use sluice_testkit::ControlPlane;

use crate::fake_api_server;
use crate::run;
use crate::running_session::RunningSession;

fn key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: "default".into(), name: name.into() }
}

/// Waits until a session has listed the Deployments.
async fn until_listed(session: &mut RunningSession) -> Result<()> {
    session.first(|event| matches!(event, ClusterEvent::Listed(Kind::Deployment, ..)).then_some(())).await
}

/// Returns a Deployment whose labels name a Kustomization as owner.
fn deployment(name: &str, owner: &str) -> Result<Deployment> {
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "default"});
    let pod = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": pod});
    Ok(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?)
}

#[test]
fn the_current_generations_of_owned_objects_are_read() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("owned").await?;
        let client = cluster.client().await?;
        let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
        for (name, owner) in [("web", "shop"), ("worker", "shop"), ("other", "blog")] {
            api.create(&PostParams::default(), &deployment(name, owner)?).await?;
        }
        let mut session =
            RunningSession::start(client, "owned", ObserveScope::Targets, ObservedMemory::new(64 << 20));
        until_listed(&mut session).await?;
        let read = async |session: &mut RunningSession, number| -> Result<Vec<FoundObject>> {
            session.owned_reads.add(OwnedRead {
                owner: key(Kind::Kustomization, "shop"),
                owned: Owned::Inventory(
                    ["web", "worker", "other"].map(|name| key(Kind::Deployment, name)).into_iter().collect(),
                ),
                scopes: BTreeSet::from([(Kind::Deployment, "default".to_string())]),
                number,
            });
            let answer = session.first(|event| match event {
                ClusterEvent::OwnedWasRead(_, of, found) if of == number => Some(found),
                _ => None,
            });
            answer.await?.map_err(anyhow::Error::msg)
        };
        let before = read(&mut session, 1).await?;
        let names: Vec<&str> = before.iter().map(|(key, _)| key.name.as_str()).collect();
        ensure!(names == ["web", "worker"], "{before:?}");
        ensure!(before.iter().all(|(_, version)| version.generation == 1), "{before:?}");
        let change = Patch::Merge(json!({"spec": {"replicas": 3}}));
        api.patch("web", &PatchParams::default(), &change).await?;
        let after = read(&mut session, 2).await?;
        let web = after.iter().find(|(key, _)| key.name == "web").context("web is gone")?;
        ensure!(web.1.generation == 2 && web.1.uid == before[0].1.uid, "{after:?}");
        Ok(())
    })
}

fn json_answer(body: Body) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Answers as a cluster without objects.
fn empty(request: &Request) -> Response {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    match path {
        "/version" => json_answer("{}".into()),
        "/apis" => json_answer(
            r#"{"groups":[{"name":"apps","preferredVersion":{"version":"v1"},"versions":[{"version":"v1"}]}]}"#.into(),
        ),
        "/apis/apps/v1" => json_answer(r#"{"resources":[{"name":"deployments"}]}"#.into()),
        _ if query.contains("watch") => json_answer(Body::from_stream(pending::<Result<Bytes, Infallible>>())),
        _ => json_answer(r#"{"kind":"List","metadata":{"resourceVersion":"5"},"items":[]}"#.into()),
    }
}

/// Whether a request asks for the objects of one owner.
fn is_of_owner(request: &Request) -> bool {
    request.uri().query().is_some_and(|query| query.contains("labelSelector"))
}

/// A cluster that lists Deployments without end if it is asked for those of one owner.
fn endless(request: &Request) -> Response {
    if !is_of_owner(request) {
        return empty(request);
    }
    let chunk = |text: &'static str| Ok::<_, Infallible>(Bytes::from_static(text.as_bytes()));
    let start = once(async move { chunk(r#"{"metadata":{"resourceVersion":"5"},"items":["#) });
    let annotations = json!({"text": "x".repeat(1000)});
    let object = json!({"metadata": {"name": "web", "namespace": "default", "annotations": annotations}});
    let object = Ok(Bytes::from(format!("{object},")));
    json_answer(Body::from_stream(start.chain(repeat(object))))
}

/// Returns a read of the Deployment of a Kustomization.
fn read_of(namespace: &str, owner: &str) -> OwnedRead {
    let key = |kind, name: &str| ObjectKey { kind, namespace: namespace.into(), name: name.into() };
    OwnedRead {
        owner: key(Kind::Kustomization, owner),
        owned: Owned::Inventory([key(Kind::Deployment, "web")].into_iter().collect()),
        scopes: BTreeSet::from([(Kind::Deployment, namespace.to_string())]),
        number: 1,
    }
}

#[test]
fn slow_reads_of_one_namespace_leave_a_slot_to_others() -> Result<()> {
    run(async {
        // Reads of `first` are answered after the read of `last` has come.
        let (sender, receiver) = tokio::sync::watch::channel(false);
        let app = Router::new().fallback(move |request: Request| {
            let (sender, mut receiver) = (sender.clone(), receiver.clone());
            async move {
                if is_of_owner(&request) && request.uri().path().contains("/namespaces/last/") {
                    sender.send_replace(true);
                } else if is_of_owner(&request) {
                    let _ = receiver.wait_for(|has_come| *has_come).await;
                }
                empty(&request)
            }
        });
        let config = fake_api_server::start(app).await?;
        let (client, memory) = (Client::try_from(config)?, ObservedMemory::new(64 << 20));
        let mut session = RunningSession::start(client, "slow", ObserveScope::Targets, memory);
        until_listed(&mut session).await?;
        for i in 0..20 {
            session.owned_reads.add(read_of("first", &format!("app-{i}")));
        }
        session.owned_reads.add(read_of("last", "app"));
        for _ in 0..21 {
            session
                .first(|event| match event {
                    ClusterEvent::OwnedWasRead(_, _, found) => Some(found),
                    _ => None,
                })
                .await?
                .map_err(anyhow::Error::msg)?;
        }
        Ok(())
    })
}

#[test]
fn an_endless_answer_about_owned_objects_has_an_end() -> Result<()> {
    run(async {
        let app = Router::new().fallback(|request: Request| async move { endless(&request) });
        let config = fake_api_server::start(app).await?;
        let (client, memory) = (Client::try_from(config)?, ObservedMemory::new(64 << 20));
        let mut session = RunningSession::start(client, "endless", ObserveScope::Targets, memory);
        until_listed(&mut session).await?;
        session.owned_reads.add(read_of("default", "shop"));
        let answer = session.first(|event| match event {
            ClusterEvent::OwnedWasRead(_, _, found) => Some(found),
            _ => None,
        });
        let Err(error) = answer.await? else { anyhow::bail!("it was read") };
        ensure!(error.contains("its list has more than 16 MiB"), "{error}");
        Ok(())
    })
}
