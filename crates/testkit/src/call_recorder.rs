//! A proxy with TLS in front of an API server, which records each call. Controllers accept no leaf cluster without TLS.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::kubeconfig::{Credential, connect, kubeconfig};
use crate::tls_server::TlsServer;

/// The most bytes of the body of a call.
const MAX_BODY_BYTES: usize = 4 << 20;

/// A running proxy. Dropping it ends it.
pub struct CallRecorder {
    server: TlsServer,
    name: String,
    calls: Arc<Mutex<Vec<String>>>,
}

impl CallRecorder {
    /// Starts a proxy in front of a cluster. Its calls have the rights of an administrator.
    ///
    /// # Errors
    /// No port is free.
    pub fn in_front_of(cluster: &Cluster) -> Result<CallRecorder> {
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let (recorded, admin) = (Arc::clone(&calls), cluster.kubeconfig());
        // The client belongs to the runtime of the server.
        let client: Arc<OnceCell<kube::Client>> = Arc::default();
        let router = Router::new().fallback(async move |request: Request<Body>| {
            let call = format!("{} {}", request.method(), request.uri().path());
            recorded.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            let bad_gateway = |_| StatusCode::BAD_GATEWAY;
            let client = client.get_or_try_init(|| connect(&admin)).await.map_err(bad_gateway)?;
            forward(request, client.clone()).await.map_err(bad_gateway)
        });
        Ok(CallRecorder {
            server: TlsServer::start("call-recorder", router)?,
            name: cluster.name().into(),
            calls,
        })
    }

    /// Returns a kubeconfig that leads through the proxy.
    pub fn kubeconfig(&self) -> String {
        let url = format!("https://127.0.0.1:{}", self.server.port());
        kubeconfig(&self.name, &url, &self.server.authority(), &Credential::Token("recorded"))
    }

    /// Returns the calls since the last time, as `METHOD path`, in the order in which they came.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends a call to the API server, and returns its answer as it arrives.
async fn forward(request: Request<Body>, client: kube::Client) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await?;
    for name in [
        header::HOST,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::CONNECTION,
        header::AUTHORIZATION,
    ] {
        head.headers.remove(name);
    }
    let answer = client.send(Request::from_parts(head, kube::client::Body::from(body.to_vec()))).await?;
    Ok(answer.map(Body::new))
}
