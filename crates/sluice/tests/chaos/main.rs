//! The chaos test of the whole controller: every fault in calls to the forge and git, restarts of API servers and etcd,
//! closed and stalled connections, another writer on every object that Sluice writes, a controller that is killed, two
//! leaders, and a clock that jumps. It has its own binary because it stops servers that other tests share.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

#[allow(dead_code, reason = "another binary uses the rest")]
#[path = "../flux/fleet.rs"]
mod fleet;
#[path = "../flux/history.rs"]
mod history;
#[allow(dead_code, reason = "another binary uses the rest")]
#[path = "../support/place.rs"]
mod place;
#[allow(dead_code, reason = "another binary uses the rest")]
#[path = "../support/process.rs"]
mod process;
#[path = "../support/proxied_cluster.rs"]
mod proxied_cluster;
mod trial;
mod troubles;
#[path = "../flux/verdict.rs"]
mod verdict;

use anyhow::Result;
use std::time::Duration;
use trial::Size;

/// The time limit of all rounds.
const TIMEOUT: Duration = Duration::from_secs(3000);

#[test]
fn every_revision_is_delivered_exactly_once() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let trial = trial::run(Size::from_env()?);
        tokio::time::timeout(TIMEOUT, trial)
            .await
            .map_err(|_| anyhow::anyhow!("the chaos test took too long"))?
    })
}
