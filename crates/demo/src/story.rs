//! The story: a version comes to dev by a commit, Sluice carries it to staging by itself, and before
//! prod it waits for a person.

use crate::fleet::Fleet;
use crate::manifests::{FIRST, NEXT};
use crate::say;
use crate::sluice::Sluice;
use crate::tale::{self, Seen};
use anyhow::{Context, Result, anyhow};
use sluice_api::promotion::Phase;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the whole story may take, a person's time to think left out.
const DEADLINE: Duration = Duration::from_secs(180);

/// The environments, in order.
const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];

/// What is waited for, and until when.
struct Wait<'a> {
    deadline: Instant,
    seen: &'a mut watch::Receiver<Seen>,
    sluice: &'a mut Sluice,
}

/// Tells it; without `once`, until somebody ends it.
pub async fn tell(once: bool, binary: &Path) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let fleet = tokio::time::timeout(DEADLINE, Fleet::start())
        .await
        .with_context(|| format!("the servers did not start within {DEADLINE:?}"))??;
    fleet.settle().await?;
    say::done(&format!("podinfo {FIRST} runs in dev (cluster dev), staging and prod (cluster live)"));
    let mut sluice = Sluice::start(binary, &fleet)?;
    say::done("sluice controller runs, with the rights that deploy/ grants and no others");
    fleet.pipeline().await?;
    say::done("the Pipeline is applied: dev → staging by itself, → prod when a person approves");
    let (tell, mut seen) = watch::channel(Seen::default());
    let client = fleet.hub.client().await?;
    let mut wait = Wait { deadline, seen: &mut seen, sluice: &mut sluice };
    let ended = tokio::select! {
        error = tale::follow(client, tell) => Err(error),
        ended = chapters(once, &fleet, &mut wait) => ended,
    };
    if ended.is_err() {
        last_words(&mut sluice).await;
    }
    ended
}

async fn chapters(once: bool, fleet: &Fleet, wait: &mut Wait<'_>) -> Result<()> {
    let all_run_the_first = |seen: &Seen| ENVIRONMENTS.iter().all(|e| seen.runs(e, FIRST));
    wait.until(&format!("every environment to run {FIRST}"), all_run_the_first).await?;
    wait.sluice.show("get pipelines").await?;

    say::pause();
    say::action(&format!("a person commits podinfo {NEXT} into dev and pushes"));
    fleet.release(NEXT)?;
    wait.until(&format!("{NEXT} to be promoted into staging"), |seen| {
        seen.phase("staging", NEXT) == Some(Phase::Succeeded)
    })
    .await?;
    wait.until(&format!("{NEXT} to wait for an approval before prod"), |seen| {
        seen.waits_for_approval("prod", NEXT)
    })
    .await?;
    wait.sluice.show("get pipelines").await?;
    wait.sluice.show("get targets podinfo").await?;
    if once { approve(wait).await } else { stay(fleet, wait).await }
}

/// What a person does in the other case.
async fn approve(wait: &mut Wait<'_>) -> Result<()> {
    wait.sluice.show("approve podinfo --environment prod").await?;
    say::pause();
    wait.until(&format!("{NEXT} to be promoted into prod"), |seen| {
        seen.phase("prod", NEXT) == Some(Phase::Succeeded) && seen.runs("prod", NEXT)
    })
    .await?;
    wait.sluice.show("get promotions").await?;
    say::pause();
    Ok(())
}

/// Says what one can do, and goes on telling what happens.
async fn stay(fleet: &Fleet, wait: &mut Wait<'_>) -> Result<()> {
    say::pause();
    say::action("it is your turn; type in another terminal, in this folder:");
    println!("\n  # let {NEXT} pass into prod");
    println!("  {}", wait.sluice.typed("approve podinfo --environment prod"));
    println!("\n  # what runs where, and the story so far");
    println!("  {}", wait.sluice.typed("get targets podinfo"));
    println!("  {}", wait.sluice.typed("get promotions -o wide"));
    println!("\n  # the next release");
    println!("  {}", fleet.release_command("6.2.0"));
    println!("\n  kubeconfig  {} (contexts hub, dev, live)", fleet.kubeconfig().display());
    println!("  repository  {}", fleet.checkout().display());
    println!("  log         {}", wait.sluice.log.display());
    println!("  metrics     {}\n", wait.sluice.metrics);
    say::waiting("what happens is told here; Ctrl-C ends everything");
    Err(wait.sluice.ended().await)
}

impl Wait<'_> {
    /// Waits until the hub shows something; fails when the controller ends or time is up.
    async fn until(&mut self, what: &str, holds: impl FnMut(&Seen) -> bool) -> Result<()> {
        let mut holds = holds;
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::select! {
            seen = tokio::time::timeout(left, self.seen.wait_for(|seen| holds(seen))) => match seen {
                Ok(seen) => seen.map(drop).context("nobody watches the hub any more"),
                Err(_) => Err(anyhow!("waited for {what}, and {DEADLINE:?} are over")),
            },
            error = self.sluice.ended() => Err(error.context(format!("waited for {what}"))),
        }
    }
}

/// The last status and the end of the log: what one needs to see why it went wrong.
async fn last_words(sluice: &mut Sluice) {
    for command in ["get targets podinfo", "get promotions -o wide"] {
        if let Err(error) = sluice.show(command).await {
            say::failed(&format!("{error:#}"));
        }
    }
    if let Some(log) = sluice.log_tail() {
        println!("\nthe end of the controller's log:\n{log}\n");
    }
}
