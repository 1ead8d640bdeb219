//! Requests of `sluice check`. A right that the caller lacks and an object that does not exist are facts; only an API
//! server that cannot be used is a failure.

use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use sluice_view::check::Reading;

/// The most requests at the same time.
pub(super) const MAX_REQUESTS: usize = 16;

/// Returns the fact of an answer. `right` names the right that the request needs.
///
/// # Errors
/// When there is no connection, or the API server does not accept the caller's credentials.
pub(super) fn fact<T>(answer: kube::Result<T>, right: impl FnOnce() -> String) -> kube::Result<Reading<T>> {
    match answer {
        Ok(value) => Ok(Reading::Known(value)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Reading::Forbidden(right())),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Reading::Absent),
        Err(kube::Error::Api(status)) if status.code != 401 => Ok(Reading::Failed(status.message.clone())),
        Err(kube::Error::SerdeError(error)) => {
            Ok(Reading::Failed(format!("cannot read the answer: {error}")))
        }
        Err(error) => Err(error),
    }
}

/// Reads an object.
pub(super) async fn get<K>(api: &Api<K>, name: &str, right: &str) -> kube::Result<Reading<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    fact(api.get(name).await, || right.into())
}

/// Reads the objects with these labels.
pub(super) async fn list<K>(api: &Api<K>, labels: &str, right: &str) -> kube::Result<Reading<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = ListParams::default().labels(labels);
    Ok(fact(api.list(&params).await, || right.into())?.map(|list| list.items))
}

/// Runs a request for each item, several at the same time, and returns the results in the order of the items.
pub(super) async fn each<I, T, F>(
    items: impl IntoIterator<Item = I>,
    request: impl Fn(I) -> F,
) -> kube::Result<Vec<T>>
where
    F: Future<Output = kube::Result<T>>,
{
    stream::iter(items).map(request).buffered(MAX_REQUESTS).try_collect().await
}
