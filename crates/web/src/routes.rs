//! The routes of the API. Every answer is for an identified caller, and says nothing that the caller may not see.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{from_fn_with_state, map_request};
use axum::routing::{any, get};

use crate::change_stream::changes;
use crate::hub::Hub;
use crate::openapi;
use crate::problem::Problem;
use crate::request_body::limit_time;
use crate::state::Api;
use crate::unsent_answers::limit_unsent;
use crate::{check_route, fleet_routes, page, pipeline_routes};

/// Returns the routes.
pub fn router<H: Hub>(api: Api<H>) -> Router {
    Router::new()
        .route("/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], openapi::TEXT.as_str())))
        .route("/api/v1/changes", get(changes::<H>))
        .route(
            "/api/{*path}",
            any(async || Problem::not_found("there is no such path: /openapi.json lists them")),
        )
        .merge(pipeline_routes::routes())
        .merge(fleet_routes::routes())
        .merge(check_route::routes())
        .method_not_allowed_fallback(async || {
            let detail = "this path does not accept the method: /openapi.json lists those that it accepts";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .layer(from_fn_with_state(api.unsent.clone(), limit_unsent))
        .merge(page::routes(api.unsent.clone()))
        .layer(map_request(limit_time))
        .with_state(api)
}
