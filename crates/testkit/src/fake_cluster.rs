//! A server that a kubeconfig presents as a cluster. It answers as a test wants, for example as no API server does.

use std::sync::Arc;

use anyhow::{Context, Result};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::background_server::BackgroundServer;
use crate::certificates::Authority;
use crate::kubeconfig::{Credential, install_tls_provider, kubeconfig};

/// A running server with a certificate. Dropping it ends it.
pub struct FakeCluster {
    kubeconfig: String,
    _server: BackgroundServer,
}

impl FakeCluster {
    /// Starts a server that answers with this router.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(name: &str, router: axum::Router) -> Result<FakeCluster> {
        install_tls_provider();
        let authority = Authority::new()?;
        let identity = authority.server()?;
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("not a key")?;
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain.context("not a certificate")?, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let server = BackgroundServer::start(name, move |listener| async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let http = hyper::server::conn::http1::Builder::new();
                    // An error is a connection that the client closed.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        })?;
        let url = server.url().replace("http://", "https://");
        let kubeconfig = kubeconfig(name, &url, &authority.pem(), &Credential::Token("token"));
        Ok(FakeCluster { kubeconfig, _server: server })
    }

    /// The kubeconfig for the server.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }
}
