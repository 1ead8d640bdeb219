//! The limits of long bodies in memory, of one peer and of all.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_controller::hook::Proxies;
use sluice_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::server::{HookFixture, run, serve};

/// The length of a long body, in bytes.
const LENGTH: usize = 100_000;

/// The sender of a body: the address of the peer, and the address in `X-Forwarded-For`.
#[derive(Clone, Copy, Debug)]
struct BodySender(&'static str, Option<&'static str>);

impl BodySender {
    /// Sends the first `length` bytes of a long body without a signature.
    async fn send(self, fixture: &HookFixture, length: usize) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(self.0.parse::<IpAddr>()?, 0))?;
        let mut stream = socket.connect(fixture.at).await?;
        let forwarded = self.1.map(|client| format!("x-forwarded-for: {client}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /promotion/apps/podinfo/dev HTTP/1.1\r\nhost: a\r\n{forwarded}content-length: {LENGTH}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b' '; length]).await?;
        Ok(stream)
    }

    /// Begins as many bodies as all peers together may have, and ends none.
    async fn hold_all(self, fixture: &HookFixture) -> Result<Vec<TcpStream>> {
        let mut held = Vec::new();
        for _ in 0..32 {
            held.push(self.send(fixture, LENGTH - 1).await?);
        }
        Ok(held)
    }

    /// Sends a whole body, and returns the status of the answer, which is 401 if the body was read.
    async fn status(self, fixture: &HookFixture) -> Result<u16> {
        let mut stream = self.send(fixture, LENGTH).await?;
        let mut line = [0; 12];
        let answer = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut line)).await;
        answer.context("no answer")??;
        Ok(std::str::from_utf8(&line)?.split(' ').nth(1).context("no status")?.parse()?)
    }

    /// Waits until a body is answered with a status.
    async fn wait_for(self, fixture: &HookFixture, expected: u16) -> Result<()> {
        eventually(Duration::from_secs(60), async || {
            let status = self.status(fixture).await?;
            ensure!(status == expected, "{self:?}: {status}");
            Ok(())
        })
        .await
    }
}

#[test]
fn one_peer_leaves_room_for_the_long_bodies_of_others() -> Result<()> {
    run(async {
        let fixture = serve(|options, _| {
            options.proxies = Proxies::new(vec!["127.0.0.2/32".parse().unwrap()]);
        })
        .await?;
        for (holder, other) in [
            (BodySender("127.0.0.1", None), BodySender("127.0.0.3", None)),
            (BodySender("127.0.0.2", Some("198.51.100.7")), BodySender("127.0.0.2", Some("198.51.100.8"))),
            // The header of a peer that is no trusted proxy is ignored.
            (BodySender("127.0.0.1", Some("198.51.100.9")), BodySender("127.0.0.3", Some("198.51.100.9"))),
        ] {
            // The server ends those that take too long, so a slow machine sends them again.
            let held = eventually(Duration::from_secs(60), async || {
                let held = holder.hold_all(&fixture).await?;
                let status = holder.status(&fixture).await?;
                ensure!(status == 503, "{holder:?}: {status}");
                Ok(held)
            });
            let held = held.await?;
            let status = other.status(&fixture).await?;
            ensure!(status == 401, "{holder:?} blocks the long body of {other:?}: {status}");
            drop(held);
            holder.wait_for(&fixture, 401).await?;
        }
        Ok(())
    })
}
