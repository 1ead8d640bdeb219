//! A server that a kubeconfig presents as a cluster. It answers as a test wants, for example as no API server does.

use anyhow::Result;

use crate::kubeconfig::{Credential, kubeconfig};
use crate::tls_server::TlsServer;

/// A running server with a certificate. Dropping it ends it.
pub struct FakeCluster {
    kubeconfig: String,
    _server: TlsServer,
}

impl FakeCluster {
    /// Starts a server that answers with this router.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(name: &str, router: axum::Router) -> Result<FakeCluster> {
        let server = TlsServer::start(name, router)?;
        let url = format!("https://127.0.0.1:{}", server.port());
        let kubeconfig = kubeconfig(name, &url, &server.authority(), &Credential::Token("token"));
        Ok(FakeCluster { kubeconfig, _server: server })
    }

    /// The kubeconfig for the server.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }
}
