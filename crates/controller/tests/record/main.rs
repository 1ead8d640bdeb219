//! What the controller writes: the status of a Pipeline, the records of promotions, and the events. Status writes also
//! against a real API server: late ones, the largest one, and one over a status that was stored by another definition.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod composed_status;
mod largest_status;
mod late_writes;
mod orders_and_events;
mod promotion_record;
mod shared_status;
mod status_pace;
mod status_size_limit;
mod untyped_status;
mod writer;

use anyhow::Result;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use sluice_api::Promotion;
use sluice_testkit::{Cluster, ControlPlane};

/// Starts a hub with Sluice's definitions, which runs for as long as the cluster is kept.
async fn hub(name: &str) -> Result<(Cluster, Client)> {
    let cluster = ControlPlane::start().await?.cluster(name).await?;
    cluster.install_sluice_crds().await?;
    let client = cluster.client().await?;
    Ok((cluster, client))
}

/// Creates a Promotion without a status.
async fn promotion(client: &Client, name: &str) -> Result<Api<Promotion>> {
    let api: Api<Promotion> = Api::namespaced(client.clone(), "default");
    let object: Promotion = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": name},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1.1.0", "facets": {"chart": "1.1.0"}, "sequence": 1}
    }))?;
    api.create(&PostParams::default(), &object).await?;
    Ok(api)
}
