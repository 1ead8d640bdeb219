//! One etcd for any number of clusters. Each cluster is a kube-apiserver under its own prefix of
//! the same etcd: 3 seconds and 270 MB, where a second etcd would add to both.

use crate::certificates::Authority;
use crate::servers::{controlplane_folder, start_on_free_port, start_ready};
use crate::{Cluster, Leash, Scratch};
use anyhow::{Context, Result};
use std::process::Command;
use std::sync::Arc;

/// What the clusters of one control plane share. The order matters: fields are dropped from the
/// first to the last, and the folder must go after the servers that write to it.
pub(crate) struct Ground {
    _etcd: Leash,
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
            let mut command = Command::new(binaries.join("etcd"));
            command.arg("--data-dir").arg(&data).args([
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--name=default",
                "--listen-peer-urls=http://127.0.0.1:0",
                "--initial-advertise-peer-urls=http://127.0.0.1:0",
                "--initial-cluster=default=http://127.0.0.1:0",
                "--max-txn-ops=5000",
            ]);
            let url = format!("http://127.0.0.1:{port}");
            command.arg(format!("--listen-client-urls={url}")).arg(format!("--advertise-client-urls={url}"));
            let log = log.clone();
            async move { start_ready("etcd", &command, &log, || healthy(url.clone())).await }
        })
        .await
        .context("cannot start etcd")?;
        let etcd_url = format!("http://127.0.0.1:{port}");
        let ground = Ground { _etcd: etcd, etcd_url, authority: Authority::new()?, scratch };
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
}

async fn healthy(url: String) -> Result<()> {
    crate::kubeconfig::install_tls_provider();
    reqwest::get(format!("{url}/health")).await?.error_for_status()?;
    Ok(())
}
