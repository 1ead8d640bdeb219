//! Reads Pipelines and Promotions of the hub from the API server, each object on its own: one that cannot be read
//! hides no other.

use kube::api::{GetParams, ListParams};
use kube::core::object::HasSpec;
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use sluice_api::lenient::{self, Lenient, List};

/// Reads an object; `None` if it does not exist.
///
/// # Errors
/// When the API server does not answer, or as `SerdeError` when the object cannot be read.
pub(crate) async fn get<K>(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Lenient<K>>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let url = K::url_path(&(), Some(namespace));
    let request = Request::new(url).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    match client.request_text(request).await {
        Ok(text) => lenient::read(&text).map(Some).map_err(kube::Error::SerdeError),
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the objects of a namespace.
///
/// # Errors
/// When the API server does not answer with a list.
pub(crate) async fn list<K>(client: &Client, namespace: &str, params: &ListParams) -> kube::Result<List<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + HasSpec<Spec: DeserializeOwned>,
{
    let url = K::url_path(&(), Some(namespace));
    let request = Request::new(url).list(params).map_err(kube::Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    lenient::read_list(&text).map_err(kube::Error::SerdeError)
}
