//! What several measurements need: clusters with applications, and their GitopsClusters on a hub.

use crate::objects::{self, HELM, KUSTOMIZE, NAMESPACES, VERSION};
use crate::pipelines_fixture::{run_concurrently, set_healthy, write};
use anyhow::{Context, Result};
use axum::http::Method;
use kube::Client;
use serde_json::json;
use sluice_testkit::{Cluster, ControlPlane};

/// The number of HelmReleases, and of Kustomizations, of each cluster. There are two Deployments for each of them.
pub const APPLICATIONS: usize = 200;
/// The environment in the names of the objects.
pub const ENVIRONMENT: &str = "prod";
/// The number of concurrent writes while the objects are created.
const CONCURRENT: usize = 64;
/// The namespace of the GitopsClusters.
pub const CLUSTERS_NAMESPACE: &str = "clusters";

/// Starts an API server with the objects of one cluster: those of as many applications, in a namespace each.
///
/// # Errors
/// It does not start, or rejects an object.
pub async fn leaf(plane: &ControlPlane, name: &str, applications: usize) -> Result<Cluster> {
    let cluster = plane.cluster(name).await?;
    cluster.install_flux_crds().await?;
    let client = cluster.client().await?;
    let all = (0..applications).map(|n| create(&client, format!("app-{n:03}")));
    run_concurrently(CONCURRENT, all).await.context("cannot create the objects of a cluster")?;
    Ok(cluster)
}

async fn create(client: &Client, application: String) -> Result<()> {
    let namespace = objects::namespace(&application, ENVIRONMENT);
    let make = async |url: String, object| write(client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": namespace}})).await?;
    let release = objects::helm_release(&application, ENVIRONMENT);
    make(format!("{HELM}/namespaces/{namespace}/helmreleases"), release).await?;
    set_healthy(client, &application, ENVIRONMENT, VERSION).await?;
    let kustomizations = format!("{KUSTOMIZE}/namespaces/{namespace}/kustomizations");
    make(kustomizations.clone(), objects::kustomization(&application, ENVIRONMENT)).await?;
    let status = objects::applied(&application, ENVIRONMENT);
    write(client, Method::PATCH, &format!("{kustomizations}/{application}/status"), &status).await?;
    for (name, is_flux) in [(application.clone(), true), (format!("{application}-extra"), false)] {
        let mut deployment = objects::deployment(&application, ENVIRONMENT);
        deployment["metadata"]["name"] = name.clone().into();
        if !is_flux {
            deployment["metadata"]["labels"] = json!({"app.kubernetes.io/name": application});
        }
        let url = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        make(url.clone(), deployment).await?;
        write(client, Method::PATCH, &format!("{url}/{name}/status"), &objects::rolled_out()).await?;
    }
    Ok(())
}

/// Creates the GitopsClusters on the hub, in turn on each of the servers.
///
/// # Errors
/// The hub rejects an object.
pub async fn register(hub: &Cluster, servers: &[Cluster], count: usize) -> Result<()> {
    let client = hub.client().await?;
    let make = async |url: String, object| write(&client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": CLUSTERS_NAMESPACE}})).await?;
    for server in servers {
        let name = server.name();
        let secret = json!({"metadata": {"name": name}, "stringData": {"value": server.kubeconfig()}});
        make(format!("{NAMESPACES}/{CLUSTERS_NAMESPACE}/secrets"), secret).await?;
    }
    for (n, server) in (0..count).zip(servers.iter().cycle()) {
        let cluster = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": format!("cluster-{n:03}")}, "spec": {"secretRef": {"name": server.name()}}});
        let url = format!("/apis/gitops.weave.works/v1alpha1/namespaces/{CLUSTERS_NAMESPACE}/gitopsclusters");
        make(url, cluster).await?;
    }
    Ok(())
}
