//! Reads long lists of Pipelines and Promotions in pages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ListParams;
use kube::core::Request;
use kube::core::object::HasSpec;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_api::lenient::{List, read_list};
use tokio::task::spawn_blocking;

/// The objects of one page, as `--chunk-size` of `kubectl get`.
const PAGE: u32 = 500;

/// Reads the objects of a namespace, or of all namespaces, from an API server. Pages are parsed while the server prepares
/// the next ones. All of them show the same moment.
///
/// # Errors
/// When the API server does not answer with a list.
pub(crate) async fn list<K>(
    client: &Client,
    namespace: Option<&str>,
    params: &ListParams,
) -> kube::Result<List<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    K: HasSpec<Spec: DeserializeOwned + Send>,
{
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        metadata: ListMeta,
    }
    let url = K::url_path(&(), namespace);
    let mut params = params.clone().limit(PAGE);
    let mut pages = Vec::new();
    loop {
        let request = Request::new(&url).list(&params).map_err(kube::Error::BuildRequest)?;
        let text = client.request_text(request).await?;
        let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        pages.push(spawn_blocking(move || read_list(&text)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    let mut all = List { items: Vec::new(), unreadable: Vec::new() };
    for page in pages {
        let page = page.await.map_err(|panic| kube::Error::Service(panic.into()))?;
        let List { items, unreadable } = page.map_err(kube::Error::SerdeError)?;
        all.items.extend(items);
        all.unreadable.extend(unreadable);
    }
    Ok(all)
}
