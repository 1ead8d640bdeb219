//! A watch of one kind that continues after errors: it lists the objects, follows their changes, and lists again
//! if it cannot resume from the last change. Each object is trimmed before the next one is read.

use std::fmt::{self, Debug};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures::{AsyncBufRead, pin_mut};
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::api::{ObjectMeta, WatchParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{timeout, timeout_at};

use super::change_count::{ChangeCount, TooManyChanges};
use super::limit::WatchLimits;
use super::line::{self, WatchLine};
use super::list;
use super::object_text::{ObjectBuffer, ObjectText};
use super::parsed_object::{ParsedObject, UnreadableObject};
use super::read_error::api_error_message;
use super::relist::ScopeLists;
use super::too_large::TooLarge;
use crate::timeout::timed_out;

/// An API that returns unreadable objects as such, so that one of them does not break a list or a watch.
pub type ParsedObjectApi<K> = Api<ParsedObject<K>>;

/// An event of a watch.
#[derive(Debug)]
pub enum ObjectEvent<T> {
    /// All objects that exist at a resource version, which is 0 if it is not a number.
    Listed(Vec<T>, u64),
    /// An object exists, or has changed.
    Applied(T),
    /// An object was deleted.
    Deleted(ObjectMeta),
    /// The objects of a namespace are left out from now on, because they exceed a limit. Never from a trusted server.
    LeftOut(String, TooLarge),
    /// An object exists and cannot be read. An earlier state of it is outdated.
    Unreadable(UnreadableObject),
    /// A list or watch has failed. It will be retried.
    Failed(WatchFailure),
}

/// The call that failed.
#[derive(Debug)]
pub enum WatchFailure {
    /// A call that lists the objects. Also a call that watches them, if watches fail for so long that what is known of
    /// the objects is outdated.
    List(kube::Error),
    /// A call that watches the changes of the objects.
    Watch(kube::Error),
}

impl WatchFailure {
    /// Returns the error of the call.
    pub fn error(&self) -> &kube::Error {
        match self {
            WatchFailure::List(error) | WatchFailure::Watch(error) => error,
        }
    }
}

impl fmt::Display for WatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&api_error_message(self.error()))
    }
}

/// How long Sluice asks the server to keep a watch open, in seconds.
const WATCH_SECONDS: u32 = 290;
/// How long after [`WATCH_SECONDS`] a watch that is still open counts as broken.
const WATCH_MARGIN: Duration = Duration::from_secs(15);
/// The limit for the response headers of a watch.
const WATCH_START_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch that ends earlier counts as failed, and the next one starts after a pause.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);
/// The pause after the first failure. The pause doubles with each further failure.
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// If no watch starts for this long, the objects count as unreadable, because what is known of them is outdated.
const MAX_FAILING: Duration = Duration::from_secs(20);
/// The longest pause between two tries, so that Sluice sees a cluster that comes back within 15 seconds.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a server has sent too much.
const TOO_LARGE_PAUSE: Duration = Duration::from_secs(60);
/// The most unreadable objects that are reported of one list.
const MAX_UNREADABLE: usize = 100;
/// The most unreadable objects that the log names in each [`LOG_PERIOD`]: a cluster can send new ones without end.
const MAX_LOGGED: usize = 20;
/// The period after which the log names unreadable objects again.
const LOG_PERIOD: Duration = Duration::from_secs(600);

/// Follows the objects of `api`, or those that match the field selector `fields`. Calls `on_event` for each event
/// until it breaks, and returns the value of the break. `trim` returns what to keep of an object, or `None` to
/// ignore it.
pub async fn follow<K, T, E>(
    api: ParsedObjectApi<K>,
    fields: Option<String>,
    limits: WatchLimits,
    trim: impl Fn(K) -> Option<T>,
    on_event: impl FnMut(ObjectEvent<T>) -> ControlFlow<E>,
) -> E
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (client, changes) = (api.clone().into_client(), limits.start_changes());
    let mut follower = Follower {
        api,
        client,
        fields,
        limits,
        trim,
        on_event,
        pause: MIN_PAUSE,
        failing_since: None,
        is_failure_reported: false,
        changes,
        log_limit: LogLimit::default(),
    };
    loop {
        if let ControlFlow::Break(end) = follower.list_and_watch().await {
            return end;
        }
    }
}

