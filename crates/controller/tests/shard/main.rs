//! Which replica holds which shard: scenarios of a few replicas, and random ones on a network that delays and
//! loses messages, with clocks that differ and processes that are stopped. Also status writes that arrive late,
//! and the largest status.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod late;
mod network;
mod properties;
mod status_size;
mod steps;
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
