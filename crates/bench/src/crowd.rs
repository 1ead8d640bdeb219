//! Many revisions at once, each into a change request of its own: how long each waits until it is
//! proposed, and what that costs a forge and its git. The forge is one in memory over real git, on the
//! same processors: a real one would take longer for each call and leave more of them to Sluice.

use crate::controller::Controller;
use crate::fleet::{Fleet, MadeOf, PLACE, set_healthy, side_by_side, write};
use crate::objects::{NAMESPACES, SLUICE, VERSION};
use crate::options::Options;
use crate::outside::processor_time;
use crate::table::{Table, Verdict, percentile, say, time};
use crate::watch::{Watch, field};
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use axum::http::Method;
use serde_json::json;
use sluice_testkit::fire::{Forge, Hosted};
use sluice_testkit::{ControlPlane, GitServer};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Over how many repositories the pipelines are spread.
const REPOSITORIES: usize = 10;
/// How many clusters report at a time, as it were.
const CONCURRENT: usize = 32;
/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// The version that all of them turn healthy with.
const NEXT: &str = "6.2.0";

/// Lets every application turn healthy at once, and times the change requests.
pub async fn measure(options: &Options, plane: &ControlPlane, table: &mut Table) -> Result<()> {
    let crowd = options.crowd;
    let forge = Forge::start()?;
    let hosted: Vec<Hosted> = (0..REPOSITORIES).map(|n| host(&forge, n, crowd)).collect::<Result<_>>()?;
    let promotion = |n: usize| {
        json!({"strategy": {"pull-request": {"type": "github", "url": hosted[n % REPOSITORIES].url,
            "baseBranch": "main", "secretRef": {"name": "git"}}}})
    };
    let made_of = MadeOf { pipelines: crowd, deployments: false, promotion: &promotion };
    let fleet = Fleet::build(plane, made_of).await?;
    let secret = json!({"metadata": {"name": "git"}, "stringData":
        {"username": GitServer::USER, "password": GitServer::PASSWORD, "token": Forge::TOKEN}});
    write(&fleet.client, Method::POST, &format!("{NAMESPACES}/{PLACE}/secrets"), &secret).await?;
    // Change requests are not looked at again as often as where a row waits for their merge.
    let mut controller =
        Controller::start_with(options, &fleet.cluster, &["--hook-addr=0", "--poll-interval=10m"])?;
    controller.settled(crowd).await?;
    let before = (Writes::so_far(&fleet.client).await?, processor_time(controller.pid())?);
    say(&format!("{crowd} workloads turn healthy at once"));
    let begun = Instant::now();
    let waits = time_all(&fleet, &controller).await?;
    let took = begun.elapsed();
    let writes = Writes::so_far(&fleet.client).await?.since(&before.0, &["helmreleases/status"]);
    let used = processor_time(controller.pid())? - before.1;
    let (one, at) = (crowd as f64, |percent| time(percentile(&waits, percent)));
    let text = format!("p50 {}, p95 {}, all after {}", at(50), at(95), time(took));
    let what = format!("{crowd} revisions at once, into {REPOSITORIES} repositories → proposed");
    table.add(&what, "", text, Verdict::None);
    let door = forge.door();
    let (git, calls): (Vec<_>, Vec<_>) =
        door.counts().into_iter().partition(|(operation, _)| operation.starts_with("git "));
    let all = |counts: &[(String, usize)]| counts.iter().map(|(_, n)| n).sum::<usize>() as f64 / one;
    let of = |name: &str| {
        let count = git.iter().find(|(operation, _)| operation == name);
        count.map_or(0, |(_, n)| *n) as f64 / one
    };
    // Each fetch asks twice: what there is to want, and for the wanted.
    let text = format!(
        "{:.2} calls of the API; {:.2} git calls ({:.2} fetch, {:.2} push), {:.1} kB",
        all(&calls),
        all(&git),
        of("git refs to fetch"),
        of("git push"),
        door.git_bytes() as f64 / one / 1000.0
    );
    let thrifty = of("git refs to fetch") <= 1.0 && of("git push") <= 1.0;
    table.add("  each: forge and git", "≤ 1 fetch, 1 push", text, Verdict::of(thrifty));
    let text =
        format!("{:.2} ({writes}), {}", writes.count() as f64 / one, time(used / u32::try_from(crowd)?));
    table.add("  each: API writes, processor", "", text, Verdict::None);
    let failures = controller.metric("sluice_promotion_failures_total").await?;
    table.add("  tries that failed", "0", (failures as u64).to_string(), Verdict::of(failures == 0.0));
    forge.unbroken()
}

/// A repository with a marked file for each of its applications.
fn host(forge: &Forge, number: usize, crowd: usize) -> Result<Hosted> {
    let file = |n: usize| {
        let marker = format!("{{\"$promotion\": \"{PLACE}:app-{n:05}:staging\"}}");
        let text = format!("spec:\n  chart:\n    spec:\n      version: {VERSION} # {marker}\n");
        (format!("apps/app-{n:05}/staging.yaml"), text)
    };
    let files: Vec<_> = (number..crowd).step_by(REPOSITORIES).map(file).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    forge.create_repo(&format!("fleet-{number}"), &files)
}

/// From each workload's turn to its change request, by what the records say.
async fn time_all(fleet: &Fleet, controller: &Controller) -> Result<Vec<Duration>> {
    let size = fleet.size;
    let mut watch = Watch::begin(&fleet.client, &format!("{SLUICE}/namespaces/{PLACE}/promotions")).await?;
    let seen = tokio::spawn(async move {
        let mut proposed: HashMap<String, Instant> = HashMap::new();
        while proposed.len() < size {
            let line = watch.next().await?;
            let phase = field(&line, "\"phase\":\"").unwrap_or_default();
            if phase == "Proposed" {
                let of = field(&line, "\"pipelines.weave.works/pipeline\":\"");
                proposed.entry(of.context("a promotion of nothing")?.to_owned()).or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(proposed)
    });
    let turned = Mutex::new(HashMap::new());
    let all = fleet.applications().map(async |application| {
        set_healthy(&fleet.client, &application, "dev", NEXT).await?;
        if let Ok(mut turned) = turned.lock() {
            turned.insert(application, Instant::now());
        }
        Ok(())
    });
    side_by_side(CONCURRENT, all).await?;
    let Ok(proposed) = tokio::time::timeout(PATIENCE, seen).await else {
        bail!("not every revision was proposed:\n{}", controller.log());
    };
    let proposed = proposed??;
    let turned = turned.into_inner().unwrap_or_default();
    let wait = |(name, at): (&String, &Instant)| Some(proposed.get(name)?.saturating_duration_since(*at));
    Ok(turned.iter().filter_map(wait).collect())
}
