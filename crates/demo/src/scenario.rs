//! The scenario: a person commits a version into dev, Sluice promotes it to staging automatically, and waits for an
//! approval before prod.

use crate::hub_view::{self, HubView};
use crate::output;
use crate::servers::DemoFleet;
use crate::sluice::{Sluice, free_address};
use crate::versions::{FIRST, NEXT, SUGGESTED};
use anyhow::{Context, Result, anyhow};
use sluice_api::promotion::Phase;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time limit of the scenario, without the time that a person takes.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The environments, in order.
const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];

/// Waits for the view of the hub, with a deadline for all waits.
struct Waiter<'a> {
    deadline: Instant,
    view: &'a mut watch::Receiver<HubView>,
    sluice: &'a mut Sluice,
}

/// Runs the scenario. Without `once`, it runs until the caller drops it. With the fault, prod does not move after the approval.
pub async fn run(once: bool, has_fault: bool, binary: &Path) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let page = free_address()?;
    output::action(&format!("in a moment, the page is at http://{page}/"));
    let fleet = tokio::time::timeout(TIMEOUT, DemoFleet::start(has_fault))
        .await
        .with_context(|| format!("the servers did not start within {TIMEOUT:?}"))??;
    fleet.settle().await?;
    output::done(&format!("podinfo {FIRST} runs in dev (cluster dev), staging and prod (cluster live)"));
    let mut sluice = Sluice::start(binary, &fleet, &page)?;
    output::action(&format!("the page is at {}", sluice.page));
    output::more(&format!("sign in with the token in {}", fleet.token().display()));
    output::done("sluice controller runs, with the rights that deploy/ grants and no others");
    fleet.pipeline().await?;
    output::done("the Pipeline is applied: dev → staging automatically, → prod after an approval");
    let (sender, mut view) = watch::channel(HubView::default());
    let client = fleet.hub.client().await?;
    let mut wait = Waiter { deadline, view: &mut view, sluice: &mut sluice };
    let ended = tokio::select! {
        error = hub_view::follow(client, sender) => Err(error),
        ended = run_steps(once, &fleet, &mut wait) => ended,
    };
    if ended.is_err() {
        print_diagnosis(&mut sluice).await;
    }
    ended
}

async fn run_steps(once: bool, fleet: &DemoFleet, wait: &mut Waiter<'_>) -> Result<()> {
    let all_run_the_first = |view: &HubView| ENVIRONMENTS.iter().all(|e| view.runs(e, FIRST));
    wait.until(&format!("every environment to run {FIRST}"), all_run_the_first).await?;
    wait.sluice.show("get pipelines").await?;

    output::pause();
    output::action(&format!("a person commits podinfo {NEXT} into dev and pushes"));
    fleet.release(NEXT)?;
    wait.until(&format!("{NEXT} to be promoted into staging"), |view| {
        view.phase("staging", NEXT) == Some(Phase::Succeeded)
    })
    .await?;
    wait.until(&format!("{NEXT} to wait for an approval before prod"), |view| {
        view.waits_for_approval("prod", NEXT)
    })
    .await?;
    wait.sluice.show("get pipelines").await?;
    wait.sluice.show("get targets podinfo").await?;
    if once { approve(fleet, wait).await } else { wait_for_person(fleet, wait).await }
}

/// Approves the promotion, and repairs the fault, instead of a person.
async fn approve(fleet: &DemoFleet, wait: &mut Waiter<'_>) -> Result<()> {
    wait.sluice.show("approve podinfo --environment prod").await?;
    output::pause();
    if fleet.has_fault {
        wait.until(&format!("the promotion of {NEXT} into prod to find no marker"), |view| {
            view.has_reason("prod", NEXT, "NoMarker")
        })
        .await?;
        wait.sluice.show("explain podinfo -e prod").await?;
        output::pause();
        output::action("a person adds the marker to the file and pushes");
        fleet.repair()?;
    }
    wait.until(&format!("{NEXT} to be promoted into prod"), |view| {
        view.phase("prod", NEXT) == Some(Phase::Succeeded) && view.runs("prod", NEXT)
    })
    .await?;
    wait.sluice.show("get promotions").await?;
    output::pause();
    Ok(())
}

/// Prints what a person can do now, and waits until the controller ends.
async fn wait_for_person(fleet: &DemoFleet, wait: &mut Waiter<'_>) -> Result<()> {
    output::pause();
    if fleet.has_fault {
        output::action(
            "something is wrong: after the approval, prod does not move; the page says why and what to do",
        );
    }
    output::action(&format!("it is your turn: open {} and approve {NEXT} for prod", wait.sluice.page));
    println!("  sign in with the token in {}", fleet.token().display());
    output::action("or type in another terminal, in this folder:");
    println!("\n  # approve {NEXT} for prod");
    println!("  {}", wait.sluice.typed("approve podinfo --environment prod"));
    println!("\n  # the targets, and the promotions so far");
    println!("  {}", wait.sluice.typed("get targets podinfo"));
    println!("  {}", wait.sluice.typed("get promotions -o wide"));
    println!("\n  # the next release");
    println!("  {}", fleet.release_command(SUGGESTED));
    println!("\n  kubeconfig  {} (contexts hub, dev, live)", fleet.kubeconfig().display());
    println!("  repository  {}", fleet.checkout().display());
    println!("  log         {}", wait.sluice.log.display());
    println!("  metrics     {}\n", wait.sluice.metrics);
    output::waiting("changes are printed here; Ctrl-C ends the demo");
    Err(wait.sluice.ended().await)
}

impl Waiter<'_> {
    /// Waits for a condition on the view of the hub. Fails when the controller ends or the time is up.
    async fn until(&mut self, what: &str, condition: impl FnMut(&HubView) -> bool) -> Result<()> {
        let mut condition = condition;
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::select! {
            reached = tokio::time::timeout(left, self.view.wait_for(|view| condition(view))) => match reached {
                Ok(view) => view.map(drop).context("the watch of the hub has ended"),
                Err(_) => Err(anyhow!("waited for {what} for more than {TIMEOUT:?}")),
            },
            error = self.sluice.ended() => Err(error.context(format!("waited for {what}"))),
        }
    }
}

/// Prints the last statuses and the end of the log, to find the cause of a failure.
async fn print_diagnosis(sluice: &mut Sluice) {
    for command in ["get targets podinfo", "get promotions -o wide"] {
        if let Err(error) = sluice.show(command).await {
            output::failed(&format!("{error:#}"));
        }
    }
    if let Some(log) = sluice.log_tail() {
        println!("\nthe end of the controller's log:\n{log}\n");
    }
}
