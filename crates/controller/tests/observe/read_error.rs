//! Why a cluster or a kind cannot be read: the sentence for each cause.

use kube::core::Status;
use sluice_controller::observe::facts::{ClusterKey, Kind};
use sluice_controller::watch::read_error::{ReadError, api_error_message, cluster_message, kind_message};

use crate::support::remote;

fn answer(code: u16, message: &str) -> kube::Error {
    kube::Error::Api(Status::failure(message, "x").with_code(code).boxed())
}

#[test]
fn an_answer_is_known_by_its_code() {
    let table = [
        (answer(401, "Unauthorized"), ReadError::Unauthorized("Unauthorized".into())),
        (answer(403, "no"), ReadError::Forbidden("no".into())),
        (answer(404, "page not found"), ReadError::NotFound),
        (answer(500, "boom"), ReadError::Other("boom (500)".into())),
        (answer(429, "slow down"), ReadError::Other("slow down (429)".into())),
        (
            kube::Error::Service(Box::new(std::io::Error::other("connection refused"))),
            ReadError::Unreachable("connection refused".into()),
        ),
    ];
    for (error, expected) in table {
        assert_eq!(ReadError::from(&error), expected);
    }
}

#[test]
fn an_error_is_written_without_the_status_as_rust_shows_it() {
    assert_eq!(
        api_error_message(&answer(429, "storage is (re)initializing")),
        "storage is (re)initializing (429)"
    );
}

/// What answers may be a proxy's error page, or somebody who wants a status to be flooded.
#[test]
fn what_a_server_says_is_kept_short() {
    let page = format!("Bad gateway: {}\n<html>\n<body>", "é".repeat(1000));
    let ReadError::Other(said) = ReadError::from(&answer(502, &page)) else { panic!() };
    assert_eq!(said, format!("Bad gateway: {}... (502)", "é".repeat(287)));
}

#[test]
fn a_cluster_that_cannot_be_used_says_why_and_what_to_do() {
    let dev = remote("dev");
    let unreachable = |said: &str| ReadError::Unreachable(said.into());
    let table = [
        (
            &dev,
            ReadError::Unauthorized("Unauthorized".into()),
            "cluster fleet/dev does not accept the credentials (401 Unauthorized): they may have expired; renew the \
             kubeconfig in its Secret",
        ),
        (
            &dev,
            ReadError::Forbidden("may not".into()),
            "cluster fleet/dev refuses access: may not; grant it to the user of the kubeconfig in its Secret",
        ),
        (
            &dev,
            unreachable("invalid peer certificate: UnknownIssuer"),
            "the certificate of cluster fleet/dev is not accepted (invalid peer certificate: UnknownIssuer): renew \
             it, or correct certificate-authority-data in the kubeconfig in its Secret",
        ),
        (
            &dev,
            unreachable("Connection refused (os error 111)"),
            "cluster fleet/dev refuses the connection (Connection refused (os error 111)): start its API server, or \
             correct the address in the kubeconfig in its Secret",
        ),
        (
            &dev,
            unreachable("failed to lookup address information: Name or service not known"),
            "the address of cluster fleet/dev is not known here (failed to lookup address information: Name or \
             service not known): correct it in the kubeconfig in its Secret, or the cluster's DNS",
        ),
        (
            &dev,
            unreachable("no answer within 5 seconds"),
            "cluster fleet/dev cannot be reached (no answer within 5 seconds): look whether its API server runs and \
             the network lets us through",
        ),
        (
            &dev,
            ReadError::NotFound,
            "cluster fleet/dev has no Kubernetes API at its address: correct it in the kubeconfig in its Secret",
        ),
        (&dev, ReadError::Other("boom (500)".into()), "cluster fleet/dev answers with an error: boom (500)"),
        (
            &ClusterKey::Local,
            ReadError::Unauthorized("Unauthorized".into()),
            "the local cluster does not accept the credentials (401 Unauthorized): they may have expired; renew the \
             controller's kubeconfig or service account",
        ),
    ];
    for (key, cause, sentence) in table {
        assert_eq!(cluster_message(key, &cause), sentence);
    }
}

#[test]
fn a_kind_that_cannot_be_read_says_which_right_is_missing() {
    let forbidden = ReadError::Forbidden("no".into());
    assert_eq!(
        kind_message(&remote("dev"), Kind::Deployment, Some("apps"), &forbidden),
        "cluster fleet/dev does not let us read deployments in namespace apps: grant the verbs get, list and watch on \
         deployments (API group \"apps\") to the user of its kubeconfig"
    );
    assert_eq!(
        kind_message(&ClusterKey::Local, Kind::Namespace, None, &forbidden),
        "the local cluster does not let us read namespaces: grant the verbs get, list and watch on namespaces (API \
         group \"\") to the controller's own user"
    );
    assert_eq!(
        kind_message(&remote("dev"), Kind::Kustomization, None, &ReadError::Other("boom (500)".into())),
        "kustomizations cannot be read: cluster fleet/dev answers with an error: boom (500)"
    );
}
