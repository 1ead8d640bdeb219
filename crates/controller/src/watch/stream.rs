//! One watch of one kind, kept alive: lists, then follows, lists again where it has lost the thread.
//! What the caller does not want of an object is dropped before the next one is read.

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

use super::cause;
use super::change::{self, Change};
use super::guard::{Guard, Unreadable};
use super::limit::{self, ChangeCount, WatchLimits};
use super::list;
use super::relist::ScopeLists;
use crate::timeout::timed_out;

/// An API whose unreadable objects do not break the stream.
pub type ParsedObjectApi<K> = Api<Guard<K>>;

/// What a watch tells.
#[derive(Debug)]
pub enum ObjectEvent<T> {
    /// These are all that there were at a version: see `version_of`.
    Listed(Vec<T>, u64),
    /// This one is there, or has changed.
    Applied(T),
    /// This one is gone.
    Deleted(ObjectMeta),
    /// This one is there and cannot be read: why. What was known of it is not true any more.
    Unreadable(Unreadable),
    /// It does not work now; it goes on trying.
    Failed(Failure),
}

/// What does not work.
#[derive(Debug)]
pub enum Failure {
    /// KindState what there is.
    List(kube::Error),
    /// Hearing what changes.
    Watch(kube::Error),
}

impl Failure {
    /// Why.
    pub fn error(&self) -> &kube::Error {
        match self {
            Failure::List(error) | Failure::Watch(error) => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cause::words(self.error()))
    }
}

