//! Reads Pipelines and Promotions one by one, so that an unreadable object does not prevent reading the others. Commands
//! warn about unreadable objects, and fail only if one of them is, or may be, the object that they need.

use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::Request;
use kube::core::object::HasSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::lenient::{self, List, Unreadable};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::paged_list;
use crate::terminal::{Io, Symbol};

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
    match lenient::get(&connection.client, namespace, name).await {
        Ok(read) => Ok(read.map(|read| read.object)),
        Err(kube::Error::SerdeError(error)) => {
            Err(failure(&sentence::<K>(namespace, name, &error.to_string())))
        }
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
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    K: HasSpec<Spec: DeserializeOwned + Send>,
{
    paged_list::list(&connection.client, namespace, params).await.map_err(|e| connection.explain(e))
}

/// Reads the objects of another kind, of a namespace or of all namespaces. Each object is read separately: a person can
/// store a time that cannot be parsed, and one such object must not hide the others.
///
/// # Errors
/// When the cluster does not answer with a list.
pub(crate) async fn list_of<K>(
    connection: &Connection,
    resource: &ApiResource,
    (namespace, params): (Option<&str>, &ListParams),
    io: &mut Io<'_>,
) -> kube::Result<Vec<K>>
where
    K: DeserializeOwned,
{
    #[derive(Deserialize)]
    struct RawList {
        items: Vec<Value>,
    }
    let request = Request::new(DynamicObject::url_path(resource, namespace)).list(params);
    let list: RawList = connection.client.request(request.map_err(kube::Error::BuildRequest)?).await?;
    let mut readable = Vec::new();
    for mut object in list.items {
        let name = ["namespace", "name"]
            .map(|field| object["metadata"][field].as_str().unwrap_or_default().to_owned());
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        match serde_json::from_value(object) {
            Ok(object) => readable.push(object),
            Err(error) => {
                let kind = resource.kind.to_ascii_lowercase();
                io.progress(Symbol::Failed, &format!("{kind} {} cannot be read: {error}", name.join("/")));
            }
        }
    }
    Ok(readable)
}

/// Returns the failure of a command that needs an unreadable object.
pub(crate) fn failure(sentence: &str) -> Failure {
    Failure::new(Exit::Error, sentence).hinted(COMPARE)
}

/// Warns about unreadable objects, with what to do.
pub(crate) fn warn<'a, K, S: 'a>(unreadable: impl Iterator<Item = &'a Unreadable<S>>, io: &mut Io<'_>)
where
    K: Resource<DynamicType = ()>,
{
    let mut any = false;
    for bad in unreadable {
        io.progress(Symbol::Failed, &describe::<K, S>(bad));
        any = true;
    }
    if any {
        io.note(&format!("  {COMPARE}"));
    }
}

/// Returns a sentence with the name of an unreadable object and the error.
pub(crate) fn describe<K: Resource<DynamicType = ()>, S>(bad: &Unreadable<S>) -> String {
    sentence::<K>(bad.metadata.namespace.as_deref().unwrap_or_default(), bad.name(), &bad.error)
}

fn sentence<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, error: &str) -> String {
    format!("{} {namespace}/{name} cannot be read: {error}", K::kind(&()).to_ascii_lowercase())
}
