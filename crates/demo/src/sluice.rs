//! Runs the binary: as the controller, and as the command line.

use crate::output;
use crate::servers::DemoFleet;
use anyhow::{Context, Result, ensure};
use sluice_testkit::ProcessGuard;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval for checking whether the controller still runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);

/// The binary and the running controller. Dropping it ends the controller.
pub struct Sluice {
    controller: ProcessGuard,
    binary: PathBuf,
    kubeconfig: PathBuf,
    /// The address of the page.
    pub page: String,
    /// The address of the controller's metrics.
    pub metrics: String,
    /// The log of the controller.
    pub log: PathBuf,
}

impl Sluice {
    /// Starts the controller, with the page at this address. Its cache and its log are in the fleet's folder.
    pub fn start(binary: &Path, fleet: &DemoFleet, page: &str) -> Result<Sluice> {
        let folder = fleet.folder();
        let metrics = free_address()?;
        let log = folder.join("sluice.log");
        let mut command = std::process::Command::new(binary);
        command.args([
            "controller",
            "--log-encoding=console",
            "--health-addr=0",
            "--hook-addr=0",
            "--api-actions",
        ]);
        // The demo's git server and forge are on this machine.
        command.arg("--insecure-git-http");
        command.arg("--leader-election-namespace=sluice-system");
        command.arg("--kubeconfig").arg(fleet.controller_kubeconfig());
        command.arg("--metrics-addr").arg(&metrics);
        command.arg("--api-addr").arg(page);
        command.arg("--cache-dir").arg(folder.join("cache"));
        let controller = ProcessGuard::start("sluice controller", &command, &log)?;
        let metrics = format!("http://{metrics}/metrics");
        let page = format!("http://{page}/");
        Ok(Sluice { controller, binary: binary.into(), kubeconfig: fleet.kubeconfig(), page, metrics, log })
    }

    /// Waits until the controller ends. The error holds the end of its log.
    pub async fn ended(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.controller.check() {
                return error;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns the end of the log, if the controller still runs. Otherwise the error of [`Sluice::ended`] holds it.
    pub fn log_tail(&mut self) -> Option<String> {
        self.controller.ended().is_none().then(|| self.controller.log_tail())
    }

    /// Returns a command as a person types it. The kubeconfig has the namespace.
    pub fn typed(&self, arguments: &str) -> String {
        let binary = std::env::current_dir().ok().and_then(|here| self.binary.strip_prefix(here).ok());
        let binary = binary.unwrap_or(&self.binary).display();
        format!("KUBECONFIG={} {binary} {arguments}", self.kubeconfig.display())
    }

    /// Runs a command, and prints it with its output.
    pub async fn show(&self, arguments: &str) -> Result<()> {
        output::command(&format!("sluice {arguments}"));
        output::printed(&self.run(arguments).await?);
        Ok(())
    }

    /// Runs a command, and returns its output on stdout and stderr.
    async fn run(&self, arguments: &str) -> Result<String> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(arguments.split(' ')).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output())
            .await
            .with_context(|| format!("sluice {arguments} did not end within {COMMAND_TIMEOUT:?}"))?
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "sluice {arguments} failed ({}): {}", output.status, text.trim());
        Ok(text)
    }
}

/// Returns a free address of this machine.
pub fn free_address() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.to_string())
}