/// How long a server is to keep a watch open, in seconds.
const OPEN: u32 = 290;
/// How long after that a silent watch counts as lost.
const MARGIN: Duration = Duration::from_secs(15);
/// How long a server may take to begin a watch.
const BEGIN: Duration = Duration::from_secs(60);
/// A watch that ends sooner has not begun well.
const LASTING: Duration = Duration::from_secs(1);
/// The pause after the first failure.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// The pause after a server has sent too much.
const TOO_LARGE_PAUSE: Duration = Duration::from_secs(60);
/// The most unreadable objects that are told of one list.
const MOST_UNREADABLE: usize = 100;
/// So many unreadable objects are named in the log in each [`SPELL`]: a cluster can send new ones without end.
const MOST_NAMED: usize = 20;
/// How long it takes until others are named.
const SPELL: Duration = Duration::from_secs(600);
/// The longest pause between two tries. A cluster that comes back is to be seen within 15 seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the objects of `api` (all, or those with these `fields`) until `tell` breaks off, and
/// returns what it broke off with. `trim` keeps what is wanted of an object.
pub async fn follow<K, T, E>(
    api: ParsedObjectApi<K>,
    fields: Option<String>,
    limits: WatchLimits,
    trim: impl Fn(K) -> Option<T>,
    tell: impl FnMut(ObjectEvent<T>) -> ControlFlow<E>,
) -> E
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (client, changes) = (api.clone().into_client(), limits.changes());
    let mut thread = Follower {
        api,
        client,
        fields,
        limits,
        trim,
        tell,
        pause: SHORTEST_PAUSE,
        changes,
        named: Named::default(),
    };
    loop {
        if let ControlFlow::Break(end) = thread.once().await {
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
    tell: G,
    pause: Duration,
    /// The changes that have come lately, by whatever watch.
    changes: ChangeCount,
    /// What the log has named lately.
    named: Named,
}

/// How many unreadable objects were named in the log since a spell began.
#[derive(Debug, Default)]
struct Named(Option<(Instant, usize)>);

impl Named {
    /// Counts one more, and returns how many they are in this spell.
    fn one_more(&mut self, now: Instant) -> usize {
        let (_, count) = match &mut self.0 {
            Some(spell) if now.duration_since(spell.0) < SPELL => spell,
            ended => ended.insert((now, 0)),
        };
        *count += 1;
        *count
    }
}

/// What was listed, until it is told; and the version from which to watch on.
struct List<T> {
    all: Option<(Vec<T>, Vec<Unreadable>)>,
    version: String,
}

/// How a watch ended.
enum Ended {
    /// It can be taken up where it was.
    Open,
    /// What has changed since is not known any more.
    Lost,
}

impl<K, F, G> Follower<K, F, G>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Lists, and watches for as long as the thread is not lost. What ends at once, however it ends,
    /// is begun again after a pause that grows.
    async fn once<T, E>(&mut self) -> ControlFlow<E>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        self.wait_to_list().await?;
        let Some(mut listed) = self.list().await? else {
            self.rest().await;
            return ControlFlow::Continue(());
        };
        loop {
            let begun = Instant::now();
            let ended = self.watch(&mut listed).await?;
            if begun.elapsed() < LASTING {
                self.rest().await;
            } else {
                self.pause = SHORTEST_PAUSE;
            }
            if let Ended::Lost = ended {
                return ControlFlow::Continue(());
            }
        }
    }

    async fn rest(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Waits until the objects may be listed, and says so if that takes long.
    async fn wait_to_list<T, E>(&mut self) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let Some((pause, held_back)) = self.limits.lists().map(ScopeLists::pause) else {
            return ControlFlow::Continue(());
        };
        if let Some(held_back) = held_back {
            (self.tell)(ObjectEvent::Failed(Failure::List(held_back.into())))?;
        }
        tokio::time::sleep(pause).await;
        ControlFlow::Continue(())
    }

    /// Reads all that there is; `None` where it failed.
    async fn list<T, E>(&mut self) -> ControlFlow<E, Option<List<T>>>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let (mut listed, mut unreadable, mut is_begun) = (Vec::new(), Vec::new(), false);
        let each = |text: &[u8]| {
            is_begun = true;
            match Guard::<K>::within(text, &self.limits).map_err(kube::Error::SerdeError)?.0 {
                Ok(object) => listed.extend((self.trim)(object)),
                // Counts as not there, as it does when it is not listed.
                Err(bad) if unreadable.len() < MOST_UNREADABLE => unreadable.push(bad),
                Err(_) => {}
            }
            Ok(())
        };
        let url = self.api.resource_url();
        let read = list::read(&self.client, url, self.fields.as_deref(), &self.limits, each).await;
        // A server that refuses to list costs little.
        if let Some(lists) = self.limits.lists().filter(|_| is_begun || read.is_ok()) {
            lists.ended();
        }
        match read {
            Ok(version) => ControlFlow::Continue(Some(List { all: Some((listed, unreadable)), version })),
            Err(error) => {
                drop(listed);
                let too_large = limit::of(&error).is_some();
                (self.tell)(ObjectEvent::Failed(Failure::List(error)))?;
                if too_large {
                    self.stop_reading().await;
                }
                ControlFlow::Continue(None)
            }
        }
    }

    /// Keeps nothing, and pauses: a server that has sent too much would do so again at once.
    async fn stop_reading(&mut self) {
        self.limits.clear();
        tokio::time::sleep(TOO_LARGE_PAUSE).await;
    }

    /// Tells what was listed, once.
    fn tell_listed<T, E>(&mut self, list: &mut List<T>) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let Some((all, unreadable)) = list.all.take() else { return ControlFlow::Continue(()) };
        (self.tell)(ObjectEvent::Listed(all, list.version.parse().unwrap_or(0)))?;
        unreadable.into_iter().try_for_each(|bad| self.unreadable(bad))
    }

    /// Tells what was listed and what changes from then on, and keeps track of the version. What may
    /// not be watched is not known, though it may be listed.
    async fn watch<T, E>(&mut self, list: &mut List<T>) -> ControlFlow<E, Ended>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let client = self.client.clone();
        let begun = begin(&client, self.api.resource_url(), self.fields.clone(), &list.version);
        let body = match timeout(BEGIN, begun).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                if !matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    self.tell_listed(list)?;
                }
                return self.broken(error).await;
            }
            Err(_) => return self.broken(timed_out(BEGIN)).await,
        };
        self.tell_listed(list)?;
        pin_mut!(body);
        let version = &mut list.version;
        let mut line = Vec::new();
        let over = tokio::time::Instant::now() + Duration::from_secs(OPEN.into()) + MARGIN;
        loop {
            self.limits.room().await;
            let change = match timeout_at(over, change::line(&mut body, &mut line)).await {
                // A server that keeps it open for longer than it was asked to, or has fallen silent.
                Err(_) | Ok(Ok(false)) => return ControlFlow::Continue(Ended::Open),
                Ok(Ok(true)) => {
                    let counted = self.changes.change(line.len()).map_err(kube::Error::from);
                    counted.and_then(|()| change::read::<K>(&line, &self.limits))
                }
                Ok(Err(error)) => Err(error),
            };
            match change {
                Ok(change) => self.take(change, version)?,
                Err(error) => return self.broken(error).await,
            }
            if version.is_empty() || self.limits.has_outgrown() {
                return ControlFlow::Continue(Ended::Lost);
            }
        }
    }

    /// Tells of a change, and keeps track of the version.
    fn take<T, E>(&mut self, change: Change<K>, version: &mut String) -> ControlFlow<E>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        match change {
            Change::Nothing => ControlFlow::Continue(()),
            Change::Bookmark(at) => {
                *version = at;
                ControlFlow::Continue(())
            }
            Change::Deleted(metadata, at) => {
                *version = at;
                (self.tell)(ObjectEvent::Deleted(*metadata))
            }
            Change::Applied(object, at) => {
                *version = at;
                let object = match object.0 {
                    Ok(object) => object,
                    Err(bad) => return self.unreadable(bad),
                };
                let (name, namespace) = (object.meta().name.clone(), object.meta().namespace.clone());
                match (self.trim)(object) {
                    Some(kept) => (self.tell)(ObjectEvent::Applied(kept)),
                    // It may have been wanted until now.
                    None => (self.tell)(ObjectEvent::Deleted(ObjectMeta {
                        name,
                        namespace,
                        ..ObjectMeta::default()
                    })),
                }
            }
        }
    }

    /// A watch broke. Where the server says nothing that its start would not mend, it is taken up
    /// where it was; after an event that could not be read it is not.
    async fn broken<T, E>(&mut self, error: kube::Error) -> ControlFlow<E, Ended>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        if limit::of(&error).is_some() {
            (self.tell)(ObjectEvent::Failed(Failure::Watch(error)))?;
            self.stop_reading().await;
            return ControlFlow::Continue(Ended::Lost);
        }
        let ended = match &error {
            kube::Error::Api(status) if status.code == 410 => return ControlFlow::Continue(Ended::Lost),
            // A busy server, or one that does not let us, knows the version as well as before. Any
            // other refusal may be about the version: of a server that was restored, for one.
            kube::Error::Api(status) if !matches!(status.code, 401 | 403 | 429 | 500 | 502 | 503) => {
                Ended::Lost
            }
            kube::Error::SerdeError(_) => Ended::Lost,
            _ => Ended::Open,
        };
        (self.tell)(ObjectEvent::Failed(Failure::Watch(error)))?;
        ControlFlow::Continue(ended)
    }

    fn unreadable<T, E>(&mut self, bad: Unreadable) -> ControlFlow<E>
    where
        G: FnMut(ObjectEvent<T>) -> ControlFlow<E>,
    {
        let (name, namespace, source) = (&bad.metadata.name, &bad.metadata.namespace, &self.limits.source);
        match self.named.one_more(Instant::now()) {
            1..=MOST_NAMED => {
                tracing::warn!(source, name, namespace, error = %bad.error, "an object cannot be read, and counts as not there");
            }
            count if count == MOST_NAMED + 1 => {
                tracing::warn!(source, "more objects cannot be read: they are not named for ten minutes");
            }
            _ => {}
        }
        (self.tell)(ObjectEvent::Unreadable(bad))
    }
}

/// Asks for what changes from a version on.
async fn begin(
    client: &Client,
    url: &str,
    fields: Option<String>,
    version: &str,
) -> kube::Result<impl AsyncBufRead + use<>> {
    let params = WatchParams {
        field_selector: fields,
        timeout: Some(OPEN),
        bookmarks: true,
        ..WatchParams::default()
    };
    let mut request = Request::new(url).watch(&params, version).map_err(kube::Error::BuildRequest)?;
    // Servers since 1.37 compress each event on its own, of which clients decompress only the first.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    client.request_stream(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_again_when_the_spell_is_over() {
        let (mut named, start) = (Named::default(), Instant::now());
        let counts: Vec<usize> = (0..30).map(|n| named.one_more(start + n * SPELL / 60)).collect();
        assert_eq!(counts, (1..=30).collect::<Vec<_>>());
        assert_eq!(named.one_more(start + SPELL), 1);
    }
}
