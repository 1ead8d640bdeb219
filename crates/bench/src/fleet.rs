//! Thousands of pipelines on a cluster of their own, and the plain client that made them.

use crate::objects::{self, ENVIRONMENTS, HELM, NAMESPACES, SLUICE, VERSION};
use crate::table::say;
use anyhow::{Context, Result};
use axum::http::{Method, Request};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::Instant;

/// The namespace that holds the pipelines.
pub const PLACE: &str = "pipelines";

/// How many writes go side by side, when the point is only that objects are there.
const CONCURRENT: usize = 64;

/// What a fleet is to be made of.
pub struct MadeOf<'a> {
    /// How many pipelines, with three targets each.
    pub pipelines: usize,
    /// Whether each target runs a Deployment too.
    pub deployments: bool,
    /// How the pipeline with a number promotes.
    pub promotion: &'a dyn Fn(usize) -> Value,
}

/// A cluster with pipelines that all run the same version everywhere.
pub struct Fleet {
    /// The cluster.
    pub cluster: Cluster,
    /// A plain client for it.
    pub client: Client,
    /// How many pipelines there are.
    pub size: usize,
}

impl Fleet {
    /// Starts a cluster and makes all objects, without a status of any pipeline.
    ///
    /// # Errors
    /// When the cluster does not start or refuses an object.
    pub async fn build(plane: &ControlPlane, made_of: MadeOf<'_>) -> Result<Fleet> {
        let cluster = plane.cluster("fleet").await?;
        cluster.install_flux_crds().await?;
        cluster.install_sluice_crds().await?;
        let client = cluster.client().await?;
        let fleet = Fleet { cluster, client, size: made_of.pipelines };
        fleet.make_namespaces().await?;
        fleet.make_releases(made_of.deployments).await?;
        fleet.make_pipelines(made_of.promotion).await?;
        Ok(fleet)
    }

    /// The names of all applications; each has a pipeline of its name.
    pub fn applications(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.size).map(|n| format!("app-{n:05}"))
    }

    fn places(&self) -> impl Iterator<Item = (String, &'static str)> + use<> {
        self.applications().flat_map(|a| ENVIRONMENTS.map(|e| (a.clone(), e)))
    }

    async fn make_namespaces(&self) -> Result<()> {
        let names = self.places().map(|(a, e)| objects::namespace(&a, e));
        let all = names.chain([PLACE.to_owned()]).map(async |name| {
            let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/part-of": "bench"}}});
            write(&self.client, Method::POST, NAMESPACES, &object).await
        });
        self.make("namespaces", self.size * ENVIRONMENTS.len() + 1, all).await
    }

    async fn make_releases(&self, deployments: bool) -> Result<()> {
        let all = self.places().map(async |(a, e)| {
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
        self.make("HelmReleases", self.size * ENVIRONMENTS.len(), all).await
    }

    async fn make_pipelines(&self, promotion: &dyn Fn(usize) -> Value) -> Result<()> {
        let url = format!("{SLUICE}/namespaces/{PLACE}/pipelines?fieldManager=kustomize-controller");
        let all = self.applications().enumerate().map(async |(n, a)| {
            let object = objects::pipeline(&a, PLACE, &ENVIRONMENTS, &promotion(n));
            write(&self.client, Method::POST, &url, &object).await
        });
        self.make("pipelines", self.size, all).await
    }

    /// A promotion of each pipeline that has ended long ago.
    pub async fn make_promotions(&self) -> Result<()> {
        let url = format!("{SLUICE}/namespaces/{PLACE}/promotions");
        let all = self.applications().map(async |a| {
            let name = format!("{a}-prod-6-1-4");
            write(&self.client, Method::POST, &url, &objects::promotion(&a, &name)).await?;
            let status = format!("{url}/{name}/status");
            write(&self.client, Method::PATCH, &status, &objects::succeeded()).await
        });
        self.make("promotions", self.size, all).await
    }

    async fn make<F>(&self, what: &str, n: usize, all: impl Iterator<Item = F>) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let begun = Instant::now();
        side_by_side(CONCURRENT, all).await.with_context(|| format!("cannot make {what}"))?;
        say(&format!("{n} {what} made in {:.0} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Takes the status off every pipeline, so that all of them have to be written again.
    pub async fn clear_statuses(&self) -> Result<()> {
        let all = self.applications().map(async |a| {
            let url = format!("{SLUICE}/namespaces/{PLACE}/pipelines/{a}/status?fieldManager=bench");
            write(&self.client, Method::PATCH, &url, &json!({"status": null})).await
        });
        side_by_side(CONCURRENT, all).await.context("cannot take the statuses off the pipelines")
    }

    /// All pipelines as they are now.
    pub async fn pipelines(&self) -> Result<Vec<Value>> {
        let request = Request::get(format!("{SLUICE}/namespaces/{PLACE}/pipelines")).body(Vec::new())?;
        let mut list: Value = self.client.request(request).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

/// Runs all of them, so many at a time.
pub async fn side_by_side<F>(concurrent: usize, all: impl Iterator<Item = F>) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    futures::stream::iter(all).buffer_unordered(concurrent).try_collect::<Vec<()>>().await.map(drop)
}

/// Lets an application run a chart version healthily in an environment.
pub async fn set_healthy(client: &Client, application: &str, environment: &str, version: &str) -> Result<()> {
    let namespace = objects::namespace(application, environment);
    let url = format!(
        "{HELM}/namespaces/{namespace}/helmreleases/{application}/status?fieldManager=helm-controller"
    );
    write(client, Method::PATCH, &url, &objects::healthy(application, environment, version)).await
}

/// Writes an object: POST makes it, PATCH merges into it.
pub async fn write(client: &Client, method: Method, url: &str, object: &Value) -> Result<()> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    send(client, method, url, kind, object).await
}

/// Applies an object on the server's side, as the controller writes its statuses.
pub async fn apply(client: &Client, url: &str, object: &Value) -> Result<()> {
    send(client, Method::PATCH, url, "application/apply-patch+yaml", object).await
}

async fn send(client: &Client, method: Method, url: &str, kind: &str, object: &Value) -> Result<()> {
    let request = Request::builder().method(method).uri(url).header("content-type", kind);
    let request = request.body(serde_json::to_vec(object)?)?;
    client.request_text(request).await.with_context(|| format!("cannot write {url}"))?;
    Ok(())
}
