//! The controller as users run it: the release binary, as a process of its own.

use crate::options::Options;
use anyhow::{Context, Result, bail};
use sluice_testkit::{Cluster, Leash, Scratch};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A running controller; dropping it ends it.
pub struct Controller {
    leash: Leash,
    metrics: String,
    http: reqwest::Client,
    /// When it was started.
    pub begun: Instant,
    _scratch: Scratch,
}

impl Controller {
    /// Starts it on a cluster, with an empty cache of repositories.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(options: &Options, cluster: &Cluster) -> Result<Controller> {
        Controller::start_with(options, cluster, &["--hook-addr=0"])
    }

    /// The same with further flags.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(options: &Options, cluster: &Cluster, flags: &[&str]) -> Result<Controller> {
        let scratch = Scratch::new("bench")?;
        let metrics = Controller::free_address()?;
        let mut command = Command::new(&options.sluice);
        command.arg("controller").arg("--kubeconfig").arg(cluster.kubeconfig_path());
        command.arg(format!("--metrics-addr={metrics}")).arg("--health-addr=0").args(flags);
        command.arg("--cache-dir").arg(scratch.folder("cache")?);
        command.args(["--log-encoding=console", "--insecure-git-http"]);
        // One that is killed and started again waits for no Lease to run out.
        if !flags.contains(&"--leader-elect") {
            command.arg("--leader-elect=false");
        }
        if !flags.iter().any(|flag| flag.starts_with("--poll-interval")) {
            command.arg("--poll-interval=2s");
        }
        let begun = Instant::now();
        let leash = Leash::start("sluice", &command, &scratch.path().join("sluice.log"))?;
        let metrics = format!("http://{metrics}/metrics");
        Ok(Controller { leash, metrics, http: reqwest::Client::new(), begun, _scratch: scratch })
    }

    /// An address of this machine that nobody listens on.
    ///
    /// # Errors
    /// When there is none.
    pub fn free_address() -> Result<String> {
        Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.leash.pid()
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// When it does not run.
    pub fn terminate(&self) -> Result<()> {
        self.leash.terminate()
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.leash.log_tail()
    }

    /// The sum of its metrics whose lines begin so; 0 where there is none yet.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, start: &str) -> Result<f64> {
        let text = self.http.get(&self.metrics).send().await?.text().await?;
        let lines = text.lines().filter(|line| line.starts_with(start));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    /// Waits until it has read its clusters and each of so many pipelines had its turn after that;
    /// returns how long that took from the start of the process.
    ///
    /// # Errors
    /// When it ends before, or takes longer than two minutes.
    pub async fn settled(&mut self, pipelines: usize) -> Result<Duration> {
        while self.begun.elapsed() < Duration::from_secs(120) {
            self.leash.check()?;
            let up = self.metric("sluice_clusters{state=\"up\"}").await.unwrap_or_default();
            let due = self.metric("sluice_due_pipelines").await.unwrap_or(1.0);
            let turns = self.metric("sluice_turns_total").await.unwrap_or_default();
            if up > 0.0 && due == 0.0 && turns >= pipelines as f64 {
                return Ok(self.begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the controller did not come to rest:\n{}", self.log())
    }
}

/// Runs the binary once, and tells how long it took.
///
/// # Errors
/// When it cannot be run or fails.
pub fn run(sluice: &Path, arguments: &[&str]) -> Result<Duration> {
    let begun = Instant::now();
    let output = Command::new(sluice).args(arguments).output().context("cannot run sluice")?;
    let took = begun.elapsed();
    if !output.status.success() {
        bail!("sluice {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}
