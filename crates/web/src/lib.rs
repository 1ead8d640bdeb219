//! WEB: the API for commands and pages. It renders views and knows no Kubernetes: who calls, and what the caller may see,
//! it asks through [`Access`].

pub mod access;
mod callers;
mod fleet_versions;
mod openapi;
mod problem;
mod query;
mod routes;
mod trace;
mod visible;

pub use access::Access;
pub use openapi::document;
pub use routes::{Api, router};

use tokio::net::TcpListener;

/// Serves the API for as long as the process runs.
///
/// # Errors
/// When the listener fails.
pub async fn serve<A: Access>(listener: TcpListener, api: Api<A>) -> std::io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "serving the API, on this machine only and read-only");
    axum::serve(listener, router(api)).await
}
