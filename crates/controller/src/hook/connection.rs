//! Connections to the hook server: a task each, not more than so many, none that only sits there.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::server::Hook;
use crate::metrics::Metrics;

/// The part of all connections that one peer may have, unless it is a proxy of ours: all of them together
/// would leave nobody else a place.
const OF_ONE: usize = 8;
/// How long a connection is kept: whoever does not read what he is answered would have it for ever.
const LIFE: Duration = Duration::from_secs(300);
/// How long a handshake, and the head of a request, may take.
const API_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the files of a certificate are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Serves every connection, in plain or with a certificate, so many at a time.
pub(super) async fn serve(
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    most: usize,
    hook: Arc<Hook>,
) {
    let (room, crowd) = (Arc::new(Semaphore::new(most)), Arc::new(Crowd::of(most.div_ceil(OF_ONE))));
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
            let Some(seat) = hook.crowd(peer.ip()).map_or(Some(None), |p| crowd.admit(p).map(Some)) else {
                hook.metrics.hooks.cut("crowded");
                continue;
            };
            let place = Place::new(permit, seat, &hook.metrics);
            tokio::spawn(async move {
                let _place = place;
                let _ = stream.set_nodelay(true);
                match acceptor {
                    None => one(stream, peer, &hook).await,
                    Some(acceptor) => {
                        match tokio::time::timeout(API_CALL_TIMEOUT, acceptor.accept(stream)).await {
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

/// What a connection takes up, as long as it lasts.
struct Place {
    _permit: OwnedSemaphorePermit,
    _seat: Option<Seat>,
    metrics: Arc<Metrics>,
}

impl Place {
    fn new(permit: OwnedSemaphorePermit, seat: Option<Seat>, metrics: &Arc<Metrics>) -> Self {
        metrics.hooks.connections.inc();
        Self { _permit: permit, _seat: seat, metrics: metrics.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.hooks.connections.dec();
    }
}

async fn one(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: SocketAddr, hook: &Hook) {
    let service = service_fn(|request| async {
        let answer = hook.answer(peer.ip(), request).await;
        Ok::<_, Infallible>(answer)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(API_CALL_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    match tokio::time::timeout(LIFE, served.as_mut()).await {
        Ok(Err(error)) if error.is_timeout() => hook.metrics.hooks.cut("slow"),
        Ok(Err(error)) if error.is_parse() => hook.metrics.hooks.cut("unreadable"),
        // A peer that breaks off is no news.
        Ok(_) => {}
        Err(_) => {
            hook.metrics.hooks.cut("old");
            // What it is being answered it may still read.
            served.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(API_CALL_TIMEOUT, served).await;
        }
    }
}

/// How many connections, or bodies, each peer has, and how many it may have.
pub(super) struct Crowd {
    peers: Mutex<HashMap<IpAddr, usize>>,
    most: usize,
}

/// A connection or body of a peer.
pub(super) struct Seat(Arc<Crowd>, IpAddr);

impl Crowd {
    /// Of nobody yet.
    pub(super) fn of(most: usize) -> Self {
        Self { peers: Mutex::default(), most }
    }

    /// One more of a peer, if it may have that.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut all = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(peer).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Seat(self.clone(), peer))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

fn acceptor(certificate: Arc<Certificate>) -> TlsAcceptor {
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificate);
    TlsAcceptor::from(Arc::new(config))
}

/// A certificate that is read again when its files change: one that is renewed counts without a
/// restart.
#[derive(Debug)]
pub(super) struct Certificate {
    files: (PathBuf, PathBuf),
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificate {
    /// Reads it.
    pub(super) fn read(certificate: &Path, key: &Path) -> std::io::Result<Arc<Self>> {
        let files = (certificate.to_path_buf(), key.to_path_buf());
        let current = RwLock::new(load(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads it again now and then. One that cannot be read, as in the middle of being replaced, does
    /// not count: the one before stays.
    async fn keep_up(&self, metrics: &Metrics) {
        loop {
            tokio::time::sleep(LOOK).await;
            let loaded = load(&self.files);
            metrics.hooks.certificate_unreadable.set(i64::from(loaded.is_err()));
            match loaded {
                Ok(read) => {
                    let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                    if read.0 != current.0 {
                        tracing::info!(file = %self.files.0.display(), "the hooks have a new certificate");
                        *current = read;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the hooks' certificate cannot be read again; the one before stays");
                }
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone())
    }
}

/// The text of the certificate, and the key that it makes with its key.
fn load((certificate, key): &(PathBuf, PathBuf)) -> std::io::Result<(Vec<u8>, Arc<CertifiedKey>)> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        let said =
            format!("{}: {why}: it is to be PEM, as in a Secret of type kubernetes.io/tls", path.display());
        std::io::Error::other(said)
    };
    let text = std::fs::read(certificate).map_err(|e| failed(certificate, &e))?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| failed(certificate, &e))?;
    if chain.is_empty() {
        return Err(failed(certificate, &"there is no certificate in it"));
    }
    let secret = std::fs::read(key).map_err(|e| failed(key, &e))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| failed(key, &e))?;
    let provider = rustls::crypto::ring::default_provider();
    let made = CertifiedKey::from_der(chain, secret, &provider).map_err(|e| failed(key, &e))?;
    Ok((text, Arc::new(made)))
}
