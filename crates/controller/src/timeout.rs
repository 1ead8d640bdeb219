//! Timeouts of calls to API servers. A connection stays open if the server hangs, or if a proxy on the way has
//! dropped the connection: each call has a timeout, so that it can be repeated.

use std::io::{Error, ErrorKind};
use std::time::Duration;

/// The timeout of a call, unless a shorter one is needed: longer than a busy API server takes.
pub(crate) const API_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The error of a call that had no answer within this time. The server may have carried it out.
pub(crate) fn timed_out(time: Duration) -> kube::Error {
    let message = format!("no answer within {} seconds", time.as_secs());
    kube::Error::ReadEvents(Error::new(ErrorKind::TimedOut, message))
}

/// Returns the answer to a call, or [`timed_out`] after this time.
pub(crate) async fn within<T>(
    time: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    tokio::time::timeout(time, call).await.unwrap_or_else(|_| Err(timed_out(time)))
}
