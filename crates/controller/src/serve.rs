//! The small servers: metrics, and health for the kubelet. Liveness is progress of the loop, not
//! that a port answers.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// Serves metrics on `/metrics`.
pub async fn metrics(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let router = Router::new().route("/metrics", get(render)).with_state(metrics);
    serve(address, router, "metrics").await
}

/// Serves `/healthz` and `/readyz`.
pub async fn health(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let live = |State(m): State<Arc<Metrics>>| async move {
        answer(m.is_live(), "the loop has not turned for a minute")
    };
    let ready = |State(m): State<Arc<Metrics>>| async move {
        answer(m.is_ready(), "the hub or the Leases have not been read yet; the log says why")
    };
    let router = Router::new().route("/healthz", get(live)).route("/readyz", get(ready)).with_state(metrics);
    serve(address, router, "health").await
}

/// Listens. Where that is on every address and the machine has no IPv6, on those of IPv4.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

async fn serve(address: SocketAddr, router: Router, what: &str) -> std::io::Result<()> {
    let listener = listen(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {what}");
    axum::serve(listener, router).await
}

async fn render(State(metrics): State<Arc<Metrics>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.render()).into_response()
}

fn answer(good: bool, otherwise: &'static str) -> (StatusCode, &'static str) {
    if good { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, otherwise) }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn every_address_is_one_of_either_family() {
        let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        assert_eq!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.is_ok(), has_v6);
    }
}
