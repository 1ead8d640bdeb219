//! A TCP proxy whose connections can be closed, or stalled: then they stay open and nothing comes from the server.

use crate::background_server::{BackgroundServer, send_at_once};
use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connectivity {
    /// How often all connections were closed.
    disconnects: u64,
    /// Nothing comes from the server.
    is_stalled: bool,
}

/// A proxy to a port of this machine. Dropping it closes its connections and its port.
pub struct TcpProxy {
    server: BackgroundServer,
    connectivity: watch::Sender<Connectivity>,
}

impl TcpProxy {
    /// Starts a proxy to a port of this machine.
    ///
    /// # Errors
    /// No port is free.
    pub fn to(port: u16) -> Result<TcpProxy> {
        let connectivity = watch::Sender::new(Connectivity::default());
        let sender = connectivity.clone();
        let server =
            BackgroundServer::start("tcp-proxy", async move |listener| serve(listener, port, sender).await)?;
        Ok(TcpProxy { server, connectivity })
    }

    /// The port that the proxy listens on.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Closes all connections. New ones are accepted.
    pub fn disconnect(&self) {
        self.connectivity.send_modify(|now| now.disconnects += 1);
    }

    /// While on, connections stay open and nothing comes from the server: watches are stale, and calls are not
    /// answered. The proxy delivers what the server sent when it is switched off.
    pub fn stall(&self, on: bool) {
        self.connectivity.send_modify(|now| now.is_stalled = on);
    }
}

async fn serve(listener: TcpListener, port: u16, connectivity: watch::Sender<Connectivity>) {
    while let Ok((client, _)) = listener.accept().await {
        let connectivity = connectivity.clone();
        tokio::spawn(async move {
            let mut changes = connectivity.subscribe();
            let disconnects = changes.borrow().disconnects;
            tokio::select! {
                _ = forward(client, port, connectivity.subscribe()) => {}
                _ = changes.wait_for(|now| now.disconnects != disconnects) => {}
            }
        });
    }
}

async fn forward(
    mut client: TcpStream,
    port: u16,
    connectivity: watch::Receiver<Connectivity>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    send_at_once(&mut client);
    send_at_once(&mut server);
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = copy(from_client, to_server, None);
    let answers = copy(from_server, to_client, Some(connectivity));
    tokio::select! {
        ended = requests => ended,
        ended = answers => ended,
    }
}

/// Copies until the end; waits while the connection is stalled.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut connectivity: Option<watch::Receiver<Connectivity>>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        if let Some(connectivity) = &mut connectivity {
            // The sender lives as long as the proxy.
            let _ = connectivity.wait_for(|now| !now.is_stalled).await;
        }
        to.write_all(&chunk[..read]).await?;
    }
}
