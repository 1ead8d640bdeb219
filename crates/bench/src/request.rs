//! What one promotion by change request costs: writes to the API server, traffic with git, calls
//! of the forge. The forge is a real Gitea.

use crate::controller::Controller;
use crate::delivery::{Ground, number};
use crate::options::Options;
use crate::table::{Table, Verdict, say, time};
use crate::writes::Writes;
use anyhow::Result;
use serde_json::json;
use sluice_testkit::{Gitea, eventually};
use std::time::{Duration, Instant};

/// What this program writes itself while it measures.
const OWN: [&str; 1] = ["helmreleases/status"];
/// As long as a hasty person needs to merge.
const PERSON: Duration = Duration::from_secs(2);
/// How long after the end of a promotion writes still count as its own.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Promotes by change request, several times.
pub async fn measure(options: &Options, ground: &Ground, table: &mut Table) -> Result<()> {
    let gitea = Gitea::start().await?;
    let file = "spec:\n  chart:\n    version: 6.1.5 # {\"$promotion\": \"webshop:webshop:staging\"}\n";
    let repo = gitea.create_repo("fleet", &[("apps/webshop/staging.yaml", file)]).await?;
    // Gitea takes a new repository for an empty one until it has seen its first push.
    eventually(Duration::from_secs(20), || repo.pulls("all")).await?;
    let strategy = json!({"pull-request":
        {"type": "gitea", "url": repo.url(), "baseBranch": "main", "secretRef": {"name": "git"}}});
    let application = ground.application("webshop", json!({"token": gitea.token()}), strategy).await?;
    let mut controller = Controller::start(options, &ground.cluster)?;
    controller.settled(0).await?;
    application.observed().await?;
    let mut costs = Vec::new();
    for n in 0..options.repeat {
        let version = format!("6.2.{n}");
        tokio::time::sleep(AFTERMATH).await;
        let before = (Writes::so_far(&ground.client).await?, Traffic::so_far(&controller).await?);
        let begun = Instant::now();
        application.runs("dev", &version).await?;
        let proposed = application.reaches(&version, "Proposed", &controller).await?;
        say(&format!("promotion {n}: healthy → proposed in {}", time(begun.elapsed())));
        tokio::time::sleep(PERSON).await;
        repo.merge(number(&proposed)?).await?;
        application.reaches(&version, "Delivered", &controller).await?;
        application.upgrades("staging").await?;
        tokio::time::sleep(PERSON).await;
        application.runs("staging", &version).await?;
        application.reaches(&version, "Succeeded", &controller).await?;
        tokio::time::sleep(AFTERMATH).await;
        let writes = Writes::so_far(&ground.client).await?.since(&before.0, &OWN);
        costs.push((writes, Traffic::so_far(&controller).await?.since(&before.1)));
    }
    let texts: Vec<String> = costs.iter().map(|(w, _)| format!("{} ({w})", w.count())).collect();
    let good = costs.iter().all(|(writes, _)| writes.count() <= 8);
    table.add("promotion by change request: API writes", "≤ 8", texts.join("; "), Verdict::of(good));
    let texts: Vec<String> = costs.iter().map(|(_, t)| t.to_string()).collect();
    let good = costs.iter().all(|(_, traffic)| traffic.fetches <= 1 && traffic.pushes <= 1);
    table.add("  git and forge", "≤ 1 fetch, 1 push", texts.join("; "), Verdict::of(good));
    Ok(())
}

/// What went to git servers and forges, by the controller's own count.
#[derive(Debug)]
struct Traffic {
    fetches: u64,
    pushes: u64,
    calls: u64,
}

impl Traffic {
    async fn so_far(controller: &Controller) -> Result<Traffic> {
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
