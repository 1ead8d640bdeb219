//! Pipelines with as many targets as the API server accepts, and with many members in each target: their statuses are
//! summarized, people can read them, the controller and its git processes take at most 512 MiB, and another Pipeline is
//! promoted within 30 s.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sluice_api::pipeline::TargetStatus;
use sluice_core::observed::Health;
use sluice_testkit::{FakeCluster, shared_gitea};

use crate::crash::marked;
use crate::hostile::{self, commits_to, empty, most_memory_during, promote_sound};
use crate::page::{Person, rule};
use crate::place::TestNamespace;
use crate::process::Controller;
use crate::run;

const ENVIRONMENTS: usize = 16;
/// The targets of each environment, and the namespaces of the cluster.
const TARGETS: usize = 128;
/// The HelmReleases of each namespace. All are members of the Pipeline `full`, and have failed.
const RELEASES: usize = 64;
/// How many of them are members of the Pipeline `large`, too. They are healthy, except in one namespace.
const MEMBERS: usize = 9;
/// The number of the namespace whose members of `large` have failed.
const FAILING: usize = 99;

/// Returns a HelmRelease that names the Deployment that it made.
fn release(namespace: usize, n: usize) -> Value {
    let is_large = n < MEMBERS;
    let (status, message) = match is_large && namespace != FAILING {
        true => ("True", String::new()),
        false => ("False", "its own words ".repeat(60)),
    };
    let labels = match is_large {
        true => {
            json!({"pipelines.weave.works/pipeline": "large", "pipelines.wego.weave.works/pipeline": "full"})
        }
        false => json!({"pipelines.weave.works/pipeline": "full"}),
    };
    let deployment = format!("target-{namespace}_podinfo-{n}_apps_Deployment");
    json!({
        "metadata": {"namespace": format!("target-{namespace}"), "name": format!("podinfo-{n}"), "generation": 1,
            "resourceVersion": "5", "labels": labels},
        "spec": {},
        "status": {"observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": status, "reason": "Upgraded", "message": message}],
            "inventory": {"entries": [{"id": deployment, "v": "v1"}]},
            "history": [{"chartVersion": "6.1.8", "status": "deployed", "version": 1}]},
    })
}

/// Returns the Deployment that a HelmRelease made.
fn deployment(namespace: usize, n: usize) -> Value {
    let (namespace, name) = (format!("target-{namespace}"), format!("podinfo-{n}"));
    let image = format!("ghcr.io/stefanprodan/{name}:6.1.8");
    json!({
        "metadata": {"namespace": namespace, "name": name, "generation": 1, "resourceVersion": "5",
            "labels": {"helm.toolkit.fluxcd.io/name": name, "helm.toolkit.fluxcd.io/namespace": namespace}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
            "availableReplicas": 1},
    })
}

/// Returns a list with `RELEASES` objects in each namespace.
fn list(object: fn(usize, usize) -> Value) -> String {
    let objects = (0..TARGETS * RELEASES).map(|n| object(n / RELEASES, n % RELEASES)).collect::<Vec<_>>();
    json!({"metadata": {"resourceVersion": "5"}, "items": objects}).to_string()
}

/// Returns the answer of a cluster in which nothing changes.
fn answer(request: &Request) -> Response {
    let (path, is_watch) = (request.uri().path(), request.uri().query().is_some_and(|q| q.contains("watch")));
    let group = |name: &str, version: &str| {
        let version = json!({"version": version});
        json!({"name": name, "preferredVersion": version, "versions": [version]})
    };
    let namespace = |n: usize| json!({"metadata": {"name": format!("target-{n}")}, "spec": {}});
    let text = match path {
        "/version" => "{}".into(),
        "/apis" => {
            json!({"groups": [group("helm.toolkit.fluxcd.io", "v2"), group("apps", "v1")]}).to_string()
        }
        "/apis/helm.toolkit.fluxcd.io/v2" => json!({"resources": [{"name": "helmreleases"}]}).to_string(),
        "/apis/apps/v1" => json!({"resources": [{"name": "deployments"}]}).to_string(),
        _ if is_watch => return empty(path, true),
        "/api/v1/namespaces" => {
            let items: Vec<_> = (0..TARGETS).map(namespace).collect();
            json!({"metadata": {"resourceVersion": "5"}, "items": items}).to_string()
        }
        _ if path.ends_with("/helmreleases") => list(release),
        _ if path.ends_with("/deployments") => list(deployment),
        _ => return empty(path, false),
    };
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Returns a Pipeline. Each environment has all namespaces of the cluster as its targets.
fn pipeline(namespace: &str, name: &str) -> String {
    let cluster = json!({"kind": "GitopsCluster", "name": "large"});
    let target = |n: usize| json!({"namespace": format!("target-{n}"), "name": format!("target-{n}"), "clusterRef": cluster});
    let targets: Vec<_> = (0..TARGETS).map(target).collect();
    let environments: Vec<_> =
        (0..ENVIRONMENTS).map(|e| json!({"name": format!("e{e}"), "targets": targets})).collect();
    json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"environments": environments, "promotion": {"strategy": {"notification": {}}}}})
    .to_string()
}

