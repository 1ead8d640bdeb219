//! The real binary: as the controller, and as the command line.

use crate::fleet::Fleet;
use crate::say;
use anyhow::{Context, Result, ensure};
use sluice_testkit::Leash;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long a command may take.
const COMMAND_DEADLINE: Duration = Duration::from_secs(30);
/// How often it is looked whether the controller still runs.
const LOOK: Duration = Duration::from_millis(300);

/// The binary and the running controller; dropping it ends the controller.
pub struct Sluice {
    controller: Leash,
    binary: PathBuf,
    kubeconfig: PathBuf,
    /// Where the controller serves its metrics.
    pub metrics: String,
    /// Its log.
    pub log: PathBuf,
}

impl Sluice {
    /// Starts the controller. Its cache and its log are in the fleet's folder.
    pub fn start(binary: &Path, fleet: &Fleet) -> Result<Sluice> {
        let folder = fleet.folder();
        let metrics = free_address()?;
        let log = folder.join("sluice.log");
        let mut command = std::process::Command::new(binary);
        command.args(["controller", "--log-encoding=console", "--health-addr=0", "--hook-addr=0"]);
        // The demo's git server and forge are on this machine.
        command.arg("--insecure-git-http");
        command.arg("--leader-election-namespace=sluice-system");
        command.arg("--kubeconfig").arg(fleet.controller_kubeconfig());
        command.arg("--metrics-addr").arg(&metrics);
        command.arg("--cache-dir").arg(folder.join("cache"));
        let controller = Leash::start("sluice controller", &command, &log)?;
        let metrics = format!("http://{metrics}/metrics");
        Ok(Sluice { controller, binary: binary.into(), kubeconfig: fleet.kubeconfig(), metrics, log })
    }

    /// Comes back, with the end of its log, when the controller has ended.
    pub async fn ended(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.controller.check() {
                return error;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The end of the log of a controller that still runs; of one that ended the error tells it.
    pub fn log_tail(&mut self) -> Option<String> {
        self.controller.ended().is_none().then(|| self.controller.log_tail())
    }

    /// A command as a person would type it. The kubeconfig knows the namespace.
    pub fn typed(&self, arguments: &str) -> String {
        let binary = std::env::current_dir().ok().and_then(|here| self.binary.strip_prefix(here).ok());
        let binary = binary.unwrap_or(&self.binary).display();
        format!("KUBECONFIG={} {binary} {arguments}", self.kubeconfig.display())
    }

    /// Runs a command and shows it with what it printed.
    pub async fn show(&self, arguments: &str) -> Result<()> {
        say::command(&format!("sluice {arguments}"));
        say::printed(&self.run(arguments).await?);
        Ok(())
    }

    /// Runs a command; returns what it printed to both of its ends.
    async fn run(&self, arguments: &str) -> Result<String> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(arguments.split(' ')).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_DEADLINE, command.output())
            .await
            .with_context(|| format!("sluice {arguments} did not end within {COMMAND_DEADLINE:?}"))?
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "sluice {arguments} failed ({}): {}", output.status, text.trim());
        Ok(text)
    }
}

/// An address on this machine that nobody serves.
fn free_address() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.to_string())
}
