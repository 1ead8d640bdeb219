//! Repositories at many hosts that never answer, and connections that stay open at the port of the metrics: the controller and
//! its git processes take at most 512 MiB, the metrics can be read, and a Pipeline in another namespace is promoted within 30 s.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use sluice_api::promotion::{Phase, Promotion};
use sluice_testkit::{Shared, eventually, shared_gitea};
use tokio::net::{TcpListener, TcpStream};

use crate::crash::marked;
use crate::hostile::{self, commits_to, most_memory_during, promote_sound};
use crate::place::TestNamespace;
use crate::process::Controller;
use crate::{releases, run};

/// How many hosts, each with the repository of one Pipeline: more than Sluice keeps clients for.
const HOSTS: u8 = 100;
/// How many connections stay open at the port of the metrics: more than it accepts.
const HELD: usize = 600;
/// Within which time the first delivery to each host has failed. Not all at the same time may run git.
const UNTIL_ALL_HAVE_FAILED: Duration = Duration::from_secs(240);

/// Returns a Pipeline that commits to a repository. All promote the same application.
fn pipeline(namespace: &str, number: u8, url: &str) -> String {
    let environment = |name: &str| {
        let cluster = json!({"kind": "GitopsCluster", "name": name});
        json!({"name": name, "targets": [{"namespace": namespace, "clusterRef": cluster}]})
    };
    let environments = ["dev", "prod"].map(environment);
    let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "shared"});
    let strategy = json!({"commit": {"url": url, "branch": "main"}});
    json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": format!("host-{number}"), "namespace": namespace},
        "spec": {"appRef": app, "environments": environments, "promotion": {"strategy": strategy}}})
    .to_string()
}

/// A host that accepts connections and never answers.
async fn silent_host(number: u8) -> Result<String> {
    let listener = TcpListener::bind(format!("127.0.0.{number}:0")).await?;
    let url = format!("http://{}/fleet.git", listener.local_addr()?);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    Ok(url)
}

#[test]
fn many_silent_hosts_and_held_connections_delay_no_promotion_and_do_not_exhaust_memory() -> Result<()> {
    run(async {
        // Own servers, since the controller must see both namespaces, and none of other tests.
        let shared = Box::leak(Box::new(Shared::start().await?));
        let place = TestNamespace::on(shared, "sound").await?;
        let hostile = TestNamespace::on(shared, "hosts").await?;
        let n = place.namespace.as_str();
        let repo =
            shared_gitea().await?.create_repo(n, &[("app.yaml", &marked(n, "sound", "1.0.0"))]).await?;
        place.forge_secret().await?;
        commits_to(&place, "sound", &repo).await?;
        for (environment, version) in [("dev", "2.0.0"), ("prod", "1.0.0")] {
            let leaf = hostile.leaf(environment);
            releases::create_running(leaf, &hostile.namespace, "shared", version).await?;
        }
        for number in 2..HOSTS + 2 {
            hostile.apply(&pipeline(&hostile.namespace, number, &silent_host(number).await?)).await?;
        }
        let metrics = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let controller = Controller::start(&shared.hub, "", &[&format!("--metrics-addr={metrics}")])?;
        eventually(UNTIL_ALL_HAVE_FAILED, || async {
            let all = hostile.promotions().list(&ListParams::default()).await?;
            let is_other = |p: &&Promotion| {
                (&*p.spec.environment, &*p.spec.revision, p.phase()) != ("prod", "2.0.0", Phase::Promoting)
            };
            let others: Vec<_> = all.iter().filter(is_other).map(|p| p.name_any()).collect();
            let pipelines: BTreeSet<&str> = all.iter().map(|p| &*p.spec.pipeline).collect();
            let counts = [all.items.len(), pipelines.len()];
            ensure!(
                others.is_empty() && counts == [usize::from(HOSTS); 2],
                "{counts:?}, not yet failed: {others:?}"
            );
            Ok(())
        })
        .await
        .with_context(|| controller.tail())?;
        let held = try_join_all((0..HELD).map(|_| TcpStream::connect(metrics))).await?;
        let mut slowest = Duration::ZERO;
        let attack = async {
            slowest = promote_sound(&place, &controller, &repo).await?;
            Ok(())
        };
        let most = most_memory_during(&controller, attack).await?;
        hostile::check_limits(slowest, most)?;
        let answer = reqwest::get(format!("http://{metrics}/metrics")).await?.error_for_status()?;
        ensure!(answer.text().await?.contains("sluice_"), "no metric of Sluice");
        drop(held);
        Ok(())
    })
}
