//! The connections of many peers, with a real API server.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{run, serve};

#[test]
fn eight_peers_that_hold_all_connections_they_can_get_keep_no_other_peer_out() -> Result<()> {
    run(async {
        let fixture = serve(|options, _| options.connections = 16).await?;
        let connect = async |peer: u8| {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 1, peer], 0)))?;
            anyhow::Ok(socket.connect(fixture.at).await?)
        };
        let mut held = Vec::new();
        for _ in 0..2 {
            for peer in 1..=8 {
                held.push(connect(peer).await?);
            }
        }
        let mut quiet = connect(9).await?;
        quiet.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        // The head of a request may take 10 s: the other peers hold their connections for that time.
        let read = tokio::time::timeout(Duration::from_secs(5), quiet.read_to_end(&mut answer)).await;
        read.context("the call waits for the connections of other peers")??;
        ensure!(answer.starts_with(b"HTTP/1.1 405"), "{}", String::from_utf8_lossy(&answer));
        Ok(())
    })
}
