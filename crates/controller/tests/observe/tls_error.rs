//! Servers whose certificate the client does not accept, and the messages about them.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, OtherError};
use sluice_controller::watch::kubeconfig::client;
use sluice_controller::watch::read_error::{ReadError, api_error_message, cluster_message};
use sluice_testkit::FakeCluster;

use crate::support::remote;

fn said(error: &kube::Error) -> String {
    cluster_message(&remote("dev"), &ReadError::from(error))
}

/// The error of the client, in which the error of TLS is several errors deep.
fn failed(error: rustls::Error) -> kube::Error {
    kube::Error::Service(Box::new(std::io::Error::other(std::io::Error::other(error))))
}

#[tokio::test]
async fn a_server_with_another_name_or_authority_is_reported_with_what_to_correct() {
    let start = |name| FakeCluster::start(name, axum::Router::new()).unwrap();
    let (cluster, other) = (start("right"), start("other"));
    let error = async |text: &str| {
        let (client, _) = client("fleet/dev", text, false).await.unwrap();
        client.apiserver_version().await.unwrap_err()
    };
    let other_name =
        cluster.kubeconfig().replace("    server:", "    tls-server-name: dev.example\n    server:");
    assert_ne!(other_name, cluster.kubeconfig());
    let error_of_name = error(&other_name).await;
    assert_eq!(
        said(&error_of_name),
        "the certificate of cluster fleet/dev is not valid: it is not for dev.example, but for localhost, 127.0.0.1 and \
         kubernetes.default.svc; correct server in the kubeconfig in its Secret, or set tls-server-name there to a name \
         of the certificate"
    );
    assert_eq!(
        api_error_message(&error_of_name),
        "no connection (the certificate of the server is not valid: it is not for dev.example, but for localhost, 127.0.0.1 \
         and kubernetes.default.svc)"
    );
    let authority = |text: &str| {
        let line = text.lines().find(|line| line.contains("certificate-authority-data")).unwrap();
        line.to_string()
    };
    let other_authority =
        cluster.kubeconfig().replace(&authority(cluster.kubeconfig()), &authority(other.kubeconfig()));
    let message = said(&error(&other_authority).await);
    assert!(
        message.contains("correct certificate-authority-data in the kubeconfig in its Secret"),
        "{message}"
    );
    assert!(message.contains("it is not signed with the key of the known authority"), "{message}");
}

#[test]
fn the_message_about_a_certificate_has_no_rust_debug_output() {
    /// A text that is the name of an error, as webpki writes it.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Named(&'static str);

    use CertificateError as E;
    let other = |name| E::Other(OtherError(Arc::new(Named(name))));
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let many = (0..9).map(|n| format!("DnsName(\"{n}.example\")")).collect();
    let expected = ServerName::try_from("dev.example").unwrap();
    for (error, cause) in [
        (
            E::UnknownIssuer,
            "its authority is unknown; correct certificate-authority-data in the kubeconfig in its",
        ),
        (E::ExpiredContext { time: at(3), not_after: at(0) }, "it expired on 1970-01-01T00:00:00Z; renew it"),
        (
            E::ExpiredContext { time: at(3), not_after: at(u64::MAX) },
            "it expired on a day that does not exist; renew",
        ),
        (
            other("UnsupportedCertVersion"),
            "it is not a certificate of X.509 version 3; replace the certificate of",
        ),
        (
            other("PathLenConstraintViolated"),
            "path len constraint violated; replace the certificate of that server",
        ),
        (E::InvalidOcspResponse, "invalid ocsp response; replace the certificate of that server"),
        (
            E::NotValidForNameContext { expected: expected.clone(), presented: many },
            "it is not for dev.example, but for 0.example, 1.example, 2.example, 3.example, 4.example and 4 more; correct",
        ),
        (
            E::NotValidForNameContext { expected, presented: vec![] },
            "it is not for dev.example, but for no name; correct server in the kubeconfig in its Secret",
        ),
    ] {
        let message = said(&failed(rustls::Error::InvalidCertificate(error)));
        let start = format!("the certificate of cluster fleet/dev is not valid: {cause}");
        assert!(message.starts_with(&start), "{message}");
    }
    for (error, cause) in [
        (
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            "the server does not answer with TLS",
        ),
        (
            rustls::Error::AlertReceived(AlertDescription::UnknownCA),
            "the server ended the TLS connection: unknown ca",
        ),
    ] {
        let message = said(&failed(error));
        assert!(
            message.starts_with(&format!("cluster fleet/dev cannot be reached ({cause}): ")),
            "{message}"
        );
    }
}
