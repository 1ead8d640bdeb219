//! A watch of a real API server: it reports all objects and changes, also those while the server was stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod by_namespace;
mod fake_api_server;
mod hostile;
mod hostile_tenant;
mod hub_kinds;
mod owned;
mod restricted_kubeconfig;
mod running_session;
mod wrong_answers;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_controller::watch::limit::WatchLimits;
use sluice_controller::watch::stream::{ObjectEvent, ParsedObjectApi, WatchFailure, follow};
use sluice_testkit::ControlPlane;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// The limit for each wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Follows ConfigMaps and keeps their state.
struct Follower {
    events: UnboundedReceiver<ObjectEvent<(String, String)>>,
    /// By name of a ConfigMap, the value of its key `n`.
    known: BTreeMap<String, String>,
    lists: usize,
    failures: Vec<WatchFailure>,
}

impl Follower {
    /// Follows the ConfigMaps of a namespace, or the one with this name.
    fn start(client: Client, namespace: &str, name: Option<&str>) -> Self {
        let (sender, events) = unbounded_channel();
        let api: ParsedObjectApi<ConfigMap> = Api::namespaced(client, namespace);
        let fields = name.map(|name| format!("metadata.name={name}"));
        let keep = |object: ConfigMap| {
            let value = object.data.as_ref()?.get("n")?.clone();
            Some((object.name_any(), value))
        };
        tokio::spawn(follow(api, fields, WatchLimits::hub("ConfigMaps"), keep, move |event| {
            match sender.send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        }));
        Follower { events, known: BTreeMap::new(), lists: 0, failures: Vec::new() }
    }

    /// Takes events until a condition is true.
    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<()> {
        while !condition(self) {
            let next = timeout(TIMEOUT, self.events.recv()).await;
            match next.with_context(|| format!("never {what}: {:?}", self.known))?.context("it ended")? {
                ObjectEvent::Listed(all, _) => {
                    self.lists += 1;
                    self.known = all.into_iter().collect();
                }
                ObjectEvent::Applied((name, value)) => drop(self.known.insert(name, value)),
                ObjectEvent::Deleted(metadata) => drop(self.known.remove(&metadata.name.unwrap_or_default())),
                ObjectEvent::Unreadable(object) => anyhow::bail!("unreadable: {object:?}"),
                ObjectEvent::LeftOut(namespace, _) => anyhow::bail!("left out: {namespace}"),
                ObjectEvent::Failed(failure) => self.failures.push(failure),
            }
        }
        Ok(())
    }
}

fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(test)
}

async fn set(client: &Client, namespace: &str, name: &str, value: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": value}});
    api.patch(name, &PatchParams::apply("test"), &Patch::Apply(object)).await?;
    Ok(())
}

#[test]
fn changes_are_reported_also_after_the_server_was_stopped() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("one").await?;
        let client = cluster.client().await?;
        for name in ["a", "b", "gone"] {
            set(&client, "default", name, "1").await?;
        }
        let mut all = Follower::start(cluster.client().await?, "default", None);
        let mut one = Follower::start(cluster.client().await?, "default", Some("b"));
        all.until("listed", |f| f.lists == 1).await?;
        one.until("listed", |f| f.lists == 1).await?;
        ensure!(all.known.get("a").is_some_and(|v| v == "1") && all.known.contains_key("gone"));
        ensure!(one.known.keys().eq(["b"]), "{:?}", one.known);

        set(&client, "default", "a", "2").await?;
        set(&client, "default", "b", "2").await?;
        set(&client, "default", "c", "1").await?;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        api.delete("gone", &DeleteParams::default()).await?;
        all.until("reported all four changes", |f| {
            let is = |name: &str, value: &str| f.known.get(name).is_some_and(|v| v == value);
            is("a", "2") && is("b", "2") && is("c", "1") && !f.known.contains_key("gone")
        })
        .await?;
        one.until("reported the change of b", |f| f.known["b"] == "2").await?;
        ensure!(one.known.len() == 1 && all.lists == 1 && one.lists == 1, "it listed more than once");

        cluster.stop();
        all.until("reported a failure", |f| !f.failures.is_empty()).await?;
        ensure!(all.failures.iter().any(|f| matches!(f, WatchFailure::Watch(_))), "{:?}", all.failures);
        cluster.start().await?;
        set(&client, "default", "b", "3").await?;
        api.delete("c", &DeleteParams::default()).await?;
        all.until("up to date again", |f| f.known["b"] == "3" && !f.known.contains_key("c")).await?;
        one.until("up to date again", |f| f.known["b"] == "3").await?;

        // The first list is retried while the server is stopped.
        cluster.stop();
        let mut late = Follower::start(client.clone(), "default", None);
        late.until("reported a failure", |f| !f.failures.is_empty()).await?;
        ensure!(matches!(late.failures[0], WatchFailure::List(_)), "{:?}", late.failures);
        cluster.start().await?;
        late.until("listed", |f| f.lists == 1).await?;
        ensure!(late.known["b"] == "3");
        Ok(())
    })
}

/// A list of several megabytes, which the server sends compressed and in pieces that end in the middle of objects.
#[test]
fn a_long_list_is_read_completely() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("long").await?;
        let client = cluster.client().await?;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let text = |n: usize| format!("{n}: {}", "}]{[\",\\\" é ".repeat(n * 40));
        let mut expected = BTreeMap::new();
        for n in 0..200 {
            let object: ConfigMap = serde_json::from_value(json!({
                "metadata": {"name": format!("long-{n}")}, "data": {"n": text(n)}}))?;
            api.create(&PostParams::default(), &object).await?;
            expected.insert(format!("long-{n}"), text(n));
        }
        let mut all = Follower::start(client, "default", None);
        all.until("listed", |f| f.lists == 1).await?;
        ensure!(expected.iter().all(|(name, value)| all.known.get(name) == Some(value)), "some are missing");
        Ok(())
    })
}
