//! The costs of one promotion by change request: writes to the API server, git operations and calls of the forge, which
//! is a real Gitea.

use crate::controller::ControllerProcess;
use crate::delivery_fixture::{DeliveryCluster, number};
use crate::options::BenchOptions;
use crate::table::{BudgetVerdict, ResultTable, progress, time};
use crate::writes::Writes;
use anyhow::Result;
use serde_json::json;
use sluice_testkit::{Gitea, eventually};
use std::time::{Duration, Instant};

/// The resources that this program writes during the measurement.
const OWN_WRITES: [&str; 1] = ["helmreleases/status"];
/// The time that a fast person takes to merge.
const PERSON_DELAY: Duration = Duration::from_secs(2);
/// The time after a promotion in which writes still count for it.
const SETTLING_TIME: Duration = Duration::from_secs(3);

/// Promotes by change request, several times.
pub async fn measure(
    options: &BenchOptions,
    cluster: &DeliveryCluster,
    table: &mut ResultTable,
) -> Result<()> {
    let gitea = Gitea::start().await?;
    let file = "spec:\n  chart:\n    version: 6.1.5 # {\"$promotion\": \"webshop:webshop:staging\"}\n";
    let repo = gitea.create_repo("fleet", &[("apps/webshop/staging.yaml", file)]).await?;
    // Gitea rejects calls for a new repository until it has indexed the first push.
    eventually(Duration::from_secs(20), || repo.pulls("all")).await?;
    let strategy = json!({"pull-request":
        {"type": "gitea", "url": repo.url(), "baseBranch": "main", "secretRef": {"name": "git"}}});
    let application = cluster.application("webshop", json!({"token": gitea.token()}), strategy).await?;
    let mut controller = ControllerProcess::start(options, &cluster.cluster)?;
    controller.settled(0).await?;
    application.until_observed().await?;
    let mut costs = Vec::new();
    for n in 0..options.repeat {
        let version = format!("6.2.{n}");
        tokio::time::sleep(SETTLING_TIME).await;
        let before = (Writes::total(&cluster.client).await?, Traffic::total(&controller).await?);
        let started = Instant::now();
        application.set_healthy("dev", &version).await?;
        let proposed = application.until_phase(&version, "Proposed", &controller).await?;
        progress(&format!("promotion {n}: healthy → proposed in {}", time(started.elapsed())));
        tokio::time::sleep(PERSON_DELAY).await;
        repo.merge(number(&proposed)?).await?;
        application.until_phase(&version, "Delivered", &controller).await?;
        application.set_upgrading("staging").await?;
        tokio::time::sleep(PERSON_DELAY).await;
        application.set_healthy("staging", &version).await?;
        application.until_phase(&version, "Succeeded", &controller).await?;
        tokio::time::sleep(SETTLING_TIME).await;
        let writes = Writes::total(&cluster.client).await?.since(&before.0, &OWN_WRITES);
        costs.push((writes, Traffic::total(&controller).await?.since(&before.1)));
    }
    let texts: Vec<String> = costs.iter().map(|(w, _)| format!("{} ({w})", w.count())).collect();
    let good = costs.iter().all(|(writes, _)| writes.count() <= 8);
    table.add("promotion by change request: API writes", "≤ 8", texts.join("; "), BudgetVerdict::of(good));
    let texts: Vec<String> = costs.iter().map(|(_, t)| t.to_string()).collect();
    let good = costs.iter().all(|(_, traffic)| traffic.fetches <= 1 && traffic.pushes <= 1);
    table.add("  git and forge", "≤ 1 fetch, 1 push", texts.join("; "), BudgetVerdict::of(good));
    Ok(())
}

/// The git operations and the calls of forges, as counted by the controller.
#[derive(Debug)]
struct Traffic {
    fetches: u64,
    pushes: u64,
    calls: u64,
}

impl Traffic {
    async fn total(controller: &ControllerProcess) -> Result<Traffic> {
        let count = async |name: &str| controller.metric(name).await.map(|n| n as u64);
        Ok(Traffic {
            fetches: count("sluice_git_operations{operation=\"fetch\"}").await?,
            pushes: count("sluice_git_operations{operation=\"push\"}").await?,
            calls: count("sluice_forge_calls{").await?,
        })
    }

    fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            fetches: self.fetches - earlier.fetches,
            pushes: self.pushes - earlier.pushes,
            calls: self.calls - earlier.calls,
        }
    }
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} fetch, {} push, {} forge calls", self.fetches, self.pushes, self.calls)
    }
}
