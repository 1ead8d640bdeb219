//! A server with a certificate of its own authority, which answers with a router and lets requests upgrade their connection.

use std::sync::Arc;

use anyhow::{Context, Result};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::background_server::{BackgroundServer, send_at_once};
use crate::certificates::Authority;
use crate::kubeconfig::install_tls_provider;

/// A running server. Dropping it ends it.
pub(crate) struct TlsServer {
    authority: Authority,
    server: BackgroundServer,
}

impl TlsServer {
    /// Starts a server on a free port. `name` is the name of its thread.
    pub(crate) fn start(name: &str, router: axum::Router) -> Result<TlsServer> {
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
            while let Ok((mut stream, _)) = listener.accept().await {
                send_at_once(&mut stream);
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let http = hyper::server::conn::http1::Builder::new();
                    // An error is a connection that the client closed.
                    let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        })?;
        Ok(TlsServer { authority, server })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns the certificate of the authority, as PEM.
    pub(crate) fn authority(&self) -> String {
        self.authority.pem()
    }
}
