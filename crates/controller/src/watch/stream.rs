//! One watch of one kind, kept alive: lists, then follows, lists again after a break. What the
//! caller does not want of an object is dropped before the next one is read.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::guard::Guard;

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
    Deleted(T),
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
    let keep = |object: Guard<K>| match object.0 {
        Ok(object) => trim(object),
        Err(bad) => {
            let (name, namespace) = (bad.metadata.name, bad.metadata.namespace);
            tracing::warn!(name, namespace, error = %bad.error, "skipping an object that cannot be read");
            None
        }
    };
    let stream = watcher(api, config);
    pin_mut!(stream);
    let mut listed = Vec::new();
    let mut pause = Duration::from_millis(250);
    while let Some(event) = stream.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.extend(keep(object));
                continue;
            }
            Ok(watcher::Event::InitDone) => Some(Seen::Listed(std::mem::take(&mut listed))),
            Ok(watcher::Event::Apply(object)) => keep(object).map(Seen::Applied),
            Ok(watcher::Event::Delete(object)) => keep(object).map(Seen::Deleted),
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
        if let Some(ControlFlow::Break(end)) = seen.map(&mut tell) {
            return Some(end);
        }
    }
    None
}
