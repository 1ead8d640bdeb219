//! One etcd for any number of clusters. Each cluster is a kube-apiserver with its own prefix in that etcd. It takes
//! 3 seconds to start and 270 MB of memory; an etcd for each cluster would take more of both.

use crate::certificates::Authority;
use crate::plane_state::PlaneState;
use crate::servers::{controlplane_folder, probe, start_on_free_port, start_ready};
use crate::{Cluster, Dex, DexClient, Scratch};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// An etcd, on which clusters can be started.
#[derive(Clone)]
pub struct ControlPlane {
    state: Arc<PlaneState>,
}

impl ControlPlane {
    /// Starts an etcd with an empty store in a temporary folder.
    ///
    /// # Errors
    /// The binaries cannot be found or built, or etcd does not become ready.
    pub async fn start() -> Result<ControlPlane> {
        let binaries = controlplane_folder()?;
        let scratch = Scratch::new("controlplane")?;
        let data = scratch.folder("etcd")?;
        let log = scratch.path().join("etcd.log");
        let (etcd, port) = start_on_free_port(|port| {
            let (command, log) = (etcd_command(&binaries, &data, port), log.clone());
            async move { start_ready("etcd", &command, &log, || probe(health_url(port))).await }
        })
        .await
        .context("cannot start etcd")?;
        let state = PlaneState {
            etcd: Mutex::new(Some(etcd)),
            etcd_log: log,
            etcd_port: port,
            etcd_url: url(port),
            authority: Authority::new()?,
            scratch,
        };
        Ok(ControlPlane { state: Arc::new(state) })
    }

    /// Starts a cluster. Several can start at the same time. The name must be unused: it is the name of the cluster's
    /// folder, of its prefix in etcd and of its kubeconfig's context.
    ///
    /// # Errors
    /// The API server does not become ready; the error holds the end of its log.
    pub async fn cluster(&self, name: &str) -> Result<Cluster> {
        Cluster::start_on(Arc::clone(&self.state), name, None).await
    }

    /// Starts a cluster that also accepts the ID tokens of an identity provider for a client. Its users have the names that
    /// the claim `email` says.
    ///
    /// # Errors
    /// The API server does not become ready; the error holds the end of its log.
    pub async fn cluster_trusting(&self, name: &str, issuer: &Dex, client: &str) -> Result<Cluster> {
        let configuration = issuer.authentication_configuration(client);
        Cluster::start_on(Arc::clone(&self.state), name, Some(&configuration)).await
    }

    /// Starts an identity provider, with a certificate of the authority of this control plane.
    ///
    /// # Errors
    /// Dex cannot be built, or does not become ready.
    pub async fn issuer(&self, clients: &[DexClient], people: &[&str], token_lifetime: &str) -> Result<Dex> {
        Dex::start_on(Arc::clone(&self.state), clients, people, token_lifetime).await
    }

    /// Kills etcd and starts it again, with the same store on the same port. Meanwhile all clusters are without etcd.
    ///
    /// # Errors
    /// etcd does not become ready, or another process took the port.
    pub async fn restart_etcd(&self) -> Result<()> {
        let state = &self.state;
        let replace =
            |etcd| std::mem::replace(&mut *state.etcd.lock().unwrap_or_else(PoisonError::into_inner), etcd);
        drop(replace(None));
        let data = state.scratch.path().join("etcd");
        let command = etcd_command(&controlplane_folder()?, &data, state.etcd_port);
        let ready = start_ready("etcd", &command, &state.etcd_log, || probe(health_url(state.etcd_port)));
        replace(Some(ready.await?));
        Ok(())
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn health_url(port: u16) -> String {
    format!("{}/health", url(port))
}

fn etcd_command(binaries: &Path, data: &Path, port: u16) -> Command {
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
