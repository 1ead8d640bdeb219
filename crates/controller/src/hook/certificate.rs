//! The certificate of the hook server, which is read again when its files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sluice_core::lock::{read, write};
use tokio_rustls::TlsAcceptor;

use crate::metrics::Metrics;

/// How often the files of a certificate are read.
const READ_PERIOD: Duration = Duration::from_secs(10);

/// Accepts TLS connections with a certificate.
pub(super) fn acceptor(certificate: Arc<Certificate>) -> TlsAcceptor {
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificate);
    TlsAcceptor::from(Arc::new(config))
}

/// A certificate that is read again when its files change, so that a renewed one is used without a restart.
#[derive(Debug)]
pub(super) struct Certificate {
    /// The files of the certificate and of its key.
    files: (PathBuf, PathBuf),
    /// The text of the certificate file, and the certificate with its key.
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificate {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// When a file cannot be read or parsed.
    pub(super) fn read(certificate: &Path, key: &Path) -> std::io::Result<Arc<Self>> {
        let files = (certificate.to_path_buf(), key.to_path_buf());
        let current = RwLock::new(load(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads the files every [`READ_PERIOD`]. If they cannot be read, for example while they are being replaced,
    /// the current certificate stays in use.
    pub(super) async fn reload_forever(&self, metrics: &Metrics) {
        loop {
            tokio::time::sleep(READ_PERIOD).await;
            let loaded = load(&self.files);
            metrics.hooks.certificate_unreadable.set(i64::from(loaded.is_err()));
            match loaded {
                Ok(read) => {
                    let mut current = write(&self.current);
                    if read.0 != current.0 {
                        tracing::info!(file = %self.files.0.display(), "using the renewed certificate of the hook server");
                        *current = read;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the certificate of the hook server again; the current one stays in use");
                }
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(read(&self.current).1.clone())
    }
}

/// Reads the text of a certificate file, and the certificate with its key.
fn load((certificate, key): &(PathBuf, PathBuf)) -> std::io::Result<(Vec<u8>, Arc<CertifiedKey>)> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        let file = path.display();
        std::io::Error::other(format!(
            "cannot read {file}: {why}; it must be PEM, as in a Secret of type kubernetes.io/tls"
        ))
    };
    let text = std::fs::read(certificate).map_err(|e| failed(certificate, &e))?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| failed(certificate, &e))?;
    if chain.is_empty() {
        return Err(failed(certificate, &"it contains no certificate"));
    }
    let secret = std::fs::read(key).map_err(|e| failed(key, &e))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| failed(key, &e))?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, secret, &provider).map_err(|e| failed(key, &e))?;
    Ok((text, Arc::new(certified)))
}
