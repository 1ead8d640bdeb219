//! Forwards git's requests to a real git server, with the credentials of that server.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, Uri};
use sluice_testkit::GitServer;

use super::forge_api::basic;
use super::server::StandInServer;

pub(super) async fn forward(
    served: &StandInServer,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path_and_query().unwrap().as_str().replacen(served.api.clone_path(), "/fleet", 1);
    let client = plain_client();
    let mut request = client.request(method, format!("{}{path}", served.git)).body(body);
    for (name, value) in &headers {
        if name == "authorization" && value == served.api.git_login().as_str() {
            request = request.header(name, basic(GitServer::USER, GitServer::PASSWORD));
        } else if name != "host" && name != "content-length" && name != "transfer-encoding" {
            request = request.header(name, value);
        }
    }
    let answer = request.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != "transfer-encoding" && name != "content-length" {
            response = response.header(name, value);
        }
    }
    response.body(Body::from(answer.bytes().await.unwrap())).unwrap()
}

/// Returns a client without root certificates: the git server has no TLS, and reading them takes longer than a request.
pub(super) fn plain_client() -> reqwest::Client {
    static ONCE: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
    reqwest::Client::builder().tls_certs_only([]).build().unwrap()
}
