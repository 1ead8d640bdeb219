//! The course of the chaos test: teams with pipelines, releases while faults are injected, and the checks afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sluice_api::promotion::Phase;
use sluice_testkit::Shared;
use sluice_testkit::fault_injection::{ChaosForge, FaultPlan, draw};

use crate::fleet::{By, Fleet, Shape};
use crate::place::TestNamespace;
use crate::troubles::{ChaosFixture, Trouble, write_everywhere};
use crate::verdict::{each_once, until_all_run};

/// How long Sluice may take to deliver everything after the last fault. Its longest pause after failures is five
/// minutes.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(600);

/// The size of the test, and its seed.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The seed of the faults and of the order of the troubles.
    seed: u64,
    /// The number of rounds. All troubles happen in each round.
    rounds: u64,
    /// The number of teams that promote by change request; as many promote by commit.
    teams: usize,
    /// The number of pipelines of each team.
    applications: usize,
    /// The percentage of calls to the forge and git with a fault.
    percent: u64,
    /// The time between two troubles.
    pause: Duration,
}

impl Size {
    /// Reads the size from the environment: `SLUICE_CHAOS_ROUNDS` is the number of rounds of the large test; without it,
    /// the test is small. `SLUICE_CHAOS_SEED` is the seed.
    pub fn from_env() -> Result<Size> {
        let number = |name: &str| {
            let text = std::env::var(name).ok().filter(|text| !text.is_empty());
            text.map(|text| text.parse().with_context(|| format!("{name} must be a number"))).transpose()
        };
        let seed = number("SLUICE_CHAOS_SEED")?.unwrap_or(1);
        Ok(match number("SLUICE_CHAOS_ROUNDS")? {
            Some(rounds) => {
                Size { seed, rounds, teams: 3, applications: 5, percent: 12, pause: Duration::from_secs(4) }
            }
            None => Size {
                seed,
                rounds: 1,
                teams: 1,
                applications: 3,
                percent: 6,
                pause: Duration::from_millis(1500),
            },
        })
    }
}

pub async fn run(size: Size) -> Result<()> {
    println!("{size:?}");
    // Leaked: the servers end with this process.
    let shared: &'static Shared = Box::leak(Box::new(Shared::start().await?));
    let forge = Arc::new(ChaosForge::start()?);
    let place = TestNamespace::on(shared, "chaos").await?;
    let mut fleet = Fleet::at(place, Shape::Helm, Duration::from_secs(1), Some(forge.clone()))?;
    let by_change_request = |i: usize| if i % 2 == 1 { By::Merging } else { By::PullRequest };
    for (by, i) in (0..size.teams).flat_map(|i| [(by_change_request(i), i), (By::Commit, i)]) {
        let team = format!("{}-{i}", if by == By::Commit { "commits" } else { "requests" });
        let applications: Vec<String> = (0..size.applications).map(|i| format!("{team}-{i}")).collect();
        fleet.team(&team, by, &applications, "1.0.0").await?;
    }
    let mut fixture = ChaosFixture::start(&fleet.place, size.pause).await?;
    let outcome = tokio::select! {
        done = trial(size, &fleet, &forge, &mut fixture) => done,
        stopped = merge_repeatedly(&fleet) => stopped,
    };
    outcome.with_context(|| {
        format!("{size:?}; calls: {:#?}; {}", forge.fault_proxy().counts(), fixture.log_tail())
    })
}

async fn merge_repeatedly(fleet: &Fleet) -> Result<()> {
    loop {
        fleet.merge_all().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn trial(size: Size, fleet: &Fleet, forge: &ChaosForge, fixture: &mut ChaosFixture) -> Result<()> {
    until_all_run(fleet, "1.0.0", recovery_time_left()).await?;
    let mut minor = 0;
    for round in 1..=size.rounds {
        let seed = draw(size.seed, round);
        let (started, written) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let client = fleet.place.shared.hub.client().await?;
        let other_writer =
            tokio::spawn(write_everywhere(client, fleet.place.namespace.clone(), written.clone()));
        forge.fault_proxy().set_plan(FaultPlan::Random { seed, percent: size.percent });
        for (i, trouble) in Trouble::shuffled(seed).into_iter().enumerate() {
            if i % 3 == 0 {
                minor += 1;
                fleet.release(&format!("1.{minor}.0")).await?;
            }
            fixture.apply(trouble).await.with_context(|| format!("{trouble:?}"))?;
            forge.check_invariants()?;
        }
        let faults = forge.fault_proxy().faults();
        let calls = forge.fault_proxy().set_plan(FaultPlan::Quiet);
        other_writer.abort();
        let with_faults = started.elapsed();
        minor += 1;
        let last = format!("1.{minor}.0");
        fleet.release(&last).await?;
        until_all_run(fleet, &last, recovery_time_left()).await?;
        let promotions = verify(fleet, forge, &last).await?;
        let (counts, writes) = (fixture.counts, written.load(Ordering::Relaxed));
        println!(
            "round {round}: {promotions} promotions so far, {faults} faults at {} calls, {writes} writes of the other \
             writer, {} write faults so far, {counts:?}, duplicates 0, lost 0; {with_faults:.0?} with faults, all \
             delivered {:.0?} later",
            calls.len(),
            fixture.injected_conflicts(),
            started.elapsed() - with_faults,
        );
    }
    Ok(())
}

/// Returns a function that returns what is left of [`RECOVERY_TIMEOUT`], counted from now.
fn recovery_time_left() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || RECOVERY_TIMEOUT.saturating_sub(begun.elapsed())
}

/// Checks that each revision went into each environment at most once, and the last one everywhere. Returns the number of
/// promotions.
async fn verify(fleet: &Fleet, forge: &ChaosForge, last: &str) -> Result<usize> {
    let all = each_once(fleet, last, RECOVERY_TIMEOUT, &[Phase::Succeeded, Phase::Superseded, Phase::Failed])
        .await?;
    forge.check_invariants()?;
    let delivered = fleet.deliveries(last)?.0.len();
    ensure!(delivered > 0, "nothing was delivered");
    Ok(all.len())
}
