//! The routes of clusters, charts, images and traces.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use sluice_core::fleet::ClusterKey;
use sluice_view::fleet::observed_clusters::{Clusters, cluster_state};

use crate::answer::answer;
use crate::caller::IdentifiedCaller;
use crate::fleet_versions::VersionKind;
use crate::hub::Hub;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::state::Api;
use crate::trace::traced;
use crate::trace_query::{TraceQuery, cluster_key};
use crate::versions_query::VersionsQuery;
use crate::visible_fleet::{Visible, visible_clusters};

pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new()
        .route("/api/v1/clusters", get(clusters::<H>))
        .route("/api/v1/charts", get(charts::<H>))
        .route("/api/v1/images", get(images::<H>))
        .route("/api/v1/trace", get(trace::<H>))
}

async fn clusters<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let visible = visible_clusters(&api.hub, &caller, &api.fleet).await?;
    let row = |key: &ClusterKey| api.fleet.read(key, |cluster| cluster_state(key, cluster));
    answer(&headers, &Clusters { items: visible.iter().filter_map(row).collect() })
}

async fn charts<H: Hub>(
    state: State<Api<H>>,
    caller: IdentifiedCaller,
    headers: HeaderMap,
    Parameters(query): Parameters<VersionsQuery>,
) -> Result<Response, Problem> {
    versions(VersionKind::Charts, state, caller, &headers, query).await
}

async fn images<H: Hub>(
    state: State<Api<H>>,
    caller: IdentifiedCaller,
    headers: HeaderMap,
    Parameters(query): Parameters<VersionsQuery>,
) -> Result<Response, Problem> {
    versions(VersionKind::Images, state, caller, &headers, query).await
}

async fn versions<H: Hub>(
    kind: VersionKind,
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    headers: &HeaderMap,
    query: VersionsQuery,
) -> Result<Response, Problem> {
    if !query.cluster.is_empty() {
        cluster_key(&query.cluster)?;
    }
    // A page of many rows costs as much as many requests.
    api.budgets.spend(caller.limit_group(), query.limit.rows() / 500)?;
    let visible = Visible::to(&api.hub, &caller, &api.fleet, kind.kinds()).await?;
    answer(headers, &api.rows.page(&api.fleet, kind, visible, query).await?)
}

async fn trace<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(query): Parameters<TraceQuery>,
) -> Result<Response, Problem> {
    let (cluster, object) = query.object()?;
    answer(&headers, &traced(&api.hub, &caller, &api.fleet, (&cluster, &object)).await?)
}
