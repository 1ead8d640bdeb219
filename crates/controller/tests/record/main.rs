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
use sluice_testkit::{Cluster, ControlPlane};

/// Starts a hub with Sluice's definitions, which runs for as long as the cluster is kept.
async fn hub(name: &str) -> Result<(Cluster, Client)> {
    let cluster = ControlPlane::start().await?.cluster(name).await?;
    cluster.install_sluice_crds().await?;
    let client = cluster.client().await?;
    Ok((cluster, client))
}
