//! The servers for metrics and for the kubelet's probes. Every program in the cluster may connect to them, so
//! connections are few and short, and new ones replace old ones: no client can keep the kubelet out. Liveness
//! means that the loop makes progress, not that a port answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_core::lock::lock;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::metrics::Metrics;

/// How many connections a server has at a time.
const MAX_CONNECTIONS: usize = 64;
/// How many connections one address has at a time.
const MAX_CONNECTIONS_OF_ONE: usize = 16;
/// How long the header of a request may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be open. Prometheus connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// The status, content type and body of an answer; `None` for an unknown path.
type HttpAnswer = Option<(StatusCode, &'static str, String)>;

const TEXT: &str = "text/plain; charset=utf-8";

/// Serves metrics on `/metrics`.
///
/// # Errors
/// When it cannot listen.
pub async fn metrics(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let listener = listen(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    // Requests that wait at the same time share one rendering, since rendering blocks a thread. It begins after
    // the request.
    let last: Arc<Mutex<Option<(Instant, String)>>> = Arc::default();
    let answer = move |path: &str| -> HttpAnswer {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (path == "/metrics").then(|| {
            let requested = Instant::now();
            let mut last = lock(&last);
            let fresh = last.take().filter(|(begun, _)| *begun >= requested);
            let (_, text) = last.insert(fresh.unwrap_or_else(|| (Instant::now(), metrics.render())));
            (StatusCode::OK, kind, text.clone())
        })
    };
    serve(listener, answer).await;
    Ok(())
}

/// Serves `/healthz` and `/readyz`.
///
/// # Errors
/// When it cannot listen.
pub async fn health(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let listener = listen(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving health");
    let answer = move |path: &str| -> HttpAnswer {
        let (is_ok, problem) = match path {
            "/healthz" => (metrics.is_live(), "the loop has made no progress for a minute"),
            "/readyz" => {
                (metrics.is_ready(), "the hub or the Leases have not been read yet; the log says why")
            }
            _ => return None,
        };
        Some(match is_ok {
            true => (StatusCode::OK, TEXT, "ok\n".into()),
            false => (StatusCode::SERVICE_UNAVAILABLE, TEXT, problem.into()),
        })
    };
    serve(listener, answer).await;
    Ok(())
}

/// Listens on an address. If it stands for all addresses, and the machine has no IPv6, listens on all IPv4
/// addresses.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Answers requests for as long as the process runs.
async fn serve(listener: TcpListener, answer: impl Fn(&str) -> HttpAnswer + Clone + Send + Sync + 'static) {
    let open = Arc::new(OpenConnections::default());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => open.admit(peer.ip().to_canonical(), |number| {
                let (open, answer) = (open.clone(), answer.clone());
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serve_connection(stream, answer)).await;
                    open.ended(number);
                })
                .abort_handle()
            }),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, answer: impl Fn(&str) -> HttpAnswer) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, &answer);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    // Peers that disconnect or are slow are not logged.
    let _ = served.await;
}

fn respond(request: &Request<Incoming>, answer: impl Fn(&str) -> HttpAnswer) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let page = if is_read {
        let not_found = || (StatusCode::NOT_FOUND, TEXT, String::new());
        answer(request.uri().path()).unwrap_or_else(not_found)
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, TEXT, String::new())
    };
    let (status, kind, text) = page;
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The number of the last connection, and the open connections, oldest first.
#[derive(Default)]
struct OpenConnections(Mutex<(u64, VecDeque<OpenConnection>)>);

struct OpenConnection {
    number: u64,
    peer: IpAddr,
    task: AbortHandle,
}

impl OpenConnections {
    /// Adds a connection. If there are too many, from this address or in all, cuts the oldest of them.
    fn admit(&self, peer: IpAddr, begin: impl FnOnce(u64) -> AbortHandle) {
        let mut open = lock(&self.0);
        let (last, all) = &mut *open;
        let of_one = all.iter().filter(|other| other.peer == peer).count();
        let oldest = match (of_one >= MAX_CONNECTIONS_OF_ONE, all.len() >= MAX_CONNECTIONS) {
            (true, _) => all.iter().position(|other| other.peer == peer),
            (false, true) => Some(0),
            (false, false) => None,
        };
        if let Some(cut) = oldest.and_then(|at| all.remove(at)) {
            cut.task.abort();
        }
        *last += 1;
        // The task takes the same lock when it ends, so the connection is in the list by then.
        all.push_back(OpenConnection { number: *last, peer, task: begin(*last) });
    }

    fn ended(&self, number: u64) {
        let mut open = lock(&self.0);
        open.1.retain(|other| other.number != number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_unspecified_address_listens_on_both_families() {
        let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        assert_eq!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.is_ok(), has_v6);
    }

    /// A server that answers `/healthz`.
    async fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let answer = |path: &str| (path == "/healthz").then(|| (StatusCode::OK, TEXT, "ok\n".to_string()));
        tokio::spawn(serve(listener, answer));
        at
    }

    async fn connect(at: SocketAddr, from: u8) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, from), 0).into()).unwrap();
        socket.connect(at).await.unwrap()
    }

    /// Sends a request, and returns the answer.
    async fn request(stream: &mut TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn clients_that_hold_connections_keep_no_other_client_out() {
        let at = start().await;
        // Ten addresses hold as many connections as they can, with requests that never end.
        let mut held = Vec::new();
        for nth in 0..200u32 {
            let mut stream = connect(at, 2 + u8::try_from(nth % 10).unwrap()).await;
            stream.write_all(b"GET /hea").await.unwrap();
            held.push(stream);
        }
        let mut probe = connect(at, 1).await;
        let text = request(&mut probe, "/healthz").await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("ok\n"), "{text}");
        assert!(request(&mut connect(at, 1).await, "/other").await.starts_with("HTTP/1.1 404"));
        // The connections beyond the limit are cut immediately, and the others after the timeout.
        let begun = std::time::Instant::now();
        let mut cut = 0;
        for stream in &mut held {
            let mut rest = Vec::new();
            let wait = tokio::time::timeout(HEADER_TIMEOUT * 4, stream.read_to_end(&mut rest)).await;
            assert!(wait.is_ok(), "a connection stays open without a request");
            cut += usize::from(begun.elapsed() < HEADER_TIMEOUT / 2);
        }
        assert!(cut >= 200 - MAX_CONNECTIONS, "{cut} connections were cut");
    }

    #[tokio::test]
    async fn an_address_replaces_only_its_own_connections() {
        let at = start().await;
        let mut held = Vec::new();
        for _ in 0..MAX_CONNECTIONS_OF_ONE {
            held.push(connect(at, 2).await);
        }
        let mut other = connect(at, 3).await;
        for _ in 0..100 {
            held.push(connect(at, 2).await);
        }
        // The connection of the other address is older than all of the first address, and still open.
        assert!(request(&mut other, "/healthz").await.starts_with("HTTP/1.1 200"));
    }
}
