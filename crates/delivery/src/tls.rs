//! HTTP clients that trust the certificates of the system and of a caFile.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A TLS configuration that trusts the authorities of the system, and the certificates of a caFile.
pub(crate) fn trust(ca_file: Option<&[u8]>) -> Result<rustls::ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // A certificate that cannot be read is not trusted.
        let _ = roots.add(certificate);
    }
    if let Some(pem) = ca_file {
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| e.to_string())?;
            roots.add(certificate).map_err(|e| e.to_string())?;
            count += 1;
        }
        if count == 0 {
            return Err("write it as PEM".into());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(tls)
}

/// An HTTP client for forges.
pub(crate) fn client(ca_file: Option<&[u8]>, deadline: Duration) -> Result<reqwest::Client, String> {
    let mut tls = trust(ca_file)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(deadline.min(Duration::from_secs(10)))
        .timeout(deadline)
        .pool_idle_timeout(Duration::from_secs(60))
        .build()
        .map_err(|e| e.to_string())
}
