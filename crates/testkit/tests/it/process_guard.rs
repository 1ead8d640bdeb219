//! No server and no folder is left, however a test ends.

use crate::run;
use anyhow::{Context, Result, ensure};
use sluice_testkit::{ControlPlane, GitServer, ProcessGuard, Scratch, eventually};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const VICTIM: &str = "SLUICE_TESTKIT_VICTIM";
const TIMEOUT: Duration = Duration::from_secs(20);

fn sleep_command(seconds: u32) -> Command {
    let mut command = Command::new("sleep");
    command.arg(seconds.to_string());
    command
}

async fn until_gone(path: &Path) -> Result<()> {
    eventually(TIMEOUT, || async {
        ensure!(!path.exists(), "{} is still there", path.display());
        Ok(())
    })
    .await
}

fn process_folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

#[test]
fn dropping_the_guard_ends_the_server_and_dropping_a_scratch_removes_the_folder() -> Result<()> {
    let scratch = Scratch::new("test")?;
    let folder = scratch.path().to_owned();
    let guard = ProcessGuard::start("sleep", &sleep_command(600), &folder.join("log"))?;
    let pid = guard.pid();
    ensure!(process_folder(pid).exists());
    drop(guard);
    ensure!(!process_folder(pid).exists(), "drop did not wait until the server ended");
    drop(scratch);
    ensure!(!folder.exists());
    Ok(())
}

#[test]
fn the_error_of_a_server_that_ends_early_has_its_log() -> Result<()> {
    run(async {
        let scratch = Scratch::new("test")?;
        let mut command = Command::new("sh");
        command.args(["-c", "echo this flag is unknown >&2; exit 3"]);
        let mut guard = ProcessGuard::start("broken", &command, &scratch.path().join("log"))?;
        let error = eventually(TIMEOUT, || {
            let checked = guard.check();
            async move { checked.err().context("still running") }
        })
        .await?;
        let text = error.to_string();
        ensure!(text.contains("exit status: 3") && text.contains("this flag is unknown"), "{text}");
        Ok(())
    })
}

#[test]
fn a_panic_ends_the_server() -> Result<()> {
    let scratch = Scratch::new("test")?;
    let guard = ProcessGuard::start("sleep", &sleep_command(600), &scratch.path().join("log"))?;
    let pid = guard.pid();
    let thread = std::thread::spawn(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    ensure!(thread.join().is_err());
    ensure!(!process_folder(pid).exists());
    Ok(())
}

/// Starts all servers, prints their process ids and folders, and waits to be killed. It is not a test: it does nothing
/// unless the next test runs it.
#[test]
fn victim() -> Result<()> {
    if std::env::var_os(VICTIM).is_none() {
        return Ok(());
    }
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("victim").await?;
        let git = GitServer::start()?;
        let repo = git.create_repo("fleet", &[("a", "b")])?;
        let folder = cluster.kubeconfig_path();
        println!(
            "\nVICTIM {} {} {}",
            cluster.pid().context("runs")?,
            folder.display(),
            repo.folder().display()
        );
        std::future::pending::<()>().await;
        Ok(())
    })
}

#[test]
fn killing_the_process_leaves_no_server_and_no_folder() -> Result<()> {
    run(async {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "process_guard::victim", "--nocapture"])
            .env(VICTIM, "1")
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("piped")?);
        let line = stdout.lines().find(|l| l.as_ref().is_ok_and(|l| l.starts_with("VICTIM")));
        let line = line.context("the victim ended before its servers ran")??;
        let fields: Vec<&str> = line.split(' ').collect();
        let server = process_folder(fields[1].parse()?);
        let control_plane = Path::new(fields[2]).parent().and_then(Path::parent).context("a folder")?;
        let repositories = Path::new(fields[3]).parent().and_then(Path::parent).context("a folder")?;
        let etcd = etcd_of(control_plane)?;
        ensure!(server.exists() && etcd.exists() && control_plane.exists() && repositories.exists());
        child.kill()?;
        child.wait()?;
        for path in [&server, &etcd, control_plane, repositories] {
            until_gone(path).await?;
        }
        Ok(())
    })
}

/// Returns the folder in /proc of the etcd with the store of this control plane.
fn etcd_of(control_plane: &Path) -> Result<PathBuf> {
    let data = control_plane.join("etcd").display().to_string();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let line = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        if line.split('\0').next().is_some_and(|p| p.ends_with("/etcd")) && line.contains(&data) {
            return Ok(path);
        }
    }
    anyhow::bail!("no etcd serves {data}")
}
