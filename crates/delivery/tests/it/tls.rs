//! Servers with TLS and redirects: own authorities are trusted if the Secret names them, and credentials are sent only to
//! their server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sluice_delivery::{Delivered, DeliveryStrategy, NamedServer, Order};
use sluice_testkit::GitServer;
use tokio::net::{TcpListener, TcpStream};

use crate::any_forge::ForgeFixture;
use crate::change_request::proposed;
use crate::commit::{server, to_main};
use crate::fixture::{FILE, bench, yaml};

/// Takes TLS off and passes on to a server; returns its port and the certificate of its authority.
pub async fn terminate(upstream: String) -> (u16, Vec<u8>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            tokio::spawn(async move {
                let Ok(mut plain) = acceptor.accept(stream).await else { return };
                let mut server = TcpStream::connect(upstream).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut plain, &mut server).await;
            });
        }
    });
    (port, cert.pem().into_bytes())
}

fn host(url: &str) -> String {
    url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_string()
}

#[tokio::test]
async fn git_trusts_the_authority_in_the_secret() {
    let (server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (port, pem) = terminate(host(&server.url())).await;
    let url = format!("https://localhost:{port}/fleet.git");
    let mut order = Order {
        strategy: DeliveryStrategy::Commit { url, branch: "main".into() },
        ..to_main(&repo, "6.1.8")
    };
    let error = bench().delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "CertificateInvalid", "{error}");
    assert!(error.to_string().contains("caFile"), "{error}");
    order.credentials.ca_file = Some(pem);
    let done = bench().delivery.deliver(&order).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
}

#[tokio::test]
async fn forge_calls_trust_the_authority_in_the_secret() {
    let fixture = ForgeFixture::github().await;
    let mut order = fixture.order("6.1.8");
    let DeliveryStrategy::PullRequest { forge, url, base, settings } = order.strategy.clone() else {
        unreachable!()
    };
    let (port, pem) = terminate(host(&url)).await;
    let url = format!("https://localhost:{port}/acme/fleet.git");
    order.strategy = DeliveryStrategy::PullRequest { forge, url, base, settings };
    order.credentials.ca_file = Some(pem);
    let request = proposed(&bench().delivery, &order).await;
    order.credentials.ca_file = None;
    let error = bench().delivery.follow(&order, &request).await.unwrap_err();
    assert_eq!(error.reason(), "CertificateInvalid", "{error}");
    order.credentials.ca_file = Some(b"not a certificate".to_vec());
    let error = bench().delivery.follow(&order, &request).await.unwrap_err();
    assert_eq!(error.reason(), "CertificateInvalid", "{error}");
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let thief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", thief.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/acme/fleet.git", listener.local_addr().unwrap());
    let moved = move |uri: Uri| async move {
        (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, format!("{target}{uri}"))])
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(moved)).await.unwrap() });
    let listen = move || async move {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::NOT_FOUND
    };
    tokio::spawn(async move { axum::serve(thief, Router::new().fallback(listen)).await.unwrap() });
    let strategy = DeliveryStrategy::Commit { url: url.clone(), branch: "main".into() };
    let order = crate::fixture::order(strategy, "6.1.8");
    let error = bench().delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "Redirected", "{error}");
    assert!(!error.to_string().contains(GitServer::PASSWORD));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the other server was called");
}

#[tokio::test]
async fn a_named_server_is_asked_over_tls_only_and_its_answer_is_limited() {
    let endless = || async {
        let chunks = futures::stream::repeat(Ok::<_, std::convert::Infallible>("x".repeat(4096)));
        axum::body::Body::from_stream(chunks)
    };
    let router = Router::new()
        .route("/ok", axum::routing::any(|body: String| async move { (StatusCode::ACCEPTED, body) }))
        .route("/away", axum::routing::any(|| async { (StatusCode::FOUND, [(header::LOCATION, "/ok")]) }))
        .route("/endless", axum::routing::any(endless));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (port, pem) = terminate(plain.clone()).await;
    let url = |path: &str| format!("https://localhost:{port}/{path}");
    let trusting = NamedServer::new(Some(&pem)).unwrap();
    let form = || Some("code=secret".to_string());
    assert_eq!(trusting.send(&url("ok"), form(), "Basic x").await, Ok((202, b"code=secret".to_vec())));
    assert_eq!(trusting.send(&url("away"), form(), "").await.map(|(status, _)| status), Ok(302));
    let distrusting = NamedServer::new(None).unwrap();
    for (server, url, said) in [
        (&trusting, url("endless"), "longer than 256 KiB"),
        (&trusting, format!("http://{plain}/ok"), "scheme"),
        (&distrusting, url("ok"), "certificate"),
    ] {
        let error = server.send(&url, form(), "Basic x").await.unwrap_err();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("secret") && !error.contains("localhost:"), "{error}");
    }
    assert!(NamedServer::new(Some(b"no certificate")).is_err());
}
