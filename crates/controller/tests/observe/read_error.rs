//! The message for each error of reading a cluster or a kind.

use http::Response;
use http_body_util::BodyExt;
use kube::client::{Body, DynBody};
use kube::core::Status;
use sluice_controller::watch::limit::limit_errors;
use sluice_controller::watch::read_error::{ReadError, api_error_message, cluster_message, kind_message};
use sluice_core::fleet::{ClusterKey, Kind};

use crate::support::remote;

fn api_error(code: u16, message: &str) -> kube::Error {
    kube::Error::Api(Status::failure(message, "x").with_code(code).boxed())
}

#[test]
fn an_api_error_is_classified_by_its_code() {
    let table = [
        (api_error(401, "Unauthorized"), ReadError::Unauthorized("Unauthorized".into())),
        (api_error(403, "no"), ReadError::Forbidden("no".into())),
        (api_error(404, "page not found"), ReadError::NotFound),
        (api_error(500, "boom"), ReadError::Other("boom (500)".into())),
        (api_error(429, "slow down"), ReadError::Other("slow down (429)".into())),
        (
            kube::Error::Service(Box::new(std::io::Error::other("connection refused"))),
            ReadError::Unreachable("connection refused".into()),
        ),
    ];
    for (error, expected) in table {
        assert_eq!(ReadError::from(&error), expected);
    }
}

/// A proxy that answers each call with a large page is reached.
#[tokio::test]
async fn an_error_with_a_large_body_is_not_called_unreachable() {
    let page = Body::from(vec![b'x'; 100_000]).map_err(tower::BoxError::from);
    let body: Box<DynBody> = Box::new(page);
    let response = limit_errors(Response::builder().status(502).body(body).unwrap());
    let error = response.into_body().collect().await.map(|_| ()).unwrap_err();
    let message = cluster_message(&remote("dev"), &ReadError::from(&kube::Error::Service(error)));
    assert!(
        message.starts_with(
            "the answer of cluster fleet/dev cannot be read (the text of an error has more than 64 KiB): "
        ),
        "{message}"
    );
}

/// The client keeps the whole answer of a server that is no API server as the message.
#[test]
fn the_answer_of_another_server_is_not_shown() {
    let page = Status::failure("admin token=abc", "Failed to parse error data").with_code(500);
    let json = serde_json::from_str::<std::collections::BTreeMap<String, u8>>(r#""admin token=abc""#);
    for error in [kube::Error::Api(page.boxed()), kube::Error::SerdeError(json.unwrap_err())] {
        let message = cluster_message(&remote("dev"), &ReadError::from(&error));
        assert!(message.contains("answers with an error") && !message.contains("abc"), "{message}");
    }
}

#[test]
fn the_message_of_an_api_error_has_no_rust_debug_output() {
    assert_eq!(
        api_error_message(&api_error(429, "storage is (re)initializing")),
        "storage is (re)initializing (429)"
    );
}

#[test]
fn the_message_of_a_server_has_no_character_that_reorders_or_hides_text() {
    let ReadError::Forbidden(message) = ReadError::from(&api_error(403, "a\u{202e}b\u{7}c\u{200b}d")) else {
        panic!()
    };
    assert_eq!(message, "abcd");
}

/// The server may be a proxy that answers with an error page, or a hostile one that wants to fill the status.
#[test]
fn the_message_of_a_server_is_cut() {
    let page = format!("Bad gateway: {}\n<html>\n<body>", "é".repeat(1000));
    let ReadError::Other(message) = ReadError::from(&api_error(502, &page)) else { panic!() };
    assert_eq!(message, format!("Bad gateway: {}... (502)", "é".repeat(287)));
    // `{}`, or another JSON that is no status.
    let ReadError::Other(message) = ReadError::from(&api_error(0, "")) else { panic!() };
    assert_eq!(message, "the answer is not of a Kubernetes API");
}

#[test]
fn the_message_about_a_cluster_says_the_cause_and_what_to_do() {
    let dev = remote("dev");
    let unreachable = |message: &str| ReadError::Unreachable(message.into());
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
            "cluster fleet/dev denies access: may not; grant it to the user of the kubeconfig in its Secret",
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
            "the address of cluster fleet/dev cannot be resolved (failed to lookup address information: Name or \
             service not known): correct it in the kubeconfig in its Secret, or the cluster's DNS",
        ),
        (
            &dev,
            unreachable("no answer within 5 seconds"),
            "cluster fleet/dev cannot be reached (no answer within 5 seconds): check that its API server runs, and that \
             the network allows the connection",
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
fn the_message_about_a_forbidden_kind_says_which_permission_to_grant() {
    let forbidden = ReadError::Forbidden("no".into());
    assert_eq!(
        kind_message(&remote("dev"), Kind::Deployment, Some("apps"), &forbidden),
        "cluster fleet/dev forbids Sluice to read deployments in namespace apps: grant the verbs get, list and watch on \
         deployments (API group \"apps\") to the user of its kubeconfig"
    );
    assert_eq!(
        kind_message(&ClusterKey::Local, Kind::Namespace, None, &forbidden),
        "the local cluster forbids Sluice to read namespaces: grant the verbs get, list and watch on namespaces (API \
         group \"\") to the controller's own user"
    );
    assert_eq!(
        kind_message(&remote("dev"), Kind::Kustomization, None, &ReadError::Other("boom (500)".into())),
        "kustomizations cannot be read: cluster fleet/dev answers with an error: boom (500)"
    );
}
