//! The servers that all tests of one process share. A control plane takes seconds to start, and
//! tests keep apart by using namespaces and repositories of their own.

use crate::{Cluster, ControlPlane, GitServer, Gitea};
use anyhow::{Context, Result, anyhow};
use std::time::Duration;
use tokio::sync::OnceCell;

/// A hub and three leaf clusters with all CRDs, and a git server.
pub struct Shared {
    /// Where Sluice runs: its own CRDs, those of Flux and GitopsCluster.
    pub hub: Cluster,
    /// A target cluster, with the CRDs of Flux.
    pub dev: Cluster,
    /// A target cluster, with the CRDs of Flux.
    pub staging: Cluster,
    /// A target cluster, with the CRDs of Flux.
    pub prod: Cluster,
    /// Git over authenticated HTTP.
    pub git: GitServer,
    /// What the clusters stand on.
    pub plane: ControlPlane,
}

/// What starting something once came to; kept as text, since every test must be told.
type Once<T> = OnceCell<std::result::Result<T, String>>;

static SHARED: Once<Shared> = Once::const_new();
static GITEA: Once<Gitea> = Once::const_new();
static SLUICE_CRDS: Once<()> = Once::const_new();

/// The servers that this process's tests share, started by whoever asks first. Never stop or
/// freeze these: start a [`ControlPlane`] of your own for that.
///
/// # Errors
/// When they cannot be started; every later call says the same.
pub async fn shared() -> Result<&'static Shared> {
    let shared = shared_flux().await?;
    let install = async || shared.hub.install_sluice_crds().await.map_err(|e| format!("{e:#}"));
    let outcome = SLUICE_CRDS.get_or_init(install).await;
    outcome.as_ref().map_err(|e| anyhow!("the hub cannot have Sluice's own CRDs: {e}"))?;
    Ok(shared)
}

/// The same servers, for tests that need no kind of Sluice's own.
///
/// # Errors
/// When they cannot be started; every later call says the same.
pub async fn shared_flux() -> Result<&'static Shared> {
    let outcome = SHARED.get_or_init(async || apart(start()).await.map_err(|e| format!("{e:#}"))).await;
    outcome.as_ref().map_err(|e| anyhow!("the shared servers did not start: {e}"))
}

/// The forge that this process's tests share; give each test repositories of its own.
///
/// # Errors
/// When it cannot be started; every later call says the same.
pub async fn shared_gitea() -> Result<&'static Gitea> {
    let outcome = GITEA.get_or_init(async || apart(Gitea::start()).await.map_err(|e| format!("{e:#}"))).await;
    outcome.as_ref().map_err(|e| anyhow!("the shared Gitea did not start: {e}"))
}

/// Starts something on a thread and runtime of its own: the test that came first may time out or
/// fail, and its runtime goes with it.
async fn apart<T: Send + 'static>(start: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("shared-servers".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = match runtime {
            Ok(runtime) => runtime.block_on(start),
            Err(e) => Err(e.into()),
        };
        // Nobody listens any more when the test that asked has ended.
        let _ = send.send(outcome);
    })?;
    receive.await.context("the thread that starts the shared servers died")?
}

impl Shared {
    /// Servers of one's own, for a process whose tests stop and restart them.
    ///
    /// # Errors
    /// When they cannot be started.
    pub async fn start() -> Result<Shared> {
        let shared = start().await?;
        shared.hub.install_sluice_crds().await?;
        Ok(shared)
    }
}

async fn start() -> Result<Shared> {
    let plane = ControlPlane::start().await?;
    let cluster = async |name: &str| {
        let cluster = plane.cluster(name).await?;
        cluster.install_flux_crds().await?;
        anyhow::Ok(cluster)
    };
    let (hub, dev, staging, prod) =
        tokio::try_join!(cluster("hub"), cluster("dev"), cluster("staging"), cluster("prod"))?;
    Ok(Shared { hub, dev, staging, prod, git: GitServer::start()?, plane })
}

/// How long a test waits for something that takes a moment on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
