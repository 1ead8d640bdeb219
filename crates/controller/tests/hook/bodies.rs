//! Long bodies: how many are held at a time, and how many of them one peer may have.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_controller::hook::Proxies;
use sluice_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::server::{Served, run, serve};

/// The length of a long body, in bytes.
const LENGTH: usize = 100_000;

/// Who sends a body: the address of the peer, and the client that it names if it is a proxy.
#[derive(Clone, Copy, Debug)]
struct Sender(&'static str, Option<&'static str>);

impl Sender {
    /// Sends so much of a long body that nobody has signed.
    async fn sends(self, served: &Served, length: usize) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(self.0.parse::<IpAddr>()?, 0))?;
        let mut stream = socket.connect(served.at).await?;
        let forwarded = self.1.map(|client| format!("x-forwarded-for: {client}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /promotion/apps/podinfo/dev HTTP/1.1\r\nhost: a\r\n{forwarded}content-length: {LENGTH}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b' '; length]).await?;
        Ok(stream)
    }

    /// Sends a whole one, and returns the status of the answer: 401 if it was read.
    async fn status(self, served: &Served) -> Result<u16> {
        let mut stream = self.sends(served, LENGTH).await?;
        let mut line = [0; 12];
        let answer = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut line)).await;
        answer.context("no answer")??;
        Ok(std::str::from_utf8(&line)?.split(' ').nth(1).context("no status")?.parse()?)
    }

    async fn becomes(self, served: &Served, wanted: u16) -> Result<()> {
        eventually(Duration::from_secs(60), async || {
            let status = self.status(served).await?;
            ensure!(status == wanted, "{self:?}: {status}");
            Ok(())
        })
        .await
    }
}

#[test]
fn one_peer_leaves_room_for_the_long_bodies_of_others() -> Result<()> {
    run(async {
        let served = serve(|options, _| {
            options.proxies = Proxies::new(vec!["127.0.0.2/32".parse().unwrap()]);
        })
        .await?;
        for (holder, other) in [
            (Sender("127.0.0.1", None), Sender("127.0.0.3", None)),
            (Sender("127.0.0.2", Some("198.51.100.7")), Sender("127.0.0.2", Some("198.51.100.8"))),
            // Who is no proxy is itself, whatever it says.
            (Sender("127.0.0.1", Some("198.51.100.9")), Sender("127.0.0.3", Some("198.51.100.9"))),
        ] {
            // As many as there may be of all peers together.
            let mut held = Vec::new();
            for _ in 0..32 {
                held.push(holder.sends(&served, LENGTH - 1).await?);
            }
            holder.becomes(&served, 503).await?;
            let status = other.status(&served).await?;
            ensure!(status == 401, "{other:?} finds no room beside {holder:?}: {status}");
            drop(held);
            holder.becomes(&served, 401).await?;
        }
        Ok(())
    })
}
