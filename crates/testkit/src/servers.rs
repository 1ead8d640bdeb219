//! Finds the binaries of the servers and starts them: on a free port, with a log, and with a wait until the server is
//! ready, which fails immediately if the server ends.

use crate::{ProcessGuard, eventually};
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a server may take to become ready; long, because tests share few cores.
const READY_TIMEOUT: Duration = Duration::from_secs(90);

/// The number of ports to try, if other processes take them first.
const MAX_PORT_TRIES: usize = 4;

/// Returns the folder with kube-apiserver and etcd; builds them if they are missing.
///
/// # Errors
/// They cannot be built; the script prints what is missing.
pub fn controlplane_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    build_once(&FOLDER, "controlplane")
}

/// Returns the folder with gitea and its static files; builds it if it is missing.
///
/// # Errors
/// It cannot be built; the script prints what is missing.
pub fn forge_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    build_once(&FOLDER, "forge")
}

/// Returns the folder with dex; builds it if it is missing.
///
/// # Errors
/// It cannot be built; the script prints what is missing.
pub fn issuer_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    build_once(&FOLDER, "issuer")
}

/// Returns the folder with the CRDs of Flux and of GitopsCluster; fetches them if they are missing.
///
/// # Errors
/// They cannot be fetched; the script prints what is missing.
pub fn crds_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    build_once(&FOLDER, "crds")
}

fn build_once(cell: &OnceLock<Result<PathBuf, String>>, what: &str) -> Result<PathBuf> {
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
        bail!("{} {what} failed ({}); run it by hand to see why", script.display(), output.status);
    }
    Ok(PathBuf::from(last))
}

/// Returns a free port of 127.0.0.1 that this function has not returned before.
pub(crate) fn free_port() -> Result<u16> {
    static RETURNED: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    let returned = returned.get_or_insert_default();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        if returned.insert(port) {
            return Ok(port);
        }
    }
}

/// Starts a server on a free port. Tries another port if another process takes it first.
pub(crate) async fn start_on_free_port<F, Fut>(mut start: F) -> Result<(ProcessGuard, u16)>
where
    F: FnMut(u16) -> Fut,
    Fut: Future<Output = Result<ProcessGuard>>,
{
    let mut tries = 0;
    loop {
        let port = free_port()?;
        tries += 1;
        match start(port).await {
            Ok(guard) => return Ok((guard, port)),
            Err(e) if tries < MAX_PORT_TRIES && is_port_taken(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").to_ascii_lowercase().contains("address already in use")
}

/// Starts `command` and waits until `probe` succeeds. Fails immediately if the server ends.
pub(crate) async fn start_ready<F, Fut>(
    name: &str,
    command: &Command,
    log: &Path,
    mut probe: F,
) -> Result<ProcessGuard>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut guard = ProcessGuard::start(name, command, log)?;
    let outcome = eventually(READY_TIMEOUT, || {
        let running = guard.check();
        let attempt = probe();
        async move {
            match running {
                Err(ended) => Ok(Err(ended)),
                Ok(()) => attempt.await.map(Ok),
            }
        }
    })
    .await;
    match outcome {
        Ok(Ok(())) => Ok(guard),
        Ok(Err(ended)) => Err(ended),
        Err(e) => Err(e.context(format!("{name} is not ready; the end of its log:\n{}", guard.log_tail()))),
    }
}

/// Asks a server without TLS whether it is healthy.
pub(crate) async fn probe(url: String) -> Result<()> {
    crate::kubeconfig::install_tls_provider();
    // Without root certificates: reading them takes longer than the request.
    let client = reqwest::Client::builder().tls_certs_only([]).build()?;
    client.get(url).send().await?.error_for_status()?;
    Ok(())
}
