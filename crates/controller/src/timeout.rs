//! API servers that say nothing. Connections stay open to one that hangs, or where something on the way
//! has forgotten them: whatever is asked has an end, so that it can be asked again.

use std::io::{Error, ErrorKind};
use std::time::Duration;

/// How long the answer to a single call is waited for, where nothing shorter is wanted: longer than an API
/// server takes that is merely busy.
pub(crate) const API_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A server has not answered for so long. What was asked for may have been done.
pub(crate) fn timed_out(time: Duration) -> kube::Error {
    let said = format!("no answer within {} seconds", time.as_secs());
    kube::Error::ReadEvents(Error::new(ErrorKind::TimedOut, said))
}

/// The answer, or [`timed_out`] after so long.
pub(crate) async fn within<T>(
    time: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    tokio::time::timeout(time, call).await.unwrap_or_else(|_| Err(timed_out(time)))
}
