//! The addresses of the pages. An address names everything that its page shows, so that it can be sent to others.

use axum::http::Uri;
use sluice_core::access::Caller;
use sluice_view::object_name::ObjectName;

use super::frame::Page;
use super::history::HistoryPageQuery;
use super::list_query::ListQuery;
use super::version_matrix::MatrixQuery;
use super::{
    clusters, history, objects, pipeline, pipelines, promotion, promotions, trace, triggers, version_matrix,
};
use crate::fleet_versions::VersionKind;
use crate::hub::Hub;
use crate::parameters::of_uri;
use crate::problem::Problem;
use crate::state::Api;
use crate::trace_query::TraceQuery;

/// What a page shows.
#[derive(Clone, Debug)]
pub(super) enum View {
    Pipelines(ListQuery),
    Pipeline(ObjectName),
    History(ObjectName, HistoryPageQuery),
    Objects(ObjectName),
    Triggers(ObjectName),
    Promotions(ListQuery),
    Promotion(ObjectName),
    Clusters,
    Versions(VersionKind, MatrixQuery),
    Trace(TraceQuery),
}

impl View {
    /// Reads an address.
    pub(super) fn parse(uri: &Uri) -> Result<View, Problem> {
        let path: Vec<&str> = uri.path().split('/').skip(1).collect();
        let object =
            |namespace: &str, name: &str| ObjectName { namespace: namespace.into(), name: name.into() };
        Ok(match path.as_slice() {
            [""] => View::Pipelines(of_uri(uri)?),
            ["pipelines", namespace, name] => View::Pipeline(object(namespace, name)),
            ["pipelines", namespace, name, "history"] => View::History(object(namespace, name), of_uri(uri)?),
            ["pipelines", namespace, name, "objects"] => View::Objects(object(namespace, name)),
            ["pipelines", namespace, name, "triggers"] => View::Triggers(object(namespace, name)),
            ["promotions"] => View::Promotions(of_uri(uri)?),
            ["promotions", namespace, name] => View::Promotion(object(namespace, name)),
            ["clusters"] => View::Clusters,
            ["charts"] => View::Versions(VersionKind::Charts, of_uri(uri)?),
            ["images"] => View::Versions(VersionKind::Images, of_uri(uri)?),
            ["trace"] => View::Trace(of_uri(uri)?),
            _ => return Err(Problem::not_found("there is no such page")),
        })
    }

    /// Returns the page as this caller may see it.
    pub(super) async fn page<H: Hub>(&self, api: &Api<H>, caller: &Caller) -> Result<Page, Problem> {
        match self {
            View::Pipelines(query) => pipelines::page(api, caller, query).await,
            View::Pipeline(name) => pipeline::page(api, caller, name).await,
            View::History(name, query) => history::page(api, caller, name, query).await,
            View::Objects(name) => objects::page(api, caller, name).await,
            View::Triggers(name) => triggers::page(api, caller, name).await,
            View::Promotions(query) => promotions::page(api, caller, query).await,
            View::Promotion(name) => promotion::page(api, caller, name).await,
            View::Clusters => clusters::page(api, caller).await,
            View::Versions(kind, query) => version_matrix::page(api, caller, *kind, query).await,
            View::Trace(query) => trace::page(api, caller, query).await,
        }
    }

    /// Whether the page changes only with objects of the hub, and not with the clusters.
    pub(super) fn is_of_hub(&self) -> bool {
        !matches!(self, View::Clusters | View::Versions(..) | View::Trace(_) | View::Triggers(_))
    }
}
