//! The certificates of a test cluster. The testkit makes them, not the API server, so that tests can have users with
//! few rights and users with an expired certificate.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate and its private key, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Whether a certificate is valid today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    Expired,
}

/// The certificate authority of one control plane.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, "sluice-testkit-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("cannot make a certificate authority")?;
        Ok(Authority { issuer })
    }

    /// Returns the certificate of the authority, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns a certificate for a server on this machine.
    pub fn server(&self) -> Result<Identity> {
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Returns a certificate for a user. Kubernetes reads the name from CN and the group from O.
    pub fn client(&self, user: &str, group: Option<&str>, validity: Validity) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot sign a certificate")?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Returns a key pair to sign service account tokens: the private and the public key, as PEM.
pub(crate) fn signing_key() -> Result<(String, String)> {
    let pair = KeyPair::generate()?;
    Ok((pair.serialize_pem(), pair.public_key_pem()))
}
