//! Clusters behind a proxy that a test can stall.

use anyhow::{Context, Result};
use sluice_testkit::Cluster;
use sluice_testkit::fault_injection::TcpProxy;

/// Returns a proxy in front of a cluster, and a kubeconfig that leads through the proxy.
pub fn behind_proxy(cluster: &Cluster) -> Result<(TcpProxy, String)> {
    let url = cluster.url();
    let port =
        url.rsplit(':').next().and_then(|port| port.parse().ok()).context("the address has no port")?;
    let proxy = TcpProxy::to(port)?;
    let kubeconfig = cluster.kubeconfig().replace(&url, &format!("https://127.0.0.1:{}", proxy.port()));
    Ok((proxy, kubeconfig))
}
