//! Many pipelines of several teams, by pull requests and by commits, with many promotions in flight at any time. The
//! controller is killed repeatedly, with its temporary files kept or removed. No promotion is lost, and none is made twice.
//! `make test` runs the small size, `make chaos` the large one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::api::ListParams;
use sluice_api::promotion::Phase;
use sluice_testkit::eventually;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::fleet::{By, Fleet, Shape};
use crate::place::SOON;
use crate::process::Controller;
use crate::run;
use crate::verdict::{each_once, has_ended, until_all_run};

/// How much happens.
struct Size {
    /// The strategy, the number of teams, and the number of pipelines of each. Fewer use pull requests, since each push and
    /// each merge takes half a second of a core in Gitea, which then checks every other open pull request again.
    teams: [(By, usize, usize); 2],
    kills: usize,
    /// How many promotions are in flight at every kill.
    in_flight: usize,
}

const SMALL: Size = Size { teams: [(By::PullRequest, 1, 2), (By::Commit, 2, 5)], kills: 3, in_flight: 8 };
const LARGE: Size = Size { teams: [(By::PullRequest, 5, 2), (By::Commit, 5, 8)], kills: 10, in_flight: 25 };

impl Size {
    /// The size of this run: `make chaos` sets `SLUICE_CHAOS_ROUNDS`.
    fn of_run() -> &'static Size {
        if std::env::var_os("SLUICE_CHAOS_ROUNDS").is_some() { &LARGE } else { &SMALL }
    }

    fn pipelines(&self) -> usize {
        self.teams.iter().map(|(_, teams, applications)| teams * applications).sum()
    }
}

/// How long one pipeline may take on a busy machine.
const LATE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(5);
/// How often the promotions in flight are counted between two kills.
const MOMENT: Duration = Duration::from_secs(1);
#[test]
fn nothing_is_lost_or_made_twice_when_the_controller_is_killed() -> Result<()> {
    run(async {
        let mut fleet = Fleet::new("swarm", Shape::Helm, Duration::from_secs(2)).await?;
        let size = Size::of_run();
        for (by, teams, applications) in size.teams {
            for _ in 0..teams {
                let team = format!("team-{}", fleet.teams.len());
                let applications: Vec<String> = (0..applications).map(|i| format!("{team}-{i}")).collect();
                fleet.team(&team, by, &applications, "1.0.0").await?;
            }
        }
        let (hub, namespace) = (&fleet.place.shared.hub, &fleet.place.namespace);
        let mut controller = Controller::start(hub, namespace, &["--poll-interval=3s", "--observe=all"])?;
        let outcome = tokio::select! {
            done = swarm(&fleet, &mut controller, size) => done,
            stopped = merge_forever(&fleet) => stopped,
        };
        outcome.with_context(|| controller.tail())
    })
}

async fn swarm(fleet: &Fleet, controller: &mut Controller, size: &Size) -> Result<()> {
    until_all_run(fleet, "1.0.0", || LATE).await?;
    let started = Instant::now();
    let (tx, kills) = watch::channel(0);
    let (in_flight, last) =
        tokio::try_join!(kill_often(fleet, controller, size, tx), release_often(fleet, size, kills))?;
    println!("in flight at each kill: {in_flight:?}");
    until_all_run(fleet, &last, || LATE).await?;
    println!(
        "{} pipelines, {} kills: all at {last} after {:?}",
        size.pipelines(),
        size.kills,
        started.elapsed()
    );
    verify(fleet, size, &last).await
}

/// Kills the controller repeatedly, each time when many promotions are in flight, and sends the number of kills.
/// Returns how many promotions were in flight each time.
async fn kill_often(
    fleet: &Fleet,
    controller: &mut Controller,
    size: &Size,
    tx: watch::Sender<usize>,
) -> Result<Vec<usize>> {
    let mut at_each_kill = Vec::new();
    let mut clock = tokio::time::interval(PAUSE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for kill in 1..=size.kills {
        clock.tick().await;
        at_each_kill.push(until_many_in_flight(fleet, size).await?);
        controller.restart(kill % 2 == 0)?;
        tx.send_replace(kill);
    }
    Ok(at_each_kill)
}

/// Releases a version, and the next one when few promotions are left or half of the kills are over;
/// returns the last one.
async fn release_often(fleet: &Fleet, size: &Size, mut kills: watch::Receiver<usize>) -> Result<String> {
    let mut half = false;
    for minor in 1.. {
        let version = format!("1.{minor}.0");
        fleet.release(&version).await?;
        until_many_in_flight(fleet, size).await?;
        loop {
            // The sender is gone after the last kill.
            if matches!(tokio::time::timeout(MOMENT, kills.changed()).await, Ok(Err(_))) {
                return Ok(version);
            }
            let past_half = *kills.borrow() >= size.kills / 2;
            if past_half != half || in_flight(fleet).await? < size.in_flight {
                half = past_half;
                break;
            }
        }
    }
    bail!("there are no more versions")
}

async fn until_many_in_flight(fleet: &Fleet, size: &Size) -> Result<usize> {
    eventually(SOON, || async {
        let count = in_flight(fleet).await?;
        ensure!(count >= size.in_flight, "only {count} promotions are in flight");
        Ok(count)
    })
    .await
}

async fn in_flight(fleet: &Fleet) -> Result<usize> {
    let all = fleet.place.promotions().list(&ListParams::default()).await?;
    Ok(all.iter().filter(|p| !has_ended(p)).count())
}

async fn merge_forever(fleet: &Fleet) -> Result<()> {
    loop {
        fleet.merge_all().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Checks that each revision was promoted into each environment once, with one record and at most one merge or
/// commit.
async fn verify(fleet: &Fleet, size: &Size, last: &str) -> Result<()> {
    let all = each_once(fleet, last, SOON, &[Phase::Succeeded, Phase::Superseded]).await?;
    let delivered = fleet.deliveries(last)?.0.len();
    println!("{} promotions recorded, {delivered} delivered, each once", all.len());
    let pipelines = size.pipelines();
    ensure!(all.len() >= 3 * pipelines && delivered >= 2 * pipelines, "there were too few promotions");
    Ok(())
}
