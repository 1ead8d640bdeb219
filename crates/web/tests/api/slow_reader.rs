//! A reader of the stream of changes that stops reading, over a real connection: it costs little memory, the others get each
//! change, and when it reads again it gets the newest state.

use std::net::SocketAddr;
use std::time::Duration;

use sluice_api::snapshot::Snapshot;
use sluice_core::fleet::index::Fleet;
use sluice_web::{Api, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::world::{World, environment, pipeline, snapshot};

const PIPELINES: usize = 20;
/// How often all of them change while one reader does not read.
const CHANGES: usize = 8;

/// All pipelines in the state of a change. Each one is five kilobytes on the stream, which has the first cause.
fn after(change: usize) -> Snapshot {
    let version = format!("1.0.{change}");
    let statuses = || {
        let long = environment(&version, "Failed", &"x".repeat(5000));
        [long, environment(&version, "Ready", ""), environment(&version, "Ready", "")]
    };
    let pipelines = (0..PIPELINES).map(|n| pipeline("apps", &format!("app-{n:03}"), statuses()));
    snapshot(pipelines.collect(), Vec::new())
}

/// A connection that reads the stream.
struct Connection {
    stream: TcpStream,
    /// What was read after the last event.
    rest: String,
    /// All bytes that were read.
    read: usize,
}

impl Connection {
    /// Asks for the stream. The system keeps this much of what was not read yet.
    async fn open(address: SocketAddr, buffer: u32) -> Connection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let request = "GET /api/v1/changes HTTP/1.1\r\nhost: a\r\nauthorization: Bearer admin\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        Connection { stream, rest: String::new(), read: 0 }
    }

    /// Reads until the last pipeline has the state of a change.
    async fn read_until(&mut self, change: usize) {
        let last = format!("\"name\":\"app-{:03}\"", PIPELINES - 1);
        let version = format!("\"1.0.{change}\"");
        let mut piece = vec![0; 64 << 10];
        loop {
            let whole = self.rest.rfind("\n\n").unwrap_or_default();
            let events: String = self.rest.drain(..whole).collect();
            if events.split("\n\n").any(|event| event.contains(&last) && event.contains(&version)) {
                return;
            }
            let read = timeout(Duration::from_secs(60), self.stream.read(&mut piece)).await.unwrap().unwrap();
            assert!(read > 0, "the stream has ended after {} bytes", self.read);
            self.read += read;
            self.rest.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_pauses_gets_the_newest_state_and_delays_no_other() {
    let world = World::new(after(0));
    let listener = TcpSocket::new_v4().unwrap();
    listener.set_send_buffer_size(16 << 10).unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(8).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Api::new(Fleet::default(), world.clone(), false)));
    let mut slow = Connection::open(address, 4 << 10).await;
    let mut other = Connection::open(address, 1 << 20).await;
    other.read_until(0).await;
    let list = other.read;
    for change in 1..=CHANGES {
        world.set(after(change));
        other.read_until(change).await;
    }
    slow.read_until(CHANGES).await;
    // What the sockets hold, the state that was being sent, and the newest one.
    assert!(slow.read < 4 * list, "{} bytes, and one list has {list}", slow.read);
}
