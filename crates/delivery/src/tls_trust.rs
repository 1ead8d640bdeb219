//! Which certificates are trusted: those of the system, and those of a caFile.

use std::sync::{Arc, LazyLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The root certificates of the system, read once per process: that takes longer than most requests.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // A certificate that cannot be read is not trusted.
        let _ = roots.add(certificate);
    }
    roots
});

/// A TLS configuration that trusts the authorities of the system, and the certificates of a caFile.
pub(crate) fn trust(ca_file: Option<&[u8]>) -> Result<rustls::ClientConfig, String> {
    let mut roots = SYSTEM_ROOTS.clone();
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
