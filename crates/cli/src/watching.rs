//! Watches of single commands: how long a request lasts, and what its errors mean.

use std::fmt::Debug;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::Request;
use kube::client::{Body, ClientBuilder};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Error, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::{Receiver, Sender};

use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure};

/// How long the API server keeps one watch request open. It is shorter than the read timeout of the connection, which
/// then only ends watches that the network has lost.
const WATCH_SECONDS: u32 = 25;
const _: () = assert!((WATCH_SECONDS as u64) < API_CALL_TIMEOUT.as_secs());

/// What a watch reports.
#[derive(Debug)]
pub(crate) enum Report<K> {
    Event(Event<K>),
    /// A request has failed. The watch tries again.
    Interrupted(Error),
    /// The API server has accepted a watch request after an interruption.
    Resumed,
}

/// The reports of a watch, until the API server refuses it.
pub(crate) type Reports<K> = BoxStream<'static, watcher::Result<Report<K>>>;

/// Returns the reports of a watch, which continues after an interruption. An error is its last report: the API server
/// refuses the watch. `api` makes the API from a client of the connection, which needs [`API_CALL_TIMEOUT`].
pub(crate) fn reports<K>(
    connection: &Connection,
    api: impl FnOnce(Client) -> Api<K>,
    config: Config,
) -> Reports<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let accepted = Sender::new(());
    let receiver = accepted.subscribe();
    let api = api(noting_client(connection.client.clone(), accepted));
    let events = watcher(api, config.timeout(WATCH_SECONDS)).default_backoff();
    Watch::new(events.boxed(), receiver).reports()
}

/// Returns a client that notes each watch request that the API server has accepted. kube's watcher reports nothing when it
/// continues after an interruption and no object has changed.
fn noting_client(client: Client, accepted: Sender<()>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, accepted) = (client.clone(), accepted.clone());
        let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|p| p == "watch=true"));
        async move {
            let answer = client.send(request).await.map_err(tower::BoxError::from)?;
            if is_watch && answer.status().is_success() {
                accepted.send_replace(());
            }
            Ok::<_, tower::BoxError>(answer)
        }
    });
    ClientBuilder::new(service, namespace).build()
}

/// A watch, and what is known about its last request.
struct Watch<K> {
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    /// Changes when a watch request is accepted.
    accepted: Receiver<()>,
    /// True after a watch request was accepted.
    is_started: bool,
    is_interrupted: bool,
    /// True if the last request was refused.
    is_refused: bool,
}

impl<K: Send + 'static> Watch<K> {
    fn new(events: BoxStream<'static, watcher::Result<Event<K>>>, accepted: Receiver<()>) -> Watch<K> {
        Watch { events, accepted, is_started: false, is_interrupted: false, is_refused: false }
    }

    fn reports(self) -> Reports<K> {
        let next = |mut watch: Watch<K>| async move { watch.next().await.map(|report| (report, watch)) };
        stream::unfold(self, next).boxed()
    }

    async fn next(&mut self) -> Option<watcher::Result<Report<K>>> {
        let event = tokio::select! {
            biased;
            Ok(()) = self.accepted.changed(), if self.is_interrupted => {
                (self.is_started, self.is_interrupted, self.is_refused) = (true, false, false);
                return Some(Ok(Report::Resumed));
            }
            event = self.events.next() => event?,
        };
        Some(match event {
            Ok(event) => Ok(Report::Event(event)),
            Err(error) => self.failed(error),
        })
    }

    /// An API server that starts may refuse a request before it has read the permissions. So only the second refusal in a row
    /// ends a watch that has started.
    fn failed(&mut self, error: Error) -> watcher::Result<Report<K>> {
        let was_accepted = self.accepted.has_changed().unwrap_or(false);
        self.accepted.mark_unchanged();
        self.is_started |= was_accepted;
        let is_second = self.is_refused && !was_accepted;
        (self.is_interrupted, self.is_refused) = (true, is_refused(&error));
        match self.is_refused && (is_second || !self.is_started) {
            true => Err(error),
            false => Ok(Report::Interrupted(error)),
        }
    }
}

/// Returns the note about an interruption.
pub(crate) fn interruption(error: Error, connection: &Connection) -> String {
    format!("{}; trying again", watch_failure(error, connection).message)
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

/// Returns true if the API server has refused a request of the watch.
fn is_refused(error: &Error) -> bool {
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// What a request does.
    #[derive(Clone, Copy)]
    enum Step {
        Accepted,
        Listed,
        Lost,
        Refused,
    }
    use Step::{Accepted, Listed, Lost, Refused};

    /// Returns the reports of a watch with these steps. The last word is `refused` if the watch has ended with an error.
    async fn words(steps: &'static [Step]) -> Vec<&'static str> {
        let accepted = Sender::new(());
        let receiver = accepted.subscribe();
        let status = |code| kube::Error::Api(Status::failure("", "").with_code(code).boxed());
        let events = stream::iter(steps).filter_map(move |step| {
            let event = match step {
                Accepted => {
                    accepted.send_replace(());
                    None
                }
                Listed => Some(Ok(Event::Init)),
                Lost => Some(Err(Error::WatchStartFailed(status(503)))),
                Refused => Some(Err(Error::WatchStartFailed(status(403)))),
            };
            std::future::ready(event)
        });
        let mut reports = Watch::<()>::new(events.boxed(), receiver).reports();
        let mut words = Vec::new();
        while let Some(report) = reports.next().await {
            match report {
                Ok(Report::Event(_)) => words.push("event"),
                Ok(Report::Interrupted(_)) => words.push("interrupted"),
                Ok(Report::Resumed) => words.push("resumed"),
                Err(_) => {
                    words.push("refused");
                    break;
                }
            }
        }
        words
    }

    #[tokio::test]
    async fn only_the_second_refusal_in_a_row_ends_a_watch() {
        let table: [(&[Step], &str); 7] = [
            (&[Listed, Refused], "event refused"),
            (&[Lost, Refused], "interrupted refused"),
            (&[Accepted, Refused, Refused], "interrupted refused"),
            // The start of a new list sends no request.
            (&[Accepted, Refused, Listed, Refused], "interrupted event refused"),
            (&[Accepted, Refused, Lost, Refused, Listed], "interrupted interrupted interrupted event"),
            (&[Accepted, Refused, Accepted, Refused], "interrupted interrupted"),
            (&[Accepted, Lost, Accepted, Listed, Listed], "interrupted event resumed event"),
        ];
        for (steps, expected) in table {
            assert_eq!(words(steps).await.join(" "), expected);
        }
    }
}
