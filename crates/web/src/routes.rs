//! The routes of the API. Every answer is for an identified caller, and says nothing that the caller may not see.

use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde::Serialize;
use sha2::{Digest, Sha256};
use sluice_core::access::Caller;
use sluice_core::fleet::ClusterKey;
use sluice_view::fleet::clusters::{Clusters, cluster_state};

use crate::fleet_versions::VersionKind;
use crate::hub::Hub;
use crate::openapi;
use crate::page;
use crate::problem::Problem;
use crate::query::{TraceQuery, VersionsQuery};
use crate::state::Api;
use crate::trace::traced;
use crate::visible::{Visible, visible_clusters};

/// Returns the routes.
pub fn router<H: Hub>(api: Api<H>) -> Router {
    Router::new()
        .route("/openapi.json", get(async || axum::Json(&*openapi::DOCUMENT)))
        .route("/api/v1/clusters", get(clusters::<H>))
        .route("/api/v1/charts", get(charts::<H>))
        .route("/api/v1/images", get(images::<H>))
        .route("/api/v1/trace", get(trace::<H>))
        .route(
            "/api/{*path}",
            any(async || Problem::not_found("there is no such path: /openapi.json lists them")),
        )
        .merge(page::routes())
        .with_state(api)
}

/// The caller of a request, by the token in the header `Authorization`.
struct Identified(Caller);

impl<H: Hub> FromRequestParts<Api<H>> for Identified {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api<H>) -> Result<Self, Problem> {
        let header =
            parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let token = header.strip_prefix("Bearer ").map(str::trim).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "the request has no token: send a token of the hub in the header Authorization, as Bearer <token>",
            )
        })?;
        let caller = api.hub.identify(token).await?;
        api.budgets.spend(&caller.name, 1, Instant::now())?;
        Ok(Identified(caller))
    }
}

async fn clusters<H: Hub>(
    State(api): State<Api<H>>,
    Identified(caller): Identified,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let visible = visible_clusters(&api.hub, &caller, &api.fleet).await?;
    let row = |key: &ClusterKey| api.fleet.read(key, |cluster| cluster_state(key, cluster));
    answer(&headers, &Clusters { items: visible.iter().filter_map(row).collect() })
}

async fn charts<H: Hub>(
    state: State<Api<H>>,
    caller: Identified,
    headers: HeaderMap,
    query: Result<Query<VersionsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    versions(VersionKind::Charts, state, caller, &headers, query).await
}

async fn images<H: Hub>(
    state: State<Api<H>>,
    caller: Identified,
    headers: HeaderMap,
    query: Result<Query<VersionsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    versions(VersionKind::Images, state, caller, &headers, query).await
}

async fn versions<H: Hub>(
    kind: VersionKind,
    State(api): State<Api<H>>,
    Identified(caller): Identified,
    headers: &HeaderMap,
    query: Result<Query<VersionsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    // A page of many rows costs as much as many requests.
    api.budgets.spend(&caller.name, query.limit() / 500, Instant::now())?;
    let visible = Visible::to(&api.hub, &caller, &api.fleet, kind.kinds()).await?;
    answer(headers, &api.rows.page(&api.fleet, kind, visible, query).await?)
}

async fn trace<H: Hub>(
    State(api): State<Api<H>>,
    Identified(caller): Identified,
    headers: HeaderMap,
    query: Result<Query<TraceQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let (cluster, object) = query.object()?;
    answer(&headers, &traced(&api.hub, &caller, &api.fleet, (&cluster, &object)).await?)
}

/// Answers with JSON, or with nothing if the caller has the same already.
fn answer(headers: &HeaderMap, body: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(body)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let hash: String = Sha256::digest(&text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let has_it = headers.get_all(IF_NONE_MATCH).iter().filter_map(|known| known.to_str().ok());
    let mut response = match has_it.flat_map(|known| known.split(',')).any(|known| known.trim() == tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(Body::from(text)),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Each answer is for one caller.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
