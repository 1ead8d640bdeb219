//! One watch of one kind, kept alive: lists, then follows, lists again where it has lost the thread.
//! What the caller does not want of an object is dropped before the next one is read.

use std::fmt::{self, Debug};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use kube::api::{ObjectMeta, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::guard::{Guard, Unreadable};
use super::list;
use crate::silence::silent;

/// An API whose unreadable objects do not break the stream.
pub type Guarded<K> = Api<Guard<K>>;

/// What a watch tells.
#[derive(Debug)]
pub enum Seen<T> {
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
    /// Reading what there is.
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
        fmt::Display::fmt(self.error(), f)
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
/// The longest pause between two tries. A cluster that comes back is to be seen within 15 seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the objects of `api` (all, or those with these `fields`) until `tell` breaks off, and
/// returns what it broke off with. `trim` keeps what is wanted of an object.
pub async fn follow<K, T, E>(
    api: Guarded<K>,
    fields: Option<String>,
    trim: impl Fn(K) -> Option<T>,
    tell: impl FnMut(Seen<T>) -> ControlFlow<E>,
) -> E
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let client = api.clone().into_client();
    let mut thread = Follower { api, client, fields, trim, tell, pause: SHORTEST_PAUSE };
    loop {
        if let ControlFlow::Break(end) = thread.once().await {
            return end;
        }
    }
}

struct Follower<K, F, G> {
    api: Guarded<K>,
    client: Client,
    fields: Option<String>,
    trim: F,
    tell: G,
    pause: Duration,
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
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
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

    /// Reads all that there is; `None` where it failed.
    async fn list<T, E>(&mut self) -> ControlFlow<E, Option<List<T>>>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
        let each = |text: &[u8]| {
            match Guard::<K>::read(text).map_err(kube::Error::SerdeError)?.0 {
                Ok(object) => listed.extend((self.trim)(object)),
                Err(bad) => unreadable.push(bad),
            }
            Ok(())
        };
        let url = self.api.resource_url();
        match list::read(&self.client, url, self.fields.as_deref(), each).await {
            Ok(version) => ControlFlow::Continue(Some(List { all: Some((listed, unreadable)), version })),
            Err(error) => {
                (self.tell)(Seen::Failed(Failure::List(error)))?;
                ControlFlow::Continue(None)
            }
        }
    }

    /// Tells what was listed, once.
    fn tell_listed<T, E>(&mut self, list: &mut List<T>) -> ControlFlow<E>
    where
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let Some((all, unreadable)) = list.all.take() else { return ControlFlow::Continue(()) };
        (self.tell)(Seen::Listed(all, list.version.parse().unwrap_or(0)))?;
        unreadable.into_iter().try_for_each(|bad| self.unreadable(bad))
    }

    /// Tells what was listed and what changes from then on, and keeps track of the version. What may
    /// not be watched is not known, though it may be listed.
    async fn watch<T, E>(&mut self, list: &mut List<T>) -> ControlFlow<E, Ended>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(OPEN),
            bookmarks: true,
            ..WatchParams::default()
        };
        let stream = match timeout(BEGIN, self.api.watch(&params, &list.version)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                if !matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    self.tell_listed(list)?;
                }
                return self.broken(error);
            }
            Err(_) => return self.broken(silent(BEGIN)),
        };
        self.tell_listed(list)?;
        pin_mut!(stream);
        let version = &mut list.version;
        let silence = Duration::from_secs(OPEN.into()) + MARGIN;
        while let Ok(Some(event)) = timeout(silence, stream.next()).await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    *version = object.resource_version().unwrap_or_default();
                    match object.0 {
                        Ok(object) => {
                            if let Some(kept) = (self.trim)(object) {
                                (self.tell)(Seen::Applied(kept))?;
                            }
                        }
                        Err(bad) => self.unreadable(bad)?,
                    }
                }
                Ok(WatchEvent::Deleted(object)) => {
                    *version = object.resource_version().unwrap_or_default();
                    (self.tell)(Seen::Deleted(object.meta().clone()))?;
                }
                Ok(WatchEvent::Bookmark(mark)) => version.clone_from(&mark.metadata.resource_version),
                Ok(WatchEvent::Error(status)) => return self.broken(kube::Error::Api(status.boxed())),
                Err(error) => return self.broken(error),
            }
            if version.is_empty() {
                return ControlFlow::Continue(Ended::Lost);
            }
        }
        ControlFlow::Continue(Ended::Open)
    }

    /// A watch broke. Where the server says nothing that its start would not mend, it is taken up
    /// where it was; after an event that could not be read it is not.
    fn broken<T, E>(&mut self, error: kube::Error) -> ControlFlow<E, Ended>
    where
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
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
        (self.tell)(Seen::Failed(Failure::Watch(error)))?;
        ControlFlow::Continue(ended)
    }

    fn unreadable<T, E>(&mut self, bad: Unreadable) -> ControlFlow<E>
    where
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let (name, namespace) = (&bad.metadata.name, &bad.metadata.namespace);
        tracing::warn!(name, namespace, error = %bad.error, "an object cannot be read, and counts as not there");
        (self.tell)(Seen::Unreadable(bad))
    }
}
