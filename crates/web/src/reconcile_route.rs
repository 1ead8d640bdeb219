//! The action `reconcile`: Flux reconciles the objects of a pipeline on the hub now, in the caller's name.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_view::object_name::ObjectName;
use sluice_view::reconcile::{ReconcileReport, plan};

use crate::action_body::ActionBody;
use crate::answer::answer;
use crate::caller::IdentifiedCaller;
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::in_path::InPath;
use crate::origin_check::check_origin;
use crate::problem::Problem;
use crate::state::Api;

/// The most objects of one request. Each costs calls of the API server.
const MAX_OBJECTS: usize = 100;

/// What to reconcile.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReconcileRequest {
    /// Only the objects of this environment, or `environment/target`; all if it is empty.
    pub environment: String,
}

pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new().route("/api/v1/pipelines/{namespace}/{name}/reconcile", post(reconcile::<H>))
}

async fn reconcile<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
    ActionBody(request): ActionBody<ReconcileRequest>,
) -> Result<Response, Problem> {
    // A proxy adds a person's token also to requests that another site makes the browser send.
    check_origin(&headers, api.page_url.as_deref())?;
    let shown = find_pipeline(&api, &caller, &named).await?;
    if !api.actions {
        let why =
            "nothing can be changed here: start the controller with --api-actions, or use sluice reconcile";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let pipeline = shown.stored.whole();
    let wanted = request.environment.as_str();
    let (environment, target) = wanted.split_once('/').unwrap_or((wanted, ""));
    let is_named = |name: &str, of: &str| {
        wanted.is_empty() || name == environment && (target.is_empty() || of == target)
    };
    let is_known = pipeline
        .spec
        .environments
        .iter()
        .any(|known| known.target_names().iter().any(|target| is_named(&known.name, target)));
    if !is_known {
        return Err(Problem::not_found(format!("pipeline {named} has no environment or target {wanted}")));
    }
    let plan = plan(&pipeline, |environment, target| is_named(&environment.name, target));
    if plan.here.len() > MAX_OBJECTS {
        let why = format!("{} objects are more than {MAX_OBJECTS}: name an environment", plan.here.len());
        return Err(Problem::bad_request(why));
    }
    // Each object costs as much as a request.
    api.budgets.spend(caller.limit_group(), plan.here.len())?;
    let elsewhere = plan.elsewhere.clone();
    let asked = api.hub.reconcile(&token, &named.namespace, plan).await;
    let (person, pipeline) = (caller.name.as_str(), named.to_string());
    match &asked {
        Ok(items) => {
            let requested = items.iter().filter(|item| item.problem.is_empty()).count();
            tracing::info!(person, action = "reconcile", pipeline, requested, "a person has acted");
        }
        Err(error) => {
            tracing::info!(person, action = "reconcile", pipeline, %error, "the action of a person failed");
        }
    }
    answer(&headers, &ReconcileReport { items: asked?, elsewhere })
}
