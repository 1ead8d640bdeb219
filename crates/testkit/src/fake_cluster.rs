//! A server that claims to be a cluster: it has a certificate and a kubeconfig, and answers as a test wants,
//! for instance as no good API server does.

use std::sync::Arc;

use anyhow::{Context, Result};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::kubeconfig::{Credential, install_tls_provider, kubeconfig};
use crate::listening::Listening;

/// A running server; dropping it ends it.
pub struct FakeCluster {
    kubeconfig: String,
    _listening: Listening,
}

impl FakeCluster {
    /// Starts one that answers by this router.
    ///
    /// # Errors
    /// When there is no free port.
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
        let listening = Listening::start(name, move |listener| async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let http = hyper::server::conn::http1::Builder::new();
                    // The client ends the connection when it has had enough.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        })?;
        let server = listening.url().replace("http://", "https://");
        let kubeconfig = kubeconfig(name, &server, &authority.pem(), &Credential::Token("token"));
        Ok(FakeCluster { kubeconfig, _listening: listening })
    }

    /// The kubeconfig by which it is reached.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }
}
