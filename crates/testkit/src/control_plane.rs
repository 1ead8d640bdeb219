//! One etcd for any number of clusters. Each cluster is a kube-apiserver under its own prefix of
//! the same etcd: 3 seconds and 270 MB, where a second etcd would add to both.

use crate::certificates::Authority;
use crate::servers::{controlplane_folder, start_on_free_port, start_ready};
use crate::{Cluster, Leash, Scratch};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// What the clusters of one control plane share. The order matters: fields are dropped from the
/// first to the last, and the folder must go after the servers that write to it.
pub(crate) struct Ground {
    etcd: Mutex<Option<Leash>>,
    etcd_log: PathBuf,
    etcd_port: u16,
    pub etcd_url: String,
    pub authority: Authority,
    pub scratch: Scratch,
}

/// An etcd, and the means to start clusters on it.
#[derive(Clone)]
pub struct ControlPlane {
    ground: Arc<Ground>,
}

impl ControlPlane {
    /// Starts an etcd with an empty store in a temporary folder.
    ///
    /// # Errors
    /// When the servers cannot be found or built, or etcd does not become ready.
    pub async fn start() -> Result<ControlPlane> {
        let binaries = controlplane_folder()?;
        let scratch = Scratch::new("controlplane")?;
        let data = scratch.folder("etcd")?;
        let log = scratch.path().join("etcd.log");
        let (etcd, port) = start_on_free_port(|port| {
            let (command, log) = (etcd(&binaries, &data, port), log.clone());
            async move { start_ready("etcd", &command, &log, || healthy(url(port))).await }
        })
        .await
        .context("cannot start etcd")?;
        let (etcd, authority) = (Mutex::new(Some(etcd)), Authority::new()?);
        let ground = Ground { etcd, etcd_log: log, etcd_port: port, etcd_url: url(port), authority, scratch };
        Ok(ControlPlane { ground: Arc::new(ground) })
    }

    /// Starts a cluster; several may start at once. The name is that of its folder, its place in
    /// etcd and its kubeconfig's context: a second one of the same name would share the first
    /// one's objects.
    ///
    /// # Errors
    /// When the API server does not become ready; the error holds the end of its log.
    pub async fn cluster(&self, name: &str) -> Result<Cluster> {
        Cluster::start_on(Arc::clone(&self.ground), name).await
    }

    /// Kills etcd and starts it again, with the same store on the same port. All clusters are without
    /// it for a moment.
    ///
    /// # Errors
    /// When it does not become ready, or another process took the port meanwhile.
    pub async fn restart_etcd(&self) -> Result<()> {
        let ground = &self.ground;
        let hold = |leash| {
            std::mem::replace(&mut *ground.etcd.lock().unwrap_or_else(PoisonError::into_inner), leash)
        };
        drop(hold(None));
        let data = ground.scratch.path().join("etcd");
        let command = etcd(&controlplane_folder()?, &data, ground.etcd_port);
        let ready = start_ready("etcd", &command, &ground.etcd_log, || healthy(ground.etcd_url.clone()));
        hold(Some(ready.await?));
        Ok(())
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn etcd(binaries: &Path, data: &Path, port: u16) -> Command {
    let mut command = Command::new(binaries.join("etcd"));
    command.arg("--data-dir").arg(data).args([
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--name=default",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://127.0.0.1:0",
        "--initial-cluster=default=http://127.0.0.1:0",
        "--max-txn-ops=5000",
    ]);
    let url = url(port);
    command.arg(format!("--listen-client-urls={url}")).arg(format!("--advertise-client-urls={url}"));
    command
}

async fn healthy(url: String) -> Result<()> {
    crate::kubeconfig::install_tls_provider();
    reqwest::get(format!("{url}/health")).await?.error_for_status()?;
    Ok(())
}