/// Asks for everything that the API and the pages show of a Pipeline.
async fn ask(person: &Person, namespace: &str, name: &str) -> Result<()> {
    let path = format!("/pipelines/{namespace}/{name}");
    for view in ["", "/explain", "/tree", "/history", "/triggers"] {
        let (status, answer) = person.ask(&format!("{path}{view}")).await?;
        ensure!(status == StatusCode::OK, "{name}{view}: {status} {answer}");
    }
    for page in ["", "/history", "/objects", "/triggers"] {
        let (status, text) = person.get(&format!("{path}{page}")).await?;
        ensure!(status == StatusCode::OK && text.contains(name), "{path}{page}: {status} {text}");
    }
    Ok(())
}

/// Waits until the status of a Pipeline is summarized, and returns the target with this number.
async fn summarized(place: &TestNamespace, name: &str, target: usize) -> Result<TargetStatus> {
    let is_summarized = |p: &sluice_api::Pipeline| {
        let conditions = p.status.clone().unwrap_or_default().conditions;
        conditions.iter().any(|c| c.type_ == "Summarized" && c.status == "True")
    };
    let what = "the status is summarized";
    let object = place.until(name, what, is_summarized).await?;
    let status = object.status.unwrap_or_default();
    ensure!(status.environments.values().map(|e| e.targets.len()).sum::<usize>() == ENVIRONMENTS * TARGETS);
    let environment = status.environments.get("e15").context("the last environment")?;
    Ok(environment.targets.get(target).context("the target")?.clone())
}

#[test]
fn hostile_pipelines_delay_no_promotion_and_do_not_exhaust_memory() -> Result<()> {
    run(async {
        let place = TestNamespace::new("large").await?;
        let n = place.namespace.as_str();
        let router = Router::new().fallback(|request: Request| async move { answer(&request) });
        let cluster = FakeCluster::start("large", router)?;
        place.gitops_cluster("large", cluster.kubeconfig()).await?;
        let repo =
            shared_gitea().await?.create_repo(n, &[("app.yaml", &marked(n, "sound", "1.0.0"))]).await?;
        place.forge_secret().await?;
        commits_to(&place, "sound", &repo).await?;
        for name in ["large", "full"] {
            place.apply(&pipeline(n, name)).await?;
        }
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let controller = Controller::start(&place.shared.hub, n, &[&api, "--observe=all"])?;
        let clusters =
            json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"]});
        let see = json!([rule("pipelines", &["get"]), rule("promotions", &["get"]), clusters]);
        let mut slowest = Duration::ZERO;
        let attack = async {
            let failing = summarized(&place, "large", FAILING).await.with_context(|| controller.tail())?;
            ensure!(
                failing.health == Health::Failed && failing.workloads.len() == 2 * MEMBERS,
                "{failing:?}"
            );
            ensure!(failing.workloads[0].message.len() > 800, "{failing:?}");
            let last = summarized(&place, "full", TARGETS - 1).await.with_context(|| controller.tail())?;
            ensure!(last.error.contains("more objects than Sluice reads for one pipeline"), "{last:?}");
            let person = Person::new(&place, &format!("http://{address}"), "viewer", see).await?;
            let asked = async {
                for name in ["large", "full", "large", "full"] {
                    ask(&person, n, name).await.with_context(|| controller.tail())?;
                }
                anyhow::Ok(())
            };
            let ((), duration) = tokio::try_join!(asked, promote_sound(&place, &controller, &repo))?;
            slowest = duration;
            Ok(())
        };
        let most = most_memory_during(&controller, attack).await?;
        hostile::check_limits(slowest, most)?;
        Ok(())
    })
}
