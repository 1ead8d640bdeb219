//! The certificate of the hook server, which is read again when its files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::metrics::Metrics;

/// How often the files of a certificate are read.
const READ_PERIOD: Duration = Duration::from_secs(10);

/// Accepts TLS connections with a certificate.
pub(super) fn acceptor(certificate: Arc<Certificate>) -> TlsAcceptor {
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificate);
    TlsAcceptor::from(Arc::new(config))
}

/// A certificate that is read again when its files change: one that is renewed counts without a
/// restart.
#[derive(Debug)]
pub(super) struct Certificate {
    files: (PathBuf, PathBuf),
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificate {
    /// Reads it.
    pub(super) fn read(certificate: &Path, key: &Path) -> std::io::Result<Arc<Self>> {
        let files = (certificate.to_path_buf(), key.to_path_buf());
        let current = RwLock::new(load(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads it again every ten seconds. A certificate that cannot be read, as in the middle of being replaced, does not
    /// count: the one before is kept.
    pub(super) async fn keep_up(&self, metrics: &Metrics) {
        loop {
            tokio::time::sleep(READ_PERIOD).await;
            let loaded = load(&self.files);
            metrics.hooks.certificate_unreadable.set(i64::from(loaded.is_err()));
            match loaded {
                Ok(read) => {
                    let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                    if read.0 != current.0 {
                        tracing::info!(file = %self.files.0.display(), "the hooks have a new certificate");
                        *current = read;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the hooks' certificate cannot be read again; the one before stays");
                }
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone())
    }
}

/// The text of the certificate, and the key that it makes with its key.
fn load((certificate, key): &(PathBuf, PathBuf)) -> std::io::Result<(Vec<u8>, Arc<CertifiedKey>)> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        let said =
            format!("{}: {why}: it is to be PEM, as in a Secret of type kubernetes.io/tls", path.display());
        std::io::Error::other(said)
    };
    let text = std::fs::read(certificate).map_err(|e| failed(certificate, &e))?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| failed(certificate, &e))?;
    if chain.is_empty() {
        return Err(failed(certificate, &"there is no certificate in it"));
    }
    let secret = std::fs::read(key).map_err(|e| failed(key, &e))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| failed(key, &e))?;
    let provider = rustls::crypto::ring::default_provider();
    let made = CertifiedKey::from_der(chain, secret, &provider).map_err(|e| failed(key, &e))?;
    Ok((text, Arc::new(made)))
}
