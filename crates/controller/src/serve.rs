//! The small servers: metrics, and health for the kubelet. Liveness is progress of the loop, not
//! that a port answers.

use std::net::SocketAddr;
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

async fn serve(address: SocketAddr, router: Router, what: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
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
