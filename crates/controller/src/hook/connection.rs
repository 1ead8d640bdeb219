//! Connections to the hook server: a task each, not more than so many, none that only sits there.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::certificate::{Certificate, acceptor};
use super::connection_limit::{ConnectionLimit, ConnectionSlot};
use super::server::{HookOptions, HookServer};
use crate::metrics::Metrics;
use crate::serve::listen;

/// The part of all connections that one peer may have, unless it is a known proxy: the rest is for other peers.
const OF_ONE: usize = 8;
/// How long a connection is kept, also if the peer does not read the answer.
const MAX_AGE: Duration = Duration::from_secs(300);
/// How long a handshake, and the head of a request, may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves calls until it fails.
///
/// # Errors
/// When it cannot listen, or the certificate cannot be read.
pub async fn serve(options: &HookOptions, hook: HookServer) -> std::io::Result<()> {
    let certificate = match &options.certificate {
        Some((certificate, key)) => Some(Certificate::read(certificate, key)?),
        None => None,
    };
    let listener = listen(options.address).await?;
    let form = if certificate.is_some() { "https" } else { "http" };
    tracing::info!(address = %listener.local_addr()?, form, "serving hooks");
    let checker = hook.checker();
    tokio::select! {
        () = serve_all(listener, certificate, options.connections, Arc::new(hook)) => {}
        // It ends with the loop.
        () = checker.run() => {}
    }
    Ok(())
}

/// Serves every connection, in plain or with a certificate, so many at a time.
async fn serve_all(
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    most: usize,
    hook: Arc<HookServer>,
) {
    let (room, limit) =
        (Arc::new(Semaphore::new(most)), Arc::new(ConnectionLimit::new(most.div_ceil(OF_ONE))));
    let acceptor = certificate.clone().map(acceptor);
    let watched = async {
        match &certificate {
            Some(certificate) => certificate.keep_up(&hook.metrics).await,
            None => std::future::pending().await,
        }
    };
    let accepted = async {
        loop {
            if room.available_permits() == 0 {
                hook.metrics.hooks.filled();
            }
            // Closed semaphores are the only error, and this one is never closed.
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let (stream, peer) = match listener.accept().await {
                // Who calls by IPv4 is one, whichever family the port is of.
                Ok((stream, peer)) => (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port())),
                Err(error) => {
                    // Out of file descriptors, as a rule: some will be free again.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (acceptor, hook) = (acceptor.clone(), hook.clone());
            let Some(slot) = hook.limited_peer(peer.ip()).map_or(Some(None), |p| limit.acquire(p).map(Some))
            else {
                hook.metrics.hooks.cut("crowded");
                continue;
            };
            let open = OpenConnection::new(permit, slot, &hook.metrics);
            tokio::spawn(async move {
                let _open = open;
                let _ = stream.set_nodelay(true);
                match acceptor {
                    None => one(stream, peer, &hook).await,
                    Some(acceptor) => {
                        match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => one(stream, peer, &hook).await,
                            Ok(Err(_)) => hook.metrics.hooks.cut("handshake"),
                            Err(_) => hook.metrics.hooks.cut("slow"),
                        }
                    }
                }
            });
        }
    };
    tokio::select! { () = watched => {}, () = accepted => {} }
}

/// A connection, as long as it lasts.
struct OpenConnection {
    _permit: OwnedSemaphorePermit,
    _slot: Option<ConnectionSlot>,
    metrics: Arc<Metrics>,
}

impl OpenConnection {
    fn new(permit: OwnedSemaphorePermit, slot: Option<ConnectionSlot>, metrics: &Arc<Metrics>) -> Self {
        metrics.hooks.connections.inc();
        Self { _permit: permit, _slot: slot, metrics: metrics.clone() }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.hooks.connections.dec();
    }
}

async fn one(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: SocketAddr, hook: &HookServer) {
    let service = service_fn(|request| async {
        let answer = hook.answer(peer.ip(), request).await;
        Ok::<_, Infallible>(answer)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    match tokio::time::timeout(MAX_AGE, served.as_mut()).await {
        Ok(Err(error)) if error.is_timeout() => hook.metrics.hooks.cut("slow"),
        Ok(Err(error)) if error.is_parse() => hook.metrics.hooks.cut("unreadable"),
        // A peer that breaks off is no news.
        Ok(_) => {}
        Err(_) => {
            hook.metrics.hooks.cut("old");
            // What it is being answered it may still read.
            served.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(HEAD_TIMEOUT, served).await;
        }
    }
}
