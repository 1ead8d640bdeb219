//! Fifty pipelines of ten teams, by pull requests and by commits, with always many promotions in
//! flight while the controller is killed every few seconds, ten times, with its temporary files kept
//! and with them wiped: none is lost, none is made twice.

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

const PIPELINES: usize = 50;
/// The teams, and how many pipelines each has. Fewer by pull request: each push and each merge takes
/// Gitea half a second of a core, and then it looks at every other open pull request again.
const TEAMS: [(By, usize, usize); 2] = [(By::PullRequest, 5, 2), (By::Commit, 5, 8)];
const KILLS: usize = 10;
/// How long one pipeline may be the last, on a machine that does much else.
const LATE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(5);
/// So many promotions are in flight when it is killed, most times.
const MANY: usize = 25;

#[test]
fn killed_ten_times_and_nothing_is_lost_or_made_twice() -> Result<()> {
    run(async {
        let mut fleet = Fleet::new("swarm", Shape::Helm, Duration::from_secs(2)).await?;
        for (by, teams, applications) in TEAMS {
            for _ in 0..teams {
                let team = format!("team-{}", fleet.teams.len());
                let applications: Vec<String> = (0..applications).map(|i| format!("{team}-{i}")).collect();
                fleet.team(&team, by, &applications, "1.0.0").await?;
            }
        }
        let (hub, namespace) = (&fleet.place.shared.hub, &fleet.place.namespace);
        let mut controller = Controller::start(hub, namespace, &["--poll-interval=3s"])?;
        let outcome = tokio::select! {
            done = swarm(&fleet, &mut controller) => done,
            stopped = merge_for_ever(&fleet) => stopped,
        };
        outcome.with_context(|| controller.tail())
    })
}

async fn swarm(fleet: &Fleet, controller: &mut Controller) -> Result<()> {
    until_all_run(fleet, "1.0.0", || LATE).await?;
    let started = Instant::now();
    let (told, kills) = watch::channel(0);
    let (in_flight, last) =
        tokio::try_join!(kill_often(fleet, controller, told), release_often(fleet, kills))?;
    println!("in flight at each kill: {in_flight:?}");
    let many = in_flight.iter().filter(|n| **n >= MANY).count();
    ensure!(many >= KILLS - 2, "too little was in flight when it was killed: {in_flight:?}");
    until_all_run(fleet, &last, || LATE).await?;
    println!("{PIPELINES} pipelines, {KILLS} kills: all at {last} after {:?}", started.elapsed());
    verify(fleet, &last).await
}

/// Kills as soon as there is something to lose, and tells how often it has; returns how many
/// promotions were in flight each time.
async fn kill_often(
    fleet: &Fleet,
    controller: &mut Controller,
    told: watch::Sender<usize>,
) -> Result<Vec<usize>> {
    eventually(SOON, || async {
        ensure!(in_flight(fleet).await? >= MANY, "the first release has led to few promotions");
        Ok(())
    })
    .await?;
    let mut going = Vec::new();
    let mut clock = tokio::time::interval(PAUSE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for kill in 1..=KILLS {
        clock.tick().await;
        going.push(in_flight(fleet).await?);
        controller.restart(kill % 2 == 0)?;
        told.send_replace(kill);
    }
    Ok(going)
}

/// Releases a version, and the next one when few promotions are left or half of the kills are over;
/// returns the last one.
async fn release_often(fleet: &Fleet, mut kills: watch::Receiver<usize>) -> Result<String> {
    let mut half = false;
    for minor in 1.. {
        let version = format!("1.{minor}.0");
        fleet.release(&version).await?;
        // It ends with the one who kills.
        while kills.changed().await.is_ok() && *kills.borrow() < KILLS {
            if !half && *kills.borrow() >= KILLS / 2 || in_flight(fleet).await? < MANY {
                break;
            }
        }
        half |= *kills.borrow() >= KILLS / 2;
        if *kills.borrow() == KILLS {
            return Ok(version);
        }
    }
    bail!("there are no more versions")
}

async fn in_flight(fleet: &Fleet) -> Result<usize> {
    let all = fleet.place.promotions().list(&ListParams::default()).await?;
    Ok(all.iter().filter(|p| !has_ended(p)).count())
}

async fn merge_for_ever(fleet: &Fleet) -> Result<()> {
    loop {
        fleet.merge_all().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Each revision went into each environment once: one record, and one merge or commit at most.
async fn verify(fleet: &Fleet, last: &str) -> Result<()> {
    let all = each_once(fleet, last, SOON, &[Phase::Succeeded, Phase::Superseded]).await?;
    let delivered = fleet.deliveries(last)?.0.len();
    println!("{} promotions recorded, {delivered} delivered, each once", all.len());
    ensure!(all.len() >= 3 * PIPELINES && delivered >= 2 * PIPELINES, "fewer promotions than this is about");
    Ok(())
}
