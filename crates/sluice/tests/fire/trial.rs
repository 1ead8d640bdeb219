//! The trial: teams with their pipelines, releases while it burns, and then the verdict, in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sluice_api::promotion::Phase;
use sluice_testkit::Shared;
use sluice_testkit::fire::{Forge, Plan, draw};

use crate::fleet::{By, Fleet, Shape};
use crate::place::TestNamespace;
use crate::troubles::{Scene, Trouble, meddle};
use crate::verdict::{each_once, until_all_run};

/// How long it may take until all is as it should be, when nothing burns any more: the longest pause
/// after failures is five minutes.
const CALM: Duration = Duration::from_secs(600);

/// How large the trial is, and which it is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Draws the faults and the order of the troubles.
    seed: u64,
    /// How often everything happens.
    rounds: u64,
    /// How many teams there are by change request, and as many by commit.
    teams: usize,
    /// How many pipelines each has.
    applications: usize,
    /// How many of a hundred calls to forge and git meet a fault.
    percent: u64,
    /// How long each trouble lasts before the next.
    pause: Duration,
}

impl Size {
    /// A small one, unless `SLUICE_FIRE_ROUNDS` asks for so many rounds of the large one;
    /// `SLUICE_FIRE_SEED` says which.
    pub fn asked_for() -> Result<Size> {
        let number = |name: &str| {
            let text = std::env::var(name).ok().filter(|text| !text.is_empty());
            text.map(|text| text.parse().with_context(|| format!("{name} is to be a number"))).transpose()
        };
        let seed = number("SLUICE_FIRE_SEED")?.unwrap_or(1);
        Ok(match number("SLUICE_FIRE_ROUNDS")? {
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
    // It lives as long as this process: what it holds ends with it.
    let shared: &'static Shared = Box::leak(Box::new(Shared::start().await?));
    let forge = Arc::new(Forge::start()?);
    let place = TestNamespace::on(shared, "fire").await?;
    let mut fleet = Fleet::at(place, Shape::Helm, Duration::from_secs(1), Some(forge.clone()))?;
    let proposes = |i: usize| if i % 2 == 1 { By::Merging } else { By::PullRequest };
    for (by, i) in (0..size.teams).flat_map(|i| [(proposes(i), i), (By::Commit, i)]) {
        let team = format!("{}-{i}", if by == By::Commit { "commits" } else { "requests" });
        let applications: Vec<String> = (0..size.applications).map(|i| format!("{team}-{i}")).collect();
        fleet.team(&team, by, &applications, "1.0.0").await?;
    }
    let mut scene = Scene::set(&fleet.place, size.pause).await?;
    let outcome = tokio::select! {
        done = trial(size, &fleet, &forge, &mut scene) => done,
        stopped = merge_for_ever(&fleet) => stopped,
    };
    outcome.with_context(|| format!("{size:?}; calls: {:#?}; {}", forge.door().counts(), scene.tail()))
}

async fn merge_for_ever(fleet: &Fleet) -> Result<()> {
    loop {
        fleet.merge_all().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn trial(size: Size, fleet: &Fleet, forge: &Forge, scene: &mut Scene) -> Result<()> {
    until_all_run(fleet, "1.0.0", calm()).await?;
    let mut minor = 0;
    for round in 1..=size.rounds {
        let seed = draw(size.seed, round);
        let (started, touched) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let client = fleet.place.shared.hub.client().await?;
        let somebody = tokio::spawn(meddle(client, fleet.place.namespace.clone(), touched.clone()));
        forge.door().plan(Plan::Random { seed, percent: size.percent });
        for (i, trouble) in Trouble::shuffled(seed).into_iter().enumerate() {
            if i % 3 == 0 {
                minor += 1;
                fleet.release(&format!("1.{minor}.0")).await?;
            }
            scene.meets(trouble).await.with_context(|| format!("{trouble:?}"))?;
            forge.unbroken()?;
        }
        let faults = forge.door().faults();
        let calls = forge.door().plan(Plan::Quiet);
        somebody.abort();
        let burned = started.elapsed();
        minor += 1;
        let last = format!("1.{minor}.0");
        fleet.release(&last).await?;
        until_all_run(fleet, &last, calm()).await?;
        let promotions = verify(fleet, forge, &last).await?;
        let (counts, writes) = (scene.counts, touched.load(Ordering::Relaxed));
        println!(
            "round {round}: {promotions} promotions so far, {faults} faults at {} calls, {writes} writes by somebody \
             else, {} clashes so far, {counts:?}, duplicates 0, lost 0; burned {burned:.0?}, calm {:.0?} later",
            calls.len(),
            scene.clashes(),
            started.elapsed() - burned,
        );
    }
    Ok(())
}

/// What is left of [`CALM`] from now on.
fn calm() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || CALM.saturating_sub(begun.elapsed())
}

/// Each revision went into each environment once; the last one everywhere. Returns how many promotions
/// there are.
async fn verify(fleet: &Fleet, forge: &Forge, last: &str) -> Result<usize> {
    let all = each_once(fleet, last, CALM, &[Phase::Succeeded, Phase::Superseded, Phase::Failed]).await?;
    forge.unbroken()?;
    let delivered = fleet.deliveries(last)?.0.len();
    ensure!(delivered > 0, "nothing was delivered");
    Ok(all.len())
}
