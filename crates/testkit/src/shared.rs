//! The servers that all tests of one process share. A cluster takes seconds to start, so tests use their own namespaces
//! and repositories instead of their own servers.

use crate::{Cluster, ControlPlane, GitServer, Gitea};
use anyhow::{Context, Result, anyhow};
use tokio::sync::OnceCell;

/// A hub, three leaf clusters and a git server. The leaf clusters start when a test needs them.
pub struct Shared {
    /// The cluster for Sluice, with Sluice's CRDs and those of Flux and of GitopsCluster.
    pub hub: Cluster,
    /// Git over HTTP with passwords.
    pub git: GitServer,
    /// The control plane of the clusters.
    pub plane: ControlPlane,
    leaves: Once<Leaves>,
}

/// Three clusters for targets, with the CRDs of Flux.
pub struct Leaves {
    /// The cluster for the environment dev.
    pub dev: Cluster,
    /// The cluster for the environment staging.
    pub staging: Cluster,
    /// The cluster for the environment prod.
    pub prod: Cluster,
}

/// A value that is made once. An error is kept as text, because every caller gets it.
type Once<T> = OnceCell<std::result::Result<T, String>>;

static SHARED: Once<Shared> = Once::const_new();
static GITEA: Once<Gitea> = Once::const_new();
static SLUICE_CRDS: Once<()> = Once::const_new();

/// Returns the shared servers of this process; the first call starts them. Tests must not stop or freeze them: start a
/// [`ControlPlane`] for that.
///
/// # Errors
/// They cannot be started; every later call returns the same error.
pub async fn shared() -> Result<&'static Shared> {
    let shared = shared_flux().await?;
    let install = async || shared.hub.install_sluice_crds().await.map_err(|e| format!("{e:#}"));
    let outcome = SLUICE_CRDS.get_or_init(install).await;
    outcome.as_ref().map_err(|e| anyhow!("cannot install Sluice's CRDs on the hub: {e}"))?;
    Ok(shared)
}

/// Returns the shared servers without Sluice's CRDs on the hub.
///
/// # Errors
/// They cannot be started; every later call returns the same error.
pub async fn shared_flux() -> Result<&'static Shared> {
    let outcome = SHARED.get_or_init(|| on_own_runtime(start())).await;
    outcome.as_ref().map_err(|e| anyhow!("the shared servers did not start: {e}"))
}

/// Returns the shared Gitea of this process; the first call starts it. Each test needs its own repositories.
///
/// # Errors
/// It cannot be started; every later call returns the same error.
pub async fn shared_gitea() -> Result<&'static Gitea> {
    let outcome = GITEA.get_or_init(|| on_own_runtime(Gitea::start())).await;
    outcome.as_ref().map_err(|e| anyhow!("the shared Gitea did not start: {e}"))
}

/// Runs `start` on its own thread and runtime: the runtime of the first test ends with that test, which may time out.
async fn on_own_runtime<T: Send + 'static>(
    start: impl Future<Output = Result<T>> + Send + 'static,
) -> std::result::Result<T, String> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("shared-servers".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = match runtime {
            Ok(runtime) => runtime.block_on(start),
            Err(e) => Err(e.into()),
        };
        // An error means that the waiting test has ended.
        let _ = send.send(outcome);
    });
    let outcome = async {
        thread?;
        receive.await.context("the thread that starts the shared servers panicked")?
    };
    outcome.await.map_err(|e| format!("{e:#}"))
}

impl Shared {
    /// Starts servers for a process whose tests stop and restart them.
    ///
    /// # Errors
    /// They cannot be started.
    pub async fn start() -> Result<Shared> {
        let shared = start().await?;
        shared.hub.install_sluice_crds().await?;
        Ok(shared)
    }

    /// Returns the leaf clusters; the first call starts them.
    ///
    /// # Errors
    /// They cannot be started; every later call returns the same error.
    pub async fn leaves(&self) -> Result<&Leaves> {
        let outcome = self.leaves.get_or_init(|| on_own_runtime(start_leaves(self.plane.clone()))).await;
        outcome.as_ref().map_err(|e| anyhow!("the shared leaf clusters did not start: {e}"))
    }
}

async fn start() -> Result<Shared> {
    let plane = ControlPlane::start().await?;
    let hub = start_cluster(&plane, "hub").await?;
    Ok(Shared { hub, git: GitServer::start()?, plane, leaves: Once::const_new() })
}

async fn start_leaves(plane: ControlPlane) -> Result<Leaves> {
    let (dev, staging, prod) = tokio::try_join!(
        start_cluster(&plane, "dev"),
        start_cluster(&plane, "staging"),
        start_cluster(&plane, "prod")
    )?;
    Ok(Leaves { dev, staging, prod })
}

async fn start_cluster(plane: &ControlPlane, name: &str) -> Result<Cluster> {
    let cluster = plane.cluster(name).await?;
    cluster.install_flux_crds().await?;
    Ok(cluster)
}
