//! Watches of single commands: how long a request lasts, and what its errors mean.

use std::fmt::Debug;

use futures::Stream;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Error, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure};

/// How long the API server keeps one watch request open. It is shorter than the read timeout of the connection, which
/// then only ends watches that the network has lost.
const WATCH_SECONDS: u32 = 25;
const _: () = assert!((WATCH_SECONDS as u64) < API_CALL_TIMEOUT.as_secs());

/// Returns the events of a watch, which continues after an interruption. The connection needs [`API_CALL_TIMEOUT`].
pub(crate) fn events<K>(api: Api<K>, config: Config) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config.timeout(WATCH_SECONDS)).default_backoff()
}

/// Returns the failure for an error of a watch.
pub(crate) fn watch_failure(error: Error, connection: &Connection) -> Failure {
    use Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(e) | WatchStartFailed(e) | WatchFailed(e) => connection.explain(e),
        WatchError(status) => connection.explain(kube::Error::Api(status)),
        other => Failure::new(Exit::Error, other.to_string()),
    }
}

/// Returns true if the API server has refused the watch: another try would be refused, too.
pub(crate) fn is_refused(error: &Error) -> bool {
    use Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let refused = |status: &kube::core::Status| matches!(status.code, 401 | 403 | 404);
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => refused(status),
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) | Error::NoResourceVersion => false,
    }
}
