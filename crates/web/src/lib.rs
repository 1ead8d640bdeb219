//! WEB: the API for commands, and the pages. It renders views and speaks no Kubernetes: who calls, what the caller may see
//! and do, and the objects of the hub come through [`Hub`].

mod action_body;
mod answer;
mod board;
mod caller;
mod caller_budgets;
mod change_stream;
mod check_route;
mod choices;
mod cookie;
mod draft_input;
mod equal_shares;
mod event_routes;
mod find;
mod fleet_routes;
mod fleet_versions;
mod form_text;
mod hub;
mod in_path;
mod list_parameters;
mod live_slots;
mod oidc;
mod openapi;
mod origin_check;
mod page;
mod page_url;
mod parameters;
mod person_action;
mod pipeline_filter;
mod pipeline_groups;
mod pipeline_routes;
mod pipeline_search;
mod problem;
mod provider_http;
mod reconcile_route;
mod request_body;
mod requested_action;
mod rights;
mod routes;
mod session;
mod session_keys;
mod sign_in_link;
mod sign_in_options;
mod state;
mod trace;
mod trace_query;
mod triggers;
mod unsent_answers;
mod versions_query;
mod visible_fleet;

pub use hub::{
    Change, ChangeError, ChangedKind, FileProposal, Hub, ProposedManifest, SeenObject, WantedEvents,
};
pub use oidc::Options as OidcOptions;
pub use openapi::document;
pub use page_url::PageUrl;
pub use provider_http::{ProviderAnswer, ProviderHttp, ProviderRequest};
pub use routes::router;
pub use session_keys::{SessionKeyError, SessionKeys};
pub use sign_in_options::SignInOptions;
pub use sluice_view::check::Installation;
pub use sluice_view::check::clocks::ClockOf;
pub use sluice_view::events::{EventFilter, EventLine, events};
pub use sluice_view::object_name::ObjectName;
pub use sluice_view::reconcile::{ReconcilePlan, RequestedObject};
pub use state::Api;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// How many connections are open at a time. Further ones wait.
const MAX_CONNECTIONS: usize = 1500;
/// How long the head of a request may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be open.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Serves the API for as long as the process runs.
///
/// # Errors
/// When the address of the listener is not known.
pub async fn serve<H: Hub>(listener: TcpListener, api: Api<H>) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    match api.actions {
        true => {
            tracing::info!(%address, "serving the API and the pages, on this machine only; people can act there")
        }
        false => {
            tracing::info!(%address, "serving the API and the pages, on this machine only and read-only; --api-actions lets people act there");
        }
    }
    if let Some(provider) = api.provider.clone() {
        // So that the log says soon whether it can be used. It is asked again when somebody signs in.
        tokio::spawn(async move { drop(provider.metadata().await) });
    }
    let (router, slots) = (router(api), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Otherwise a small part of an answer would wait until the peer has acknowledged the part before: up to 40 ms.
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        tokio::spawn(async move {
            serve_connection(stream, router).await;
            drop(slot);
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Send + 'static, router: Router) {
    // A peer that reads nothing would hold the connection, and keep others out.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = TokioIo::new(Box::pin(stream));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(stream, TowerToHyperService::new(router));
    // Peers that disconnect or are slow are not logged.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_holds_no_connection() {
        let router = || Router::new().route("/", get(async || "a".repeat(64 << 10)));
        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let (mut peer, stream) = tokio::io::duplex(1 << 10);
        let begun = Instant::now();
        let served = tokio::spawn(serve_connection(stream, router()));
        peer.write_all(request).await.unwrap();
        served.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());

        // A slow peer gets everything.
        let (mut peer, stream) = tokio::io::duplex(1 << 10);
        tokio::spawn(serve_connection(stream, router()));
        peer.write_all(request).await.unwrap();
        let (mut answer, mut piece) = (Vec::new(), [0; 1 << 10]);
        while answer.len() < 64 << 10 {
            tokio::time::sleep(WRITE_TIMEOUT / 4).await;
            let read = peer.read(&mut piece).await.unwrap();
            assert_ne!(read, 0, "the connection was closed after {} bytes", answer.len());
            answer.extend_from_slice(&piece[..read]);
        }
    }
}