struct Follower<K, F, G> {
    api: ParsedObjectApi<K>,
    client: Client,
    fields: Option<String>,
    limits: WatchLimits,
    trim: F,
    on_event: G,
    /// The next pause after a failure.
    pause: Duration,
    /// Since when no watch has started; `None` after one that did.
    failing_since: Option<Instant>,
    /// Whether it was reported that no watch starts. Then the objects must be listed again as soon as a watch starts.
    is_failure_reported: bool,
    /// Counts the changes of all watches of this follower together.
    changes: ChangeCount,
    log_limit: LogLimit,
}

/// Limits how many unreadable objects the log names. The value is the start of the current period, and the number of
/// objects since then.
#[derive(Debug, Default)]
struct LogLimit(Option<(Instant, usize)>);

impl LogLimit {
    /// Counts one more object, and returns the number in this period.
    fn count(&mut self, now: Instant) -> usize {
        let (_, count) = match &mut self.0 {
            Some(period) if now.duration_since(period.0) < LOG_PERIOD => period,
            ended => ended.insert((now, 0)),
        };
        *count += 1;
        *count
    }
}

/// A list that was read.
struct PendingList<T> {
    /// The objects, until they are reported.
    objects: Option<(Vec<T>, Vec<UnreadableObject>)>,
    /// The resource version from which to watch.
    version: String,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEnd {
    /// The next watch can continue from the last version.
    Resumable,
    /// The changes since the last version are unknown, so a new list is needed.
    Lost,
}

impl WatchEnd {
    /// Returns whether the next watch can continue after an error.
    fn after(error: &kube::Error) -> Self {
        match error {
            // With these codes the server is busy or denies access, and the version stays valid. Any other code
            // may be about the version, such as after a restore of the server.
            kube::Error::Api(status) if !matches!(status.code, 401 | 403 | 429 | 500 | 502 | 503) => {
                WatchEnd::Lost
            }
            // The version is part of the URL.
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => WatchEnd::Lost,
            _ => WatchEnd::Resumable,
        }
    }
}

impl<K, F, G> Follower<K, F, G>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Lists the objects, and watches them until a new list is needed. After a failure, or a watch that ends
    /// immediately, it pauses; the pauses grow.
    async fn list_and_watch<T, E>(&mut self) -> ControlFlow<E>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        self.wait_to_list().await?;
        let Some(mut list) = self.list().await? else {
            self.pause().await;
            return ControlFlow::Continue(());
        };
        loop {
            let started = Instant::now();
            let end = self.watch(&mut list).await?;
            if started.elapsed() < MIN_WATCH_TIME {
                self.pause().await;
            } else {
                self.pause = MIN_PAUSE;
            }
            if let WatchEnd::Lost = end {
                return ControlFlow::Continue(());
            }
        }
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Waits until the objects may be listed, and reports a long wait.
    async fn wait_to_list<T, E>(&mut self) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let Some((pause, held_back)) = self.limits.lists().map(ScopeLists::pause) else {
            return ControlFlow::Continue(());
        };
        if let Some(held_back) = held_back {
            (self.on_event)(ObjectEvent::Failed(WatchFailure::List(held_back.into())))?;
        }
        tokio::time::sleep(pause).await;
        ControlFlow::Continue(())
    }

    /// Reads all objects. After a failure, reports it and returns `None`.
    async fn list<T, E>(&mut self) -> ControlFlow<E, Option<PendingList<T>>>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let (mut objects, mut unreadable, mut has_objects, mut end) = (Vec::new(), Vec::new(), false, None);
        let request = list::request(self.api.resource_url(), self.selector().as_deref());
        let each = |text: ObjectText<'_>| {
            has_objects = true;
            match ParsedObject::<K>::within(text, &self.limits)?.0 {
                Ok(object) => objects.extend((self.trim)(object)),
                Err(object) if unreadable.len() < MAX_UNREADABLE => unreadable.push(object),
                // The object is left out: an object that is not in the list counts as absent, like an unreadable
                // object.
                Err(_) => {}
            }
            if self.limits.charge_listed()? {
                let dropped = WatchFailure::List(TooLarge::BothLists.into());
                if let ControlFlow::Break(value) = (self.on_event)(ObjectEvent::Failed(dropped)) {
                    end = Some(value);
                    return Err(TooLarge::BothLists.into());
                }
            }
            Ok(())
        };
        let read = match request {
            Ok(request) => list::read(&self.client, request, &self.limits, each).await,
            Err(error) => Err(error),
        };
        if let Some(value) = end {
            return ControlFlow::Break(value);
        }
        // A list that the server rejects costs little, and does not count.
        if let Some(lists) = self.limits.lists().filter(|_| has_objects || read.is_ok()) {
            lists.record_end();
        }
        match read {
            Ok(version) => {
                (self.failing_since, self.is_failure_reported) = (None, false);
                ControlFlow::Continue(Some(PendingList { objects: Some((objects, unreadable)), version }))
            }
            Err(error) => {
                drop(objects);
                let error = self.limits.secrets.hide_in(error);
                let too_large = TooLarge::from_error(&error).is_some();
                (self.on_event)(ObjectEvent::Failed(WatchFailure::List(error)))?;
                if too_large {
                    self.clear_and_pause().await;
                }
                ControlFlow::Continue(None)
            }
        }
    }

    /// Releases the memory, and pauses: a server that has sent too much would immediately do so again.
    async fn clear_and_pause(&mut self) {
        self.limits.clear();
        tokio::time::sleep(TOO_LARGE_PAUSE).await;
    }

    /// Reports the objects of a list, once.
    fn report_list<T, E>(&mut self, list: &mut PendingList<T>) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let Some((objects, unreadable)) = list.objects.take() else { return ControlFlow::Continue(()) };
        (self.on_event)(ObjectEvent::Listed(objects, list.version.parse().unwrap_or(0)))?;
        self.limits.finish_list();
        unreadable.into_iter().try_for_each(|object| self.report_unreadable(object))
    }

    /// Reports the list and the changes after it, and updates the version. If the server forbids the watch, the
    /// list is not reported, because it would become outdated.
    async fn watch<T, E>(&mut self, list: &mut PendingList<T>) -> ControlFlow<E, WatchEnd>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let client = self.client.clone();
        self.failing_since.get_or_insert_with(Instant::now);
        let started = start_watch(&client, self.api.resource_url(), self.selector(), &list.version);
        let body = match timeout(WATCH_START_TIMEOUT, started).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                if !matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    self.report_list(list)?;
                }
                return self.watch_failed(error).await;
            }
            Err(_) => return self.watch_failed(timed_out(WATCH_START_TIMEOUT)).await,
        };
        self.failing_since = None;
        if std::mem::take(&mut self.is_failure_reported) {
            return ControlFlow::Continue(WatchEnd::Lost);
        }
        self.report_list(list)?;
        pin_mut!(body);
        let version = &mut list.version;
        let mut line = ObjectBuffer::default();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(WATCH_SECONDS.into()) + WATCH_MARGIN;
        loop {
            self.limits.wait_for_room().await;
            let parsed = match timeout_at(deadline, line::next(&mut body, &mut line, &self.limits)).await {
                // The server closed the watch, sends nothing, or keeps the watch open for too long.
                Err(_) | Ok(Ok(false)) => return ControlFlow::Continue(WatchEnd::Resumable),
                Ok(Ok(true)) => {
                    let parsed = line::parse::<K>(line.text(), &self.limits);
                    let namespace = parsed.as_ref().ok().and_then(WatchLine::namespace);
                    let length = line.len();
                    line.clear();
                    if self.limits.is_unwatched(namespace) {
                        // The server does not do what it was asked for.
                        return self.watch_failed(TooLarge::Changes.into()).await;
                    }
                    if let Err(too_many) = self.changes.add(namespace, length) {
                        return self.leave_out(too_many).await;
                    }
                    parsed
                }
                Ok(Err(error)) => {
                    line.clear();
                    Err(error)
                }
            };
            match parsed {
                Ok(parsed) => self.report_change(parsed, version)?,
                Err(error) => return self.watch_failed(error).await,
            }
            if version.is_empty() || self.limits.has_outgrown() {
                return ControlFlow::Continue(WatchEnd::Lost);
            }
        }
    }

    /// Leaves out the namespace with the most changes. The next watch continues without it.
    async fn leave_out<T, E>(&mut self, too_many: TooManyChanges) -> ControlFlow<E, WatchEnd>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        if too_many.namespace.as_ref().is_some_and(|namespace| self.limits.leave_out(namespace)) {
            self.report_left_out()?;
            return ControlFlow::Continue(WatchEnd::Resumable);
        }
        self.watch_failed(too_many.into()).await
    }

    /// Reports the namespaces that are left out from now on. Their objects must not be reported as deleted before.
    fn report_left_out<T, E>(&mut self) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let namespaces = self.limits.newly_left_out().into_iter();
        namespaces.map(|(name, why)| ObjectEvent::LeftOut(name, why)).try_for_each(&mut self.on_event)
    }

    /// Returns the field selector of the next request.
    fn selector(&self) -> Option<String> {
        let unwatched = self.limits.unwatched();
        let without = unwatched.iter().map(|namespace| format!("metadata.namespace!={namespace}"));
        let all: Vec<String> = self.fields.iter().cloned().chain(without).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    /// Reports a change, and updates the version.
    fn report_change<T, E>(&mut self, change: WatchLine<K>, version: &mut String) -> ControlFlow<E>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        match change {
            WatchLine::Empty => ControlFlow::Continue(()),
            WatchLine::Bookmark(at) => {
                *version = at;
                self.report_left_out()
            }
            WatchLine::Deleted(metadata, at) => {
                *version = at;
                (self.on_event)(ObjectEvent::Deleted(*metadata))
            }
            WatchLine::Applied(object, at) => {
                *version = at;
                let object = match object.0 {
                    Ok(object) => object,
                    Err(object) => return self.report_unreadable(object),
                };
                let (name, namespace) = (object.meta().name.clone(), object.meta().namespace.clone());
                let kept = (self.trim)(object);
                self.report_left_out()?;
                match kept {
                    Some(kept) => (self.on_event)(ObjectEvent::Applied(kept)),
                    // An earlier state of the object may have been kept.
                    None => (self.on_event)(ObjectEvent::Deleted(ObjectMeta {
                        name,
                        namespace,
                        ..ObjectMeta::default()
                    })),
                }
            }
        }
    }

    /// Reports that a watch has failed, and returns whether the next watch can continue from the last version. It
    /// cannot after an event that could not be parsed.
    async fn watch_failed<T, E>(&mut self, error: kube::Error) -> ControlFlow<E, WatchEnd>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let error = self.limits.secrets.hide_in(error);
        if TooLarge::from_error(&error).is_some() {
            (self.on_event)(ObjectEvent::Failed(WatchFailure::Watch(error)))?;
            self.clear_and_pause().await;
            return ControlFlow::Continue(WatchEnd::Lost);
        }
        if matches!(&error, kube::Error::Api(status) if status.code == 410) {
            return ControlFlow::Continue(WatchEnd::Lost);
        }
        let end = WatchEnd::after(&error);
        let is_stale = self.failing_since.is_some_and(|since| since.elapsed() >= MAX_FAILING);
        let failure = match is_stale && !self.is_failure_reported {
            true => WatchFailure::List(error),
            false => WatchFailure::Watch(error),
        };
        self.is_failure_reported |= is_stale;
        (self.on_event)(ObjectEvent::Failed(failure))?;
        ControlFlow::Continue(end)
    }

    fn report_unreadable<T, E>(&mut self, object: UnreadableObject) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let (name, namespace) = (&object.metadata.name, &object.metadata.namespace);
        let why = self.limits.secrets.hide(&object.error);
        let source = &self.limits.source;
        match self.log_limit.count(Instant::now()) {
            1..=MAX_LOGGED => {
                tracing::warn!(source, name, namespace, error = %why, "cannot read an object; it counts as absent");
            }
            count if count == MAX_LOGGED + 1 => {
                tracing::warn!(
                    source,
                    "cannot read further objects; the log names none of them for ten minutes"
                );
            }
            _ => {}
        }
        (self.on_event)(ObjectEvent::Unreadable(object))
    }
}

