//! One watch of one kind, kept alive: lists, then follows, lists again after a break. What the
//! caller does not want of an object is dropped before the next one is read.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::api::ObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::guard::{Guard, Unreadable};

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
    Failed(watcher::Error),
}

/// The longest pause between two tries. A cluster that comes back is to be seen within 15 seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows all objects of `api` until `tell` breaks off, and returns what it broke off with. `trim`
/// keeps what is wanted of an object.
pub async fn follow<K, T, E>(
    api: Guarded<K>,
    config: watcher::Config,
    trim: impl Fn(K) -> Option<T>,
    mut tell: impl FnMut(Seen<T>) -> ControlFlow<E>,
) -> Option<E>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = watcher(api, config);
    pin_mut!(stream);
    let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
    let mut pause = Duration::from_millis(250);
    while let Some(event) = stream.next().await {
        let seen: Vec<Seen<T>> = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                unreadable.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                match object.0 {
                    Ok(object) => listed.extend(trim(object)),
                    Err(bad) => unreadable.push(bad),
                }
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                let all = Seen::Listed(std::mem::take(&mut listed));
                let bad = unreadable.drain(..).map(Seen::Unreadable);
                std::iter::once(all).chain(bad).collect()
            }
            Ok(watcher::Event::Apply(Guard(Ok(object)))) => {
                trim(object).map(Seen::Applied).into_iter().collect()
            }
            Ok(watcher::Event::Apply(Guard(Err(bad)))) => vec![Seen::Unreadable(bad)],
            Ok(watcher::Event::Delete(object)) => vec![Seen::Deleted(object.meta().clone())],
            Err(error) => {
                if let ControlFlow::Break(end) = tell(Seen::Failed(error)) {
                    return Some(end);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
        };
        pause = Duration::from_millis(250);
        for seen in seen {
            if let Seen::Unreadable(bad) = &seen {
                let (name, namespace) = (&bad.metadata.name, &bad.metadata.namespace);
                tracing::warn!(name, namespace, error = %bad.error, "an object cannot be read, and counts as not there");
            }
            if let ControlFlow::Break(end) = tell(seen) {
                return Some(end);
            }
        }
    }
    None
}
