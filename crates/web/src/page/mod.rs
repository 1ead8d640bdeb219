//! The pages for people. The server renders each page whole; what changes later comes as parts of the same page.

mod action_buttons;
mod answer;
mod assets;
mod clusters;
mod collapsed_targets;
mod confirm;
mod draft;
mod draft_fields;
mod draft_first_setup;
mod draft_preview;
mod draft_proposal;
mod environment_graph;
mod frame;
mod history;
mod links;
mod list_query;
mod live;
mod objects;
mod oidc;
mod person;
mod pipeline;
pub(crate) mod pipeline_row;
mod pipelines;
mod planned;
mod promotion;
mod promotions;
mod request_checks;
mod route;
mod shape;
mod sign_in;
mod sign_in_page;
mod strip;
mod target_list;
mod trace;
mod triggers;
mod version_matrix;
mod words;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use self::answer::{problem_page, send};
use self::frame::document;
use self::person::Person;
use self::route::View;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::unsent_answers::{UnsentAnswers, limit_unsent};

/// The most bytes of a form: a token, or the reason of a rejection.
const MAX_FORM_BYTES: usize = 32 << 10;
/// How hard pages are compressed. The usual level 6 takes most of the time of a large page.
const COMPRESSION: CompressionLevel = CompressionLevel::Precise(2);
/// The most bytes of the form for a Pipeline, which may have 2,000 targets.
const MAX_DRAFT_BYTES: usize = 512 << 10;

/// Returns the routes of the pages. A page that is compressed stays in memory as a whole until its last part is read.
pub(crate) fn routes<H: Hub>(unsent: UnsentAnswers) -> Router<Api<H>> {
    Router::new()
        .route("/assets/{name}", get(asset))
        .route("/favicon.ico", get(async || asset(Path("icon.svg".into())).await))
        .route("/sign-in", get(sign_in::form::<H>).post(sign_in::sign_in::<H>))
        .route("/sign-in/oidc", get(oidc::start::<H>))
        .route("/sign-in/callback", get(oidc::callback::<H>))
        .route("/sign-in/link/{code}", get(sign_in::by_link::<H>))
        .route("/sign-out", post(sign_in::sign_out::<H>))
        .route("/live", get(live::live::<H>))
        .merge(draft_routes())
        .route("/pipelines/{namespace}/{name}/history", get(page::<H>))
        .route("/pipelines/{namespace}/{name}/objects", get(page::<H>))
        .route("/pipelines/{namespace}/{name}/triggers", get(page::<H>))
        .route("/promotions/{namespace}/{name}/change", get(planned::page::<H>))
        .route(
            "/{kind}/{namespace}/{name}/{action}",
            get(confirm::confirm::<H>).post(confirm::carry_out::<H>),
        )
        .fallback(page::<H>)
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn_with_state(unsent, limit_unsent))
        .layer(CompressionLayer::new().quality(COMPRESSION))
}

/// Returns the routes of the form for a Pipeline.
fn draft_routes<H: Hub>() -> Router<Api<H>> {
    Router::new()
        .route("/pipelines/new", get(draft::new::<H>).post(draft::change_new::<H>))
        .route("/pipelines/{namespace}/{name}/edit", get(draft::edit::<H>).post(draft::change::<H>))
        .layer(DefaultBodyLimit::max(MAX_DRAFT_BYTES))
}

/// Any page that shows something.
async fn page<H: Hub>(State(api): State<Api<H>>, uri: Uri, person: Person) -> Response {
    let viewer = person.viewer(api.actions);
    let found = match View::parse(&uri) {
        Ok(view) => view.page(&api, &person.caller).await,
        Err(problem) => Err(problem),
    };
    match found {
        Ok(page) => send(StatusCode::OK, document(&page, &viewer, &links::without_tokens(&uri.to_string()))),
        Err(problem) => problem_page(&problem, &viewer),
    }
}

async fn asset(Path(name): Path<String>) -> Response {
    let (kind, text, cache): (&'static str, &'static str, &'static str) = match assets::named(&name) {
        Some(asset) => (asset.kind, &asset.text, "public, max-age=31536000, immutable"),
        None if name == "icon.svg" => ("image/svg+xml", assets::ICON, "public, max-age=86400"),
        None => return Problem::not_found("there is no such file").into_response(),
    };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, cache), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, text).into_response()
}
