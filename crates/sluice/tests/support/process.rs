//! The controller as a process that can be killed and started again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_testkit::{Cluster, ProcessGuard, Scratch};

/// A controller process that handles the pipelines of one namespace, or of all if that is empty.
pub struct Controller {
    hub: PathBuf,
    namespace: String,
    extra: Vec<String>,
    variables: Vec<(String, PathBuf)>,
    scratch: Scratch,
    running: Option<ProcessGuard>,
}

impl Controller {
    /// Starts a controller. It polls forges every half second unless `extra` has a flag for that.
    pub fn start(hub: &Cluster, namespace: &str, extra: &[&str]) -> Result<Controller> {
        Controller::start_at(hub.kubeconfig_path(), namespace, extra, &[])
    }

    /// Starts one of several controllers that share the pipelines. Its name in the Leases begins with the name of
    /// its host.
    pub fn replica(host: &str, hub: PathBuf, namespace: &str, extra: &[&str]) -> Result<Controller> {
        let leases = format!("--leader-election-namespace={namespace}");
        let extra = [extra, &["--leader-elect", &leases]].concat();
        Controller::start_at(hub, namespace, &extra, &[("HOSTNAME", Path::new(host))])
    }

    /// Starts a controller with this kubeconfig and these environment variables.
    pub fn start_at(
        hub: PathBuf,
        namespace: &str,
        extra: &[&str],
        variables: &[(&str, &Path)],
    ) -> Result<Controller> {
        let mut controller = Controller {
            hub,
            namespace: namespace.into(),
            extra: extra.iter().map(|s| s.to_string()).collect(),
            variables: variables
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_path_buf()))
                .collect(),
            scratch: Scratch::new("controller")?,
            running: None,
        };
        controller.launch(None)?;
        Ok(controller)
    }

    /// Returns the path of the log file.
    pub fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn launch(&mut self, fault: Option<&str>) -> Result<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(["controller", "--health-addr=0", "--log-encoding=console"]);
        // The git server and the forge are on this machine.
        command.arg("--insecure-git-http");
        for port in ["--api-addr", "--hook-addr", "--metrics-addr"] {
            if !self.extra.iter().any(|e| e.starts_with(port)) {
                command.arg(format!("{port}=0"));
            }
        }
        // What only views show would make each start slower.
        if !self.extra.iter().any(|e| e.starts_with("--observe")) {
            command.arg("--observe=targets");
        }
        // After a kill, the restarted controller would wait until its own Lease expires.
        if !self.extra.iter().any(|e| e.starts_with("--leader-elect")) {
            command.arg("--leader-elect=false");
        }
        if !self.namespace.is_empty() {
            command.args(["--watch-namespace", &self.namespace]);
        }
        if !self.extra.iter().any(|e| e.starts_with("--poll-interval")) {
            command.arg("--poll-interval=500ms");
        }
        command.arg("--kubeconfig").arg(&self.hub).arg("--cache-dir").arg(self.scratch.path().join("cache"));
        // The test removes the temporary files that a killed controller leaves.
        command.args(&self.extra).env("TMPDIR", self.scratch.path()).envs(self.variables.iter().cloned());
        match fault {
            Some(point) => command.env("SLUICE_FAULT_POINT", point),
            None => command.env_remove("SLUICE_FAULT_POINT"),
        };
        self.running = Some(ProcessGuard::start("sluice", &command, &self.log())?);
        Ok(())
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.running()?.pid())
    }

    /// Returns the peak memory of the process, in MiB.
    pub fn peak_memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid()?);
        let status = std::fs::read_to_string(path)
            .with_context(|| format!("the controller has ended: {}", self.tail()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? >> 10)
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops the process with SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.running()?.freeze()
    }

    /// Continues the stopped process.
    pub fn thaw(&self) -> Result<()> {
        self.running()?.thaw()
    }

    /// Ends the process with SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        self.running()?.terminate()
    }

    fn running(&self) -> Result<&ProcessGuard> {
        self.running.as_ref().context("the controller does not run")
    }

    /// Restarts the controller, with its temporary files kept or removed.
    pub fn restart(&mut self, keep_files: bool) -> Result<()> {
        self.kill();
        if !keep_files {
            wipe(&self.scratch.path().join("cache"))?;
        }
        self.launch(None)
    }

    /// Restarts the controller so that it kills itself at a fault point.
    pub fn restart_to_die_at(&mut self, point: &str) -> Result<()> {
        self.kill();
        self.launch(Some(point))
    }

    /// Waits until the process has ended on its own.
    pub async fn dies(&mut self, deadline: Duration) -> Result<()> {
        let started = std::time::Instant::now();
        while started.elapsed() < deadline {
            if self.running.as_mut().is_none_or(|r| r.ended().is_some()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the controller did not end: {}", self.tail())
    }

    /// Returns the last lines of the log.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

/// Removes a folder into which a git process that runs longer than its controller may still write.
fn wipe(folder: &Path) -> Result<()> {
    let started = std::time::Instant::now();
    loop {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(10) => {
                return Err(error).context("cannot wipe the cache");
            }
            // The next attempt must find that the folder does not exist.
            _ => std::thread::yield_now(),
        }
    }
}