/// Starts a watch of the changes after a version, and returns its body.
async fn start_watch(
    client: &Client,
    url: &str,
    fields: Option<String>,
    version: &str,
) -> kube::Result<impl AsyncBufRead + use<>> {
    let params = WatchParams {
        field_selector: fields,
        timeout: Some(WATCH_SECONDS),
        bookmarks: true,
        ..WatchParams::default()
    };
    let mut request = Request::new(url).watch(&params, version).map_err(kube::Error::BuildRequest)?;
    // Servers since 1.37 compress each event on its own, and the client decompresses only the first of them.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    client.request_stream(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_watch_continues_from_a_version_that_makes_no_url() {
        let made = Request::new("/api/v1/pods").watch(&WatchParams::default(), &"1".repeat(1 << 17));
        assert_eq!(WatchEnd::after(&kube::Error::BuildRequest(made.unwrap_err())), WatchEnd::Lost);
    }

    #[test]
    fn unreadable_objects_are_logged_again_when_the_period_is_over() {
        let (mut log_limit, start) = (LogLimit::default(), Instant::now());
        let counts: Vec<usize> = (0..30).map(|n| log_limit.count(start + n * LOG_PERIOD / 60)).collect();
        assert_eq!(counts, (1..=30).collect::<Vec<_>>());
        assert_eq!(log_limit.count(start + LOG_PERIOD), 1);
    }
}
