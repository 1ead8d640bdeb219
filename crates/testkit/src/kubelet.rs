//! A stand-in for a node and its kubelet, which forwards ports to this machine: clusters of the testkit have no nodes. It
//! serves the requests of Kubernetes 1.36 over WebSockets that these functions serve, and no others: `getPortForward` of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/server/server.go> and `handleWebSocketStreams` of
//! <https://github.com/kubernetes/cri-streaming/blob/v0.36.3/pkg/streaming/portforward/websocket.go>.

use std::collections::HashMap;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, Query, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::Cluster;
use crate::tls_server::TlsServer;

/// The one subprotocol that the stand-in speaks: each message begins with the number of its channel.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// The channels of the first port.
const DATA: u8 = 0;
const ERROR: u8 = 1;

/// A node of a cluster. Dropping it ends its kubelet; the Node stays.
pub struct KubeletStandIn {
    node: String,
    client: kube::Client,
    _server: TlsServer,
}

impl KubeletStandIn {
    /// Adds a node to a cluster. The stand-in belongs to the runtime of the caller.
    ///
    /// # Errors
    /// No port is free, or the API server rejects the Node.
    pub async fn start(cluster: &Cluster, node: &str) -> Result<KubeletStandIn> {
        let router = Router::new().route("/portForward/{namespace}/{pod}", get(port_forward));
        let server = TlsServer::start("kubelet", router)?;
        let client = cluster.client().await?;
        let object: Node = serde_json::from_value(json!({
            "metadata": {"name": node},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": server.port()}},
            },
        }))?;
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &object).await.context("cannot create the Node")?;
        Ok(KubeletStandIn { node: node.into(), client, _server: server })
    }

    /// Creates a pod of the controller on this node, with the labels of `deploy/deployment.yaml`. Its ports are those of
    /// this machine.
    ///
    /// # Errors
    /// The API server rejects the pod.
    pub async fn controller_pod(
        &self,
        namespace: &str,
        name: &str,
        args: &[&str],
        ready: bool,
    ) -> Result<()> {
        let container = json!({"name": "sluice", "image": "sluice", "args": args});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "sluice"}},
            "spec": {"nodeName": self.node, "containers": [container]},
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        pods.create(&PostParams::default(), &pod).await.context("cannot create the pod")?;
        let ready = if ready { "True" } else { "False" };
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}

/// Upgrades a connection that asks for the one port and the protocol of the stand-in.
async fn port_forward(
    Path((_, pod)): Path<(String, String)>,
    Query(parameters): Query<HashMap<String, String>>,
    mut request: Request,
) -> Response {
    let Some(port) = parameters.get("port").and_then(|port| port.parse().ok()) else {
        return (StatusCode::BAD_REQUEST, "query parameter \"port\" is required").into_response();
    };
    let headers = request.headers();
    let Some(accept) = accepted(headers) else { return StatusCode::FORBIDDEN.into_response() };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        // An error is a connection that the client closed.
        let _ = forward(upgrade, &pod, port).await;
    });
    let headers = [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_ACCEPT, &accept),
        (header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// Returns the answer to the key of a WebSocket request that offers the protocol.
fn accepted(headers: &HeaderMap) -> Option<String> {
    let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    offered.split(',').any(|protocol| protocol.trim() == PROTOCOL).then(|| derive_accept_key(key.as_bytes()))
}

async fn forward(upgrade: OnUpgrade, pod: &str, port: u16) -> Result<()> {
    let upgraded = TokioIo::new(upgrade.await?);
    let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
    // The first message of each channel is the port.
    for channel in [DATA, ERROR] {
        socket.send(message(channel, &port.to_le_bytes())).await?;
    }
    match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(stream) => copy(&mut socket, stream).await?,
        Err(error) => {
            let why = format!("error forwarding port {port} to pod {pod}, uid : {error}");
            socket.send(message(ERROR, why.as_bytes())).await?;
        }
    }
    socket.close(None).await?;
    // A request that is not read resets the connection, and what was sent before is lost.
    while socket.next().await.transpose()?.is_some() {}
    Ok(())
}

async fn copy(socket: &mut WebSocketStream<TokioIo<Upgraded>>, mut stream: TcpStream) -> Result<()> {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        tokio::select! {
            read = stream.read(&mut buffer) => match read? {
                0 => return Ok(()),
                length => socket.send(message(DATA, &buffer[..length])).await?,
            },
            received = socket.next() => match received.transpose()? {
                Some(Message::Binary(bytes)) if bytes.first() == Some(&DATA) => stream.write_all(&bytes[1..]).await?,
                Some(Message::Close(_)) | None => return Ok(()),
                Some(_) => {}
            },
        }
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}
