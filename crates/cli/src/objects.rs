//! Reads Pipelines and Promotions so that an object that cannot be read hides no other: commands warn about such
//! objects, and fail only if one of them is, or may be, the object that is meant.

use kube::Resource;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use kube::core::object::HasSpec;
use serde::de::DeserializeOwned;
use sluice_api::lenient::{self, List, Unreadable};

use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::server::is_missing;
use crate::sign::{Io, Sign};

/// What to do about an object that cannot be read.
const COMPARE: &str = "another version of Sluice may have written it: compare the definition in the cluster with \
                       `sluice crds`, and `sluice version` with the controller's";

/// Reads an object; `None` if it does not exist.
///
/// # Errors
/// When the object cannot be read, with the object's name.
pub(crate) async fn get<K>(connection: &Connection, namespace: &str, name: &str) -> Outcome<Option<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), Some(namespace))).get(name, &GetParams::default());
    let request = request.map_err(|e| connection.explain(kube::Error::BuildRequest(e)))?;
    match connection.client.request_text(request).await {
        Ok(text) => match lenient::read(&text) {
            Ok(read) => Ok(Some(read.object)),
            Err(error) => Err(failure(&sentence::<K>(namespace, name, &error.to_string()))),
        },
        Err(kube::Error::Api(status)) if is_missing(&status) => Ok(None),
        Err(error) => Err(connection.explain(error)),
    }
}

/// Reads the objects of a namespace, or of all namespaces.
pub(crate) async fn list<K>(
    connection: &Connection,
    namespace: Option<&str>,
    params: &ListParams,
) -> Outcome<List<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + HasSpec<Spec: DeserializeOwned>,
{
    let request = Request::new(K::url_path(&(), namespace)).list(params);
    let request = request.map_err(|e| connection.explain(kube::Error::BuildRequest(e)))?;
    let text = connection.client.request_text(request).await.map_err(|e| connection.explain(e))?;
    lenient::read_list(&text).map_err(|e| connection.explain(kube::Error::SerdeError(e)))
}

/// The failure of a command that needs an object that cannot be read.
pub(crate) fn failure(sentence: &str) -> Failure {
    Failure::new(Exit::Error, sentence).hinted(COMPARE)
}

/// Warns about objects that cannot be read, and says what to do.
pub(crate) fn warn<'a, K, S: 'a>(unreadable: impl Iterator<Item = &'a Unreadable<S>>, io: &mut Io<'_>)
where
    K: Resource<DynamicType = ()>,
{
    let mut any = false;
    for bad in unreadable {
        io.tell(Sign::Failed, &said::<K, S>(bad));
        any = true;
    }
    if any {
        io.note(&format!("  {COMPARE}"));
    }
}

/// Names an object of a list, and says why it cannot be read.
pub(crate) fn said<K: Resource<DynamicType = ()>, S>(bad: &Unreadable<S>) -> String {
    sentence::<K>(bad.metadata.namespace.as_deref().unwrap_or_default(), bad.name(), &bad.error)
}

fn sentence<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, error: &str) -> String {
    format!("{} {namespace}/{name} cannot be read: {error}", K::kind(&()).to_ascii_lowercase())
}
