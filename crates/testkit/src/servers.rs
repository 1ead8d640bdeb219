//! Where the servers' binaries are, and how one is started: a free port, a log, and a wait that
//! ends at once when the server does.

use crate::{Leash, eventually};
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a server may take until it is ready; generous, because tests share few cores.
const READY_DEADLINE: Duration = Duration::from_secs(90);

/// How often a server is started again because another process took its port first.
const PORT_TRIES: usize = 4;

/// The folder with kube-apiserver and etcd; builds them when missing.
///
/// # Errors
/// When they cannot be built; the script says what is missing.
pub fn controlplane_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    built(&FOLDER, "controlplane")
}

/// The folder with gitea and its static files; builds it when missing.
///
/// # Errors
/// When it cannot be built; the script says what is missing.
pub fn forge_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    built(&FOLDER, "forge")
}

/// The folder with the CRDs of Flux and of GitopsCluster; fetches them when missing.
///
/// # Errors
/// When they cannot be fetched; the script says what is missing.
pub fn crds_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    built(&FOLDER, "crds")
}

fn built(cell: &OnceLock<Result<PathBuf, String>>, what: &str) -> Result<PathBuf> {
    let folder = cell.get_or_init(|| build(what).map_err(|e| format!("{e:#}")));
    folder.clone().map_err(anyhow::Error::msg)
}

fn build(what: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/controlplane/build.sh");
    let output = Command::new("bash")
        .arg(&script)
        .arg(what)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {} with bash", script.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    if !output.status.success() || last.is_empty() {
        bail!("{} {what} failed ({}): run it by hand to see why", script.display(), output.status);
    }
    Ok(PathBuf::from(last))
}

/// A port on 127.0.0.1 that nobody listens on, and that this process was not given before.
pub(crate) fn free_port() -> Result<u16> {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        if given.insert(port) {
            return Ok(port);
        }
    }
}

/// Starts a server on a free port, and on another one when that was taken meanwhile.
pub(crate) async fn start_on_free_port<F, Fut>(mut start: F) -> Result<(Leash, u16)>
where
    F: FnMut(u16) -> Fut,
    Fut: Future<Output = Result<Leash>>,
{
    let mut tries = 0;
    loop {
        let port = free_port()?;
        tries += 1;
        match start(port).await {
            Ok(leash) => return Ok((leash, port)),
            Err(e) if tries < PORT_TRIES && is_port_taken(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").to_ascii_lowercase().contains("address already in use")
}

/// Starts `command` and waits until `probe` succeeds; fails at once when the server ends.
pub(crate) async fn start_ready<F, Fut>(
    name: &str,
    command: &Command,
    log: &Path,
    mut probe: F,
) -> Result<Leash>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut leash = Leash::start(name, command, log)?;
    let outcome = eventually(READY_DEADLINE, || {
        let gone = leash.check();
        let attempt = probe();
        async move {
            match gone {
                Err(gone) => Ok(Err(gone)),
                Ok(()) => attempt.await.map(Ok),
            }
        }
    })
    .await;
    match outcome {
        Ok(Ok(())) => Ok(leash),
        Ok(Err(gone)) => Err(gone),
        Err(e) => Err(e.context(format!("{name} is not ready; the end of its log:\n{}", leash.log_tail()))),
    }
}
