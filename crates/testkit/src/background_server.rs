//! A server of the testkit on a thread and runtime of its own: it serves tests of any runtime and outlives each of them.

use anyhow::{Context, Result};
use std::thread::JoinHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Lets a connection send each part of an answer at once, as the servers do that those of the test kit stand in for. Otherwise
/// a small part waits until the client has acknowledged the part before: up to 40 ms.
pub fn send_at_once(stream: &mut TcpStream) {
    // It fails only for a connection that has ended.
    let _ = stream.set_nodelay(true);
}

/// A server on 127.0.0.1. Dropping it ends it.
pub(crate) struct BackgroundServer {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundServer {
    /// Starts a server on a free port. `name` is the name of its thread.
    pub(crate) fn start<F, Fut>(name: &str, serve: F) -> Result<BackgroundServer>
    where
        F: FnOnce(TcpListener) -> Fut + Send + 'static,
        Fut: Future<Output = ()>,
    {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(listener) => {}
                    _ = stopped => {}
                }
            });
            // Does not wait for blocking tasks: nobody needs their results any more.
            runtime.shutdown_background();
        })?;
        Ok(BackgroundServer { port, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for BackgroundServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // An error is a panic of the thread, which was printed already.
            let _ = thread.join();
        }
    }
}
