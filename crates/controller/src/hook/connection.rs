//! Connections to the hook server: each has its own task, their number is limited, and idle or slow ones are
//! closed.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_core::slots::{Slot, Slots};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::certificate::{Certificate, acceptor};
use super::metrics::CutCause;
use super::server::{HookOptions, HookServer};
use crate::metrics::Metrics;
use crate::metrics_and_probe_servers::listen;

/// One peer may have one of this many connections, unless it is a trusted proxy. The others are for other peers.
const PEER_SHARE: usize = 8;
/// How long a connection may stay open.
const MAX_AGE: Duration = Duration::from_secs(300);
/// How long the TLS handshake may take, and the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves calls for as long as the controller runs.
///
/// # Errors
/// When the address cannot be listened on, or the certificate cannot be read.
pub async fn serve(options: &HookOptions, hook: HookServer) -> std::io::Result<()> {
    let certificate = match &options.certificate {
        Some((certificate, key)) => Some(Certificate::read(certificate, key)?),
        None => None,
    };
    let listener = listen(options.address).await?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    tracing::info!(address = %listener.local_addr()?, scheme, "serving hooks");
    let checker = hook.secret_checker();
    tokio::select! {
        () = serve_all(listener, certificate, options.connections, Arc::new(hook)) => {}
        // The checker ends when the controller's loop has ended.
        () = checker.run() => {}
    }
    Ok(())
}

/// Serves at most `most` connections at a time, with TLS if there is a certificate.
async fn serve_all(
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    most: usize,
    hook: Arc<HookServer>,
) {
    let (total, per_peer) = (Arc::new(Semaphore::new(most)), Slots::new(most, most.div_ceil(PEER_SHARE)));
    let acceptor = certificate.clone().map(acceptor);
    let reloads = async {
        match &certificate {
            Some(certificate) => certificate.reload_forever(&hook.metrics).await,
            None => std::future::pending().await,
        }
    };
    let accepts = async {
        loop {
            if total.available_permits() == 0 {
                hook.metrics.hooks.count_full();
            }
            // Acquiring fails only on a closed semaphore, and this one is never closed.
            let Ok(permit) = total.clone().acquire_owned().await else { return };
            let (stream, peer) = match listener.accept().await {
                // An IPv4 peer has one address, even if the port listens on IPv6.
                Ok((stream, peer)) => (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port())),
                Err(error) => {
                    // Usually the process is out of file descriptors, and some will be free again.
                    tracing::warn!(%error, "cannot accept a connection to the hook server; trying again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (acceptor, hook) = (acceptor.clone(), hook.clone());
            let Some(slot) =
                hook.limited_peer(peer.ip()).map_or(Some(None), |p| per_peer.take_for(p).map(Some))
            else {
                hook.metrics.hooks.count_cut(CutCause::Crowded);
                continue;
            };
            let open = OpenConnection::new(permit, slot, &hook.metrics);
            tokio::spawn(async move {
                let _open = open;
                let _ = stream.set_nodelay(true);
                match acceptor {
                    None => serve_connection(stream, peer, &hook).await,
                    Some(acceptor) => {
                        match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => serve_connection(stream, peer, &hook).await,
                            Ok(Err(_)) => hook.metrics.hooks.count_cut(CutCause::Handshake),
                            Err(_) => hook.metrics.hooks.count_cut(CutCause::Slow),
                        }
                    }
                }
            });
        }
    };
    tokio::select! { () = reloads => {}, () = accepts => {} }
}

/// Counts an open connection in the limits and the metrics until it is dropped.
struct OpenConnection {
    _permit: OwnedSemaphorePermit,
    _slot: Option<Slot<IpAddr>>,
    metrics: Arc<Metrics>,
}

impl OpenConnection {
    fn new(permit: OwnedSemaphorePermit, slot: Option<Slot<IpAddr>>, metrics: &Arc<Metrics>) -> Self {
        metrics.hooks.connections.inc();
        Self { _permit: permit, _slot: slot, metrics: metrics.clone() }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.hooks.connections.dec();
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: SocketAddr,
    hook: &HookServer,
) {
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
        Ok(Err(error)) if error.is_timeout() => hook.metrics.hooks.count_cut(CutCause::Slow),
        Ok(Err(error)) if error.is_parse() => hook.metrics.hooks.count_cut(CutCause::Unreadable),
        // The peer closed the connection, which is not counted.
        Ok(_) => {}
        Err(_) => {
            hook.metrics.hooks.count_cut(CutCause::Old);
            // The peer may still read the answer that is being sent.
            served.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(HEAD_TIMEOUT, served).await;
        }
    }
}
