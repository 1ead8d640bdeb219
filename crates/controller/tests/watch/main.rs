//! One watch against a real API server: what it lists and hears, and that nothing is missed when
//! the server goes and comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod hostile;
mod mock;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_controller::watch::limit::WatchLimits;
use sluice_controller::watch::stream::{Failure, ObjectEvent, ParsedObjectApi, follow};
use sluice_testkit::ControlPlane;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a watch of ConfigMaps adds up to: names and the value of `n`.
struct Follower {
    seen: UnboundedReceiver<ObjectEvent<(String, String)>>,
    known: BTreeMap<String, String>,
    lists: usize,
    failures: Vec<Failure>,
}

impl Follower {
    /// Follows the ConfigMaps of a namespace, or the one of a name.
    fn begin(client: Client, namespace: &str, name: Option<&str>) -> Self {
        let (tell, seen) = unbounded_channel();
        let api: ParsedObjectApi<ConfigMap> = Api::namespaced(client, namespace);
        let fields = name.map(|name| format!("metadata.name={name}"));
        let keep = |object: ConfigMap| {
            let value = object.data.as_ref()?.get("n")?.clone();
            Some((object.name_any(), value))
        };
        tokio::spawn(follow(api, fields, WatchLimits::hub("ConfigMaps"), keep, move |seen| {
            match tell.send(seen) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        }));
        Follower { seen, known: BTreeMap::new(), lists: 0, failures: Vec::new() }
    }

    /// Listens until what is known is as wanted.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) -> Result<()> {
        while !wanted(self) {
            let next = timeout(PATIENCE, self.seen.recv()).await;
            match next.with_context(|| format!("never {what}: {:?}", self.known))?.context("it ended")? {
                ObjectEvent::Listed(all, _) => {
                    self.lists += 1;
                    self.known = all.into_iter().collect();
                }
                ObjectEvent::Applied((name, value)) => drop(self.known.insert(name, value)),
                ObjectEvent::Deleted(metadata) => drop(self.known.remove(&metadata.name.unwrap_or_default())),
                ObjectEvent::Unreadable(bad) => anyhow::bail!("unreadable: {bad:?}"),
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
fn nothing_is_missed_while_the_server_goes_and_comes_back() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("one").await?;
        let client = cluster.client().await?;
        for name in ["a", "b", "gone"] {
            set(&client, "default", name, "1").await?;
        }
        let mut all = Follower::begin(cluster.client().await?, "default", None);
        let mut one = Follower::begin(cluster.client().await?, "default", Some("b"));
        all.until("listed", |f| f.lists == 1).await?;
        one.until("listed", |f| f.lists == 1).await?;
        ensure!(all.known.get("a").is_some_and(|v| v == "1") && all.known.contains_key("gone"));
        ensure!(one.known.keys().eq(["b"]), "{:?}", one.known);

        set(&client, "default", "a", "2").await?;
        set(&client, "default", "b", "2").await?;
        set(&client, "default", "c", "1").await?;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        api.delete("gone", &DeleteParams::default()).await?;
        all.until("heard of all four changes", |f| {
            let is = |name: &str, value: &str| f.known.get(name).is_some_and(|v| v == value);
            is("a", "2") && is("b", "2") && is("c", "1") && !f.known.contains_key("gone")
        })
        .await?;
        one.until("heard of b", |f| f.known["b"] == "2").await?;
        ensure!(one.known.len() == 1 && all.lists == 1 && one.lists == 1, "it listed more than once");

        cluster.stop();
        all.until("told that it fails", |f| !f.failures.is_empty()).await?;
        ensure!(all.failures.iter().any(|f| matches!(f, Failure::Watch(_))), "{:?}", all.failures);
        cluster.start().await?;
        set(&client, "default", "b", "3").await?;
        api.delete("c", &DeleteParams::default()).await?;
        all.until("up to date again", |f| f.known["b"] == "3" && !f.known.contains_key("c")).await?;
        one.until("up to date again", |f| f.known["b"] == "3").await?;

        // A server that is gone when the first question is asked is asked again.
        cluster.stop();
        let mut late = Follower::begin(client.clone(), "default", None);
        late.until("told that it fails", |f| !f.failures.is_empty()).await?;
        ensure!(matches!(late.failures[0], Failure::List(_)), "{:?}", late.failures);
        cluster.start().await?;
        late.until("listed", |f| f.lists == 1).await?;
        ensure!(late.known["b"] == "3");
        Ok(())
    })
}

/// Several megabytes in answers of which each is compressed, and objects that end anywhere in them.
#[test]
fn a_long_list_comes_whole() -> Result<()> {
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
        let mut all = Follower::begin(client, "default", None);
        all.until("listed", |f| f.lists == 1).await?;
        ensure!(expected.iter().all(|(name, value)| all.known.get(name) == Some(value)), "some are missing");
        Ok(())
    })
}
