//! Errors of TLS in words. The texts of rustls are Rust's debug format, and do not say what to do.

use std::error::Error;
use std::io;

use jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// A certificate that the client does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCertificate {
    /// Why, with the certificate as "it".
    pub cause: String,
    /// What helps.
    pub remedy: CertificateRemedy,
}

/// What helps against a certificate that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRemedy {
    /// Another certificate authority in the kubeconfig.
    Authority,
    /// Another name of the server in the kubeconfig.
    ServerName,
    /// A new certificate with other dates, or a correct clock.
    Renew,
    /// Another certificate.
    Replace,
}

impl CertificateRemedy {
    /// Returns what to do. `kubeconfig` is where the kubeconfig is.
    pub fn sentence(self, kubeconfig: &str) -> String {
        match self {
            CertificateRemedy::Authority => {
                format!("correct certificate-authority-data in {kubeconfig}, or replace the certificate")
            }
            CertificateRemedy::ServerName => {
                format!(
                    "correct server in {kubeconfig}, or set tls-server-name there to a name of the certificate"
                )
            }
            CertificateRemedy::Renew => "renew it, or correct the clocks".into(),
            CertificateRemedy::Replace => "replace the certificate of that server".into(),
        }
    }
}

/// Returns the error of TLS in an error of the client, if TLS failed.
pub(super) fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an I/O error is the source of the error in it.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Returns why a certificate is not accepted, if that is the error.
pub(super) fn refused_certificate(error: &rustls::Error) -> Option<RefusedCertificate> {
    use CertificateError as E;
    use CertificateRemedy::{Authority, Renew, Replace, ServerName};
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    let (cause, remedy) = match error {
        E::UnknownIssuer => ("its authority is unknown".into(), Authority),
        E::BadSignature => ("it is not signed with the key of the known authority".into(), Authority),
        E::NotValidForName => ("it is for another name than that of the server".into(), ServerName),
        E::NotValidForNameContext { expected, presented } => {
            (format!("it is not for {}, but for {}", expected.to_str(), names(presented)), ServerName)
        }
        E::Expired => ("it has expired".into(), Renew),
        E::ExpiredContext { not_after, .. } => (format!("it expired on {}", date(*not_after)), Renew),
        E::NotValidYet => ("it is not valid yet".into(), Renew),
        E::NotValidYetContext { not_before, .. } => {
            (format!("it is not valid before {}", date(*not_before)), Renew)
        }
        E::BadEncoding => ("it cannot be read".into(), Replace),
        E::Revoked => ("it was revoked".into(), Replace),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => ("it is not for servers".into(), Replace),
        E::UnhandledCriticalExtension => {
            ("it has a critical extension that Sluice does not know".into(), Replace)
        }
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            ("it is signed with an algorithm that Sluice does not know".into(), Replace)
        }
        E::Other(other) => (other_cause(&other.to_string()), Replace),
        other => (in_words(&other.to_string()), Replace),
    };
    Some(RefusedCertificate { cause, remedy })
}

/// Returns any other error of TLS as a text.
pub(super) fn message(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(_) => "the server does not answer with TLS".into(),
        rustls::Error::AlertReceived(_) => format!("the server ended the TLS connection: {}", reason(error)),
        rustls::Error::PeerIncompatible(_) => {
            format!("the server supports no TLS that Sluice supports: {}", reason(error))
        }
        rustls::Error::PeerMisbehaved(_) => format!("the server breaks the rules of TLS: {}", reason(error)),
        error => error.to_string(),
    }
}

/// Returns the words after the colon of a text of rustls, such as `received fatal alert: UnknownCA`.
fn reason(error: &rustls::Error) -> String {
    let text = error.to_string();
    in_words(text.split_once(": ").map_or(text.as_str(), |(_, reason)| reason))
}

/// Returns the cause of an error of webpki, which has no type of its own in rustls.
fn other_cause(error: &str) -> String {
    match error {
        "UnsupportedCertVersion" => "it is not a certificate of X.509 version 3".into(),
        "CaUsedAsEndEntity" => "it is the certificate of an authority, not of a server".into(),
        other => in_words(other),
    }
}

/// Returns the words of a name in Rust's form, without what is in parentheses or braces.
fn in_words(name: &str) -> String {
    let name = name.split(['(', '{', ' ']).next().unwrap_or_default();
    let mut words = String::new();
    let mut before = 'A';
    for c in name.chars() {
        if c.is_uppercase() && !before.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
        before = c;
    }
    words
}

/// The most names of a certificate in a message.
const MAX_NAMES: usize = 5;

/// Returns the names of a certificate. webpki writes them as `DnsName("a.example")` and `IpAddress(127.0.0.1)`.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        inner.trim_matches('"').to_string()
    };
    let mut shown: Vec<String> = presented.iter().take(MAX_NAMES).map(plain).collect();
    if presented.len() > MAX_NAMES {
        shown.push(format!("{} more", presented.len() - MAX_NAMES));
    }
    match shown.pop() {
        None => "no name".into(),
        Some(last) if shown.is_empty() => last,
        Some(last) => format!("{} and {last}", shown.join(", ")),
    }
}

/// Returns a time in a certificate, which can be any.
fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| "a day that does not exist".into(), |at| at.to_string())
}
