//! The addresses of pages, as links.

use axum::http::Uri;
use sluice_api::Promotion;

pub(super) use crate::form_text::escaped;

/// Returns the address of the sign-in that leads back to a page.
pub(super) fn sign_in(from: &Uri) -> String {
    sign_in_to("/sign-in", &without_tokens(from.path_and_query().map_or("", |path| path.as_str())))
}

/// The parameters in which people and programs send a token by mistake.
const TOKENS: [&str; 3] = ["token", "access_token", "id_token"];

/// Returns an address without tokens in it: no page reads them, and they would come back in links and in the browser's
/// history.
pub(super) fn without_tokens(address: &str) -> String {
    let Some((path, query)) = address.split_once('?') else { return address.into() };
    let is_token = |parameter: &&str| TOKENS.contains(&parameter.split('=').next().unwrap_or_default());
    let kept: Vec<&str> = query.split('&').filter(|parameter| !is_token(parameter)).collect();
    if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")) }
}

/// Returns an address that leads to a page afterwards.
pub(super) fn sign_in_to(address: &str, to: &str) -> String {
    if matches!(to, "" | "/") { address.into() } else { format!("{address}?to={}", escaped(to)) }
}

/// Returns the address of a pipeline's page.
pub(super) fn pipeline(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}")
}

/// Returns the address of the form for a pipeline.
pub(super) fn edit(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}/edit")
}

/// Returns the address of a pipeline's history.
pub(super) fn history(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}/history")
}

/// Returns the address of a pipeline's objects.
pub(super) fn objects(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}/objects")
}

/// Returns the address of what starts a pipeline.
pub(super) fn triggers(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}/triggers")
}

/// Returns the address of where something on a cluster comes from.
pub(super) fn trace(cluster: &str, kind: &str, namespace: &str, name: &str) -> String {
    let [cluster, kind, namespace, name] = [cluster, kind, namespace, name].map(escaped);
    format!("/trace?cluster={cluster}&kind={kind}&namespace={namespace}&name={name}")
}

/// Returns the address of a promotion's page.
pub(super) fn promotion(promotion: &Promotion) -> String {
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
    format!("/promotions/{namespace}/{}", promotion.metadata.name.as_deref().unwrap_or_default())
}
