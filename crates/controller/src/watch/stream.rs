//! One watch of one kind, kept alive: lists, then follows, lists again where it has lost the thread.
//! What the caller does not want of an object is dropped before the next one is read.

use std::fmt::{self, Debug};
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::api::{ObjectMeta, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::guard::{Guard, Unreadable};
use super::list;

/// An API whose unreadable objects do not break the stream.
pub type Guarded<K> = Api<Guard<K>>;

/// What a watch tells.
#[derive(Debug)]
pub enum Seen<T> {
    /// These are all.
    Listed(Vec<T>),
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
    /// Lists, and watches for as long as the thread is not lost.
    async fn once<T, E>(&mut self) -> ControlFlow<E>
    where
        F: Fn(K) -> Option<T>,
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let mut version = match self.list().await? {
            Some(version) => version,
            None => return ControlFlow::Continue(()),
        };
        while let Ended::Open = self.watch(&mut version).await? {}
        ControlFlow::Continue(())
    }

    /// Tells all that there is, and returns the version from which to watch on; `None` where it
    /// failed.
    async fn list<T, E>(&mut self) -> ControlFlow<E, Option<String>>
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
        let version =
            match list::read(&self.client, self.api.resource_url(), self.fields.as_deref(), each).await {
                Ok(version) => version,
                Err(error) => {
                    self.failed(Failure::List(error)).await?;
                    return ControlFlow::Continue(None);
                }
            };
        (self.tell)(Seen::Listed(listed))?;
        for bad in unreadable {
            self.unreadable(bad)?;
        }
        ControlFlow::Continue(Some(version))
    }

    /// Tells what changes from a version on, and keeps track of it.
    async fn watch<T, E>(&mut self, version: &mut String) -> ControlFlow<E, Ended>
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
        let stream = match timeout(BEGIN, self.api.watch(&params, version)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.broken(error).await,
            // A server that does not even answer is told by who probes it.
            Err(_) => return ControlFlow::Continue(Ended::Open),
        };
        pin_mut!(stream);
        let silence = Duration::from_secs(OPEN.into()) + MARGIN;
        let mut heard = false;
        while let Ok(Some(event)) = timeout(silence, stream.next()).await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let now = object.resource_version();
                    match object.0 {
                        Ok(object) => {
                            if let Some(kept) = (self.trim)(object) {
                                (self.tell)(Seen::Applied(kept))?;
                            }
                        }
                        Err(bad) => self.unreadable(bad)?,
                    }
                    version.clone_from(&now.unwrap_or_default());
                }
                Ok(WatchEvent::Deleted(object)) => {
                    let now = object.resource_version();
                    (self.tell)(Seen::Deleted(object.meta().clone()))?;
                    version.clone_from(&now.unwrap_or_default());
                }
                Ok(WatchEvent::Bookmark(mark)) => version.clone_from(&mark.metadata.resource_version),
                Ok(WatchEvent::Error(status)) => return self.broken(kube::Error::Api(status.boxed())).await,
                Err(error) => return self.broken(error).await,
            }
            if version.is_empty() {
                return ControlFlow::Continue(Ended::Lost);
            }
            (heard, self.pause) = (true, SHORTEST_PAUSE);
        }
        if !heard {
            // It may have ended at once, and may do so again.
            tokio::time::sleep(SHORTEST_PAUSE).await;
        }
        ControlFlow::Continue(Ended::Open)
    }

    /// A watch broke. Where the server says nothing that its start would not mend, it is taken up
    /// where it was; after an event that could not be read it is not.
    async fn broken<T, E>(&mut self, error: kube::Error) -> ControlFlow<E, Ended>
    where
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        let ended = match &error {
            kube::Error::Api(status) if status.code == 410 => return ControlFlow::Continue(Ended::Lost),
            kube::Error::SerdeError(_) => Ended::Lost,
            _ => Ended::Open,
        };
        self.failed(Failure::Watch(error)).await?;
        ControlFlow::Continue(ended)
    }

    async fn failed<T, E>(&mut self, failure: Failure) -> ControlFlow<E>
    where
        G: FnMut(Seen<T>) -> ControlFlow<E>,
    {
        (self.tell)(Seen::Failed(failure))?;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        ControlFlow::Continue(())
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
