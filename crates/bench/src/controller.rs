//! Runs the release binary as a controller.

use crate::options::BenchOptions;
use anyhow::{Context, Result, bail};
use sluice_testkit::{Cluster, ProcessGuard, Scratch};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A running controller; dropping it ends it.
pub struct ControllerProcess {
    process: ProcessGuard,
    metrics_url: String,
    http: reqwest::Client,
    /// The time of the start.
    pub started: Instant,
    _scratch: Scratch,
}

impl ControllerProcess {
    /// Starts a controller on a cluster, with an empty cache of repositories.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(options: &BenchOptions, cluster: &Cluster) -> Result<ControllerProcess> {
        ControllerProcess::start_with(options, cluster, &["--hook-addr=0"])
    }

    /// Starts a controller with further flags.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_with(
        options: &BenchOptions,
        cluster: &Cluster,
        flags: &[&str],
    ) -> Result<ControllerProcess> {
        let scratch = Scratch::new("bench")?;
        let metrics = ControllerProcess::free_address()?;
        let mut command = Command::new(&options.sluice);
        command.arg("controller").arg("--kubeconfig").arg(cluster.kubeconfig_path());
        command.arg(format!("--metrics-addr={metrics}")).arg("--health-addr=0").args(flags);
        if !flags.iter().any(|flag| flag.starts_with("--api-addr")) {
            command.arg("--api-addr=0");
        }
        command.arg("--cache-dir").arg(scratch.folder("cache")?);
        command.args(["--log-encoding=console", "--insecure-git-http"]);
        // A restarted controller would wait for the Lease of the killed one to expire.
        if !flags.contains(&"--leader-elect") {
            command.arg("--leader-elect=false");
        }
        if !flags.iter().any(|flag| flag.starts_with("--poll-interval")) {
            command.arg("--poll-interval=2s");
        }
        let started = Instant::now();
        let process = ProcessGuard::start("sluice", &command, &scratch.path().join("sluice.log"))?;
        let metrics_url = format!("http://{metrics}/metrics");
        Ok(ControllerProcess {
            process,
            metrics_url,
            http: reqwest::Client::new(),
            started,
            _scratch: scratch,
        })
    }

    /// Returns a free address of this machine.
    ///
    /// # Errors
    /// No port is free.
    pub fn free_address() -> Result<String> {
        Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// The process has ended.
    pub fn terminate(&self) -> Result<()> {
        self.process.terminate()
    }

    /// Returns the end of the log.
    pub fn log(&self) -> String {
        self.process.log_tail()
    }

    /// Returns the sum of the metrics whose lines begin with `start`; 0 if there are none yet.
    ///
    /// # Errors
    /// The controller does not answer.
    pub async fn metric(&self, start: &str) -> Result<f64> {
        let text = self.http.get(&self.metrics_url).send().await?.text().await?;
        let lines = text.lines().filter(|line| line.starts_with(start));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    /// Waits until the controller has read its clusters and reconciled as many pipelines; returns the time since the
    /// start of the process.
    ///
    /// # Errors
    /// The controller ends, or takes longer than two minutes.
    pub async fn settled(&mut self, pipelines: usize) -> Result<Duration> {
        while self.started.elapsed() < Duration::from_secs(120) {
            self.process.check()?;
            let up = self.metric("sluice_clusters{state=\"up\"}").await.unwrap_or_default();
            let due = self.metric("sluice_due_pipelines").await.unwrap_or(1.0);
            let reconciliations = self.metric("sluice_reconciles_total").await.unwrap_or_default();
            if up > 0.0 && due == 0.0 && reconciliations >= pipelines as f64 {
                return Ok(self.started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the controller did not settle:\n{}", self.log())
    }

    /// Waits until the controller has written nothing for two seconds.
    ///
    /// # Errors
    /// It does not say what it writes, or still writes after two minutes.
    pub async fn at_rest(&mut self) -> Result<()> {
        let (mut written, mut since) = (f64::NAN, Instant::now());
        while self.started.elapsed() < Duration::from_secs(120) {
            self.process.check()?;
            let now = self.metric("sluice_api_writes_total").await?;
            if now != written {
                (written, since) = (now, Instant::now());
            }
            if since.elapsed() > Duration::from_secs(2) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the controller still writes:\n{}", self.log())
    }
}

/// Runs the binary once, and returns the duration.
///
/// # Errors
/// The binary cannot be run, or fails.
pub fn run(sluice: &Path, arguments: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    let output = Command::new(sluice).args(arguments).output().context("cannot run sluice")?;
    let took = started.elapsed();
    if !output.status.success() {
        bail!("sluice {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}
