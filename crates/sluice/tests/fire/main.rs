//! The whole under fire: every fault at forge and git, API servers and etcd that restart, wires that
//! are cut and go dead, somebody who writes to everything that Sluice writes to, a controller that is
//! killed, two that both believe they lead, and a clock that jumps. A binary of its own, since it
//! stops servers that other tests share.

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
mod trial;
mod troubles;
#[path = "../flux/verdict.rs"]
mod verdict;

use anyhow::Result;
use std::time::Duration;
use trial::Size;

/// How long all rounds may take.
const DEADLINE: Duration = Duration::from_secs(3000);

#[test]
fn exactly_once_under_fire() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let trial = trial::run(Size::asked_for()?);
        tokio::time::timeout(DEADLINE, trial).await.map_err(|_| anyhow::anyhow!("the fire took too long"))?
    })
}
