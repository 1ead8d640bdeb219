//! What several measurements need: a cluster with thousands of pipelines, and functions to write objects.

use crate::objects::{self, ENVIRONMENTS, HELM, NAMESPACES, SLUICE, VERSION};
use crate::table::progress;
use anyhow::{Context, Result};
use axum::http::{Method, Request};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::Instant;

/// The namespace of the pipelines.
pub const PIPELINES_NAMESPACE: &str = "pipelines";

/// The number of concurrent writes while the objects are created.
const CONCURRENT: usize = 64;

/// How many pipelines there are, and what they are like.
pub struct PipelinesSize<'a> {
    /// The number of pipelines, with three targets each.
    pub pipelines: usize,
    /// Whether each target has a Deployment too.
    pub deployments: bool,
    /// Returns `spec.promotion` of the pipeline with a number.
    pub promotion: &'a dyn Fn(usize) -> Value,
}

/// A cluster with pipelines that all run the same version everywhere.
pub struct PipelinesOnOneCluster {
    /// The cluster.
    pub cluster: Cluster,
    /// A client with the rights of an administrator.
    pub client: Client,
    /// The number of pipelines.
    pub size: usize,
}

impl PipelinesOnOneCluster {
    /// Starts a cluster and creates all objects. The pipelines have no status.
    ///
    /// # Errors
    /// The cluster does not start, or rejects an object.
    pub async fn build(plane: &ControlPlane, size: PipelinesSize<'_>) -> Result<PipelinesOnOneCluster> {
        let cluster = plane.cluster("fleet").await?;
        cluster.install_flux_crds().await?;
        cluster.install_sluice_crds().await?;
        let client = cluster.client().await?;
        let fleet = PipelinesOnOneCluster { cluster, client, size: size.pipelines };
        fleet.create_namespaces().await?;
        fleet.create_releases(size.deployments).await?;
        fleet.create_pipelines(size.promotion).await?;
        Ok(fleet)
    }

    /// The names of all applications, which are the names of their pipelines.
    pub fn applications(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.size).map(|n| format!("app-{n:05}"))
    }

    fn targets(&self) -> impl Iterator<Item = (String, &'static str)> + use<> {
        self.applications().flat_map(|a| ENVIRONMENTS.map(|e| (a.clone(), e)))
    }

    async fn create_namespaces(&self) -> Result<()> {
        let names = self.targets().map(|(a, e)| objects::namespace(&a, e));
        let all = names.chain([PIPELINES_NAMESPACE.to_owned()]).map(async |name| {
            let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/part-of": "bench"}}});
            write(&self.client, Method::POST, NAMESPACES, &object).await
        });
        self.create_all("namespaces", self.size * ENVIRONMENTS.len() + 1, all).await
    }

    async fn create_releases(&self, deployments: bool) -> Result<()> {
        let all = self.targets().map(async |(a, e)| {
            let namespace = objects::namespace(&a, e);
            let releases = format!("{HELM}/namespaces/{namespace}/helmreleases");
            let url = format!("{releases}?fieldManager=kustomize-controller");
            write(&self.client, Method::POST, &url, &objects::helm_release(&a, e)).await?;
            set_healthy(&self.client, &a, e, VERSION).await?;
            if deployments {
                let url = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
                write(
                    &self.client,
                    Method::POST,
                    &format!("{url}?fieldManager=helm"),
                    &objects::deployment(&a, e),
                )
                .await?;
                let url = format!("{url}/{a}/status?fieldManager=kube-controller-manager");
                write(&self.client, Method::PATCH, &url, &objects::rolled_out()).await?;
            }
            Ok(())
        });
        self.create_all("HelmReleases", self.size * ENVIRONMENTS.len(), all).await
    }

    async fn create_pipelines(&self, promotion: &dyn Fn(usize) -> Value) -> Result<()> {
        let url =
            format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines?fieldManager=kustomize-controller");
        let all = self.applications().enumerate().map(async |(n, a)| {
            let object = objects::pipeline(&a, PIPELINES_NAMESPACE, &ENVIRONMENTS, &promotion(n));
            write(&self.client, Method::POST, &url, &object).await
        });
        self.create_all("pipelines", self.size, all).await
    }

    /// Creates a succeeded promotion of each pipeline.
    pub async fn create_promotions(&self) -> Result<()> {
        let url = format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/promotions");
        let pipelines = self.pipelines().await?;
        let all = pipelines.iter().map(async |pipeline| {
            let promotion = objects::promotion(&pipeline["metadata"]).context("a pipeline has no name")?;
            write(&self.client, Method::POST, &url, &promotion).await?;
            let name = promotion["metadata"]["name"].as_str().unwrap_or_default();
            let status = format!("{url}/{name}/status");
            write(&self.client, Method::PATCH, &status, &objects::succeeded()).await
        });
        self.create_all("promotions", self.size, all).await
    }

    async fn create_all<F>(&self, what: &str, n: usize, all: impl Iterator<Item = F>) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let started = Instant::now();
        run_concurrently(CONCURRENT, all).await.with_context(|| format!("cannot create {what}"))?;
        progress(&format!("{n} {what} created in {:.0} s", started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Removes the status of every pipeline, so that Sluice must write all of them again.
    pub async fn clear_statuses(&self) -> Result<()> {
        let all = self.applications().map(async |a| {
            let url =
                format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines/{a}/status?fieldManager=bench");
            write(&self.client, Method::PATCH, &url, &json!({"status": null})).await
        });
        run_concurrently(CONCURRENT, all).await.context("cannot remove the statuses of the pipelines")
    }

    /// Returns all pipelines.
    pub async fn pipelines(&self) -> Result<Vec<Value>> {
        let request =
            Request::get(format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines")).body(Vec::new())?;
        let mut list: Value = self.client.request(request).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

/// Runs futures concurrently, `concurrent` at a time.
pub async fn run_concurrently<F>(concurrent: usize, all: impl Iterator<Item = F>) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    futures::stream::iter(all).buffer_unordered(concurrent).try_collect::<Vec<()>>().await.map(drop)
}

/// Makes an application healthy with a chart version in an environment.
pub async fn set_healthy(client: &Client, application: &str, environment: &str, version: &str) -> Result<()> {
    let namespace = objects::namespace(application, environment);
    let url = format!(
        "{HELM}/namespaces/{namespace}/helmreleases/{application}/status?fieldManager=helm-controller"
    );
    write(client, Method::PATCH, &url, &objects::healthy(application, environment, version)).await
}

/// Writes an object: POST creates it, PATCH merges into it.
pub async fn write(client: &Client, method: Method, url: &str, object: &Value) -> Result<()> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    send(client, method, url, kind, object).await
}

/// Writes an object by server-side apply.
pub async fn apply(client: &Client, url: &str, object: &Value) -> Result<()> {
    send(client, Method::PATCH, url, "application/apply-patch+yaml", object).await
}

async fn send(client: &Client, method: Method, url: &str, kind: &str, object: &Value) -> Result<()> {
    let request = Request::builder().method(method).uri(url).header("content-type", kind);
    let request = request.body(serde_json::to_vec(object)?)?;
    client.request_text(request).await.with_context(|| format!("cannot write {url}"))?;
    Ok(())
}
