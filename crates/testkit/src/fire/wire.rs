//! A wire to a server, at the level of connections: it can be cut, so that all connections end at
//! once, and it can go dead, so that they stay and nothing more comes from the server.

use crate::listening::Listening;
use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a wire is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Condition {
    /// How often it was cut.
    cuts: u64,
    /// Nothing comes from the server.
    dead: bool,
}

/// The wire. Dropping it cuts it for good.
pub struct Wire {
    listening: Listening,
    condition: watch::Sender<Condition>,
}

impl Wire {
    /// Lays a wire to a port of this machine.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn to(port: u16) -> Result<Wire> {
        let condition = watch::Sender::new(Condition::default());
        let told = condition.clone();
        let listening = Listening::start("wire", async move |listener| serve(listener, port, told).await)?;
        Ok(Wire { listening, condition })
    }

    /// The port of its near end.
    pub fn port(&self) -> u16 {
        self.listening.port()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.condition.send_modify(|condition| condition.cuts += 1);
    }

    /// While on, connections stay and nothing comes from the server: watches are stale, and calls
    /// are not answered. What has come meanwhile is there when it is switched off.
    pub fn dead(&self, on: bool) {
        self.condition.send_modify(|condition| condition.dead = on);
    }
}

async fn serve(listener: TcpListener, port: u16, condition: watch::Sender<Condition>) {
    while let Ok((near, _)) = listener.accept().await {
        let condition = condition.clone();
        tokio::spawn(async move {
            let mut cut = condition.subscribe();
            let cuts = cut.borrow().cuts;
            tokio::select! {
                _ = carry(near, port, condition.subscribe()) => {}
                _ = cut.wait_for(|now| now.cuts != cuts) => {}
            }
        });
    }
}

async fn carry(near: TcpStream, port: u16, condition: watch::Receiver<Condition>) -> std::io::Result<()> {
    let far = TcpStream::connect(("127.0.0.1", port)).await?;
    let (asks, answers) = (near.into_split(), far.into_split());
    let there = pass(asks.0, answers.1, None);
    let back = pass(answers.0, asks.1, Some(condition));
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut condition: Option<watch::Receiver<Condition>>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        if let Some(condition) = &mut condition {
            // The sender lives as long as the wire.
            let _ = condition.wait_for(|now| !now.dead).await;
        }
        to.write_all(&chunk[..read]).await?;
    }
}
