//! The routes of Kubernetes events. The API server shows them to the caller, by the caller's own token: Sluice does not
//! watch them.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_view::events::EventLine;
use sluice_view::object_name::ObjectName;

use crate::answer::answer;
use crate::caller::IdentifiedCaller;
use crate::find::find_pipeline;
use crate::hub::{ChangeError, Hub, WantedEvents};
use crate::in_path::InPath;
use crate::list_parameters::{Limit, namespace};
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::state::Api;

/// What an answer costs a caller, in requests: the API server lists the events of a namespace, or of all.
const COST: usize = 4;

/// The events of pipelines and promotions.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Events {
    /// The events, the newest last. The API server keeps them for an hour by default.
    pub items: Vec<EventLine>,
}

/// Which events to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only this type: `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The most events to return, the newest ones; at most 5000.
    pub limit: Limit,
}

/// Which events of all pipelines to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AllEventsQuery {
    /// Only this namespace; without it, you need the right to list the events of all namespaces.
    pub namespace: String,
    /// Only this type: `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The most events to return, the newest ones; at most 5000.
    pub limit: Limit,
}

pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new()
        .route("/api/v1/events", get(all::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}/events", get(of_pipeline::<H>))
}

async fn all<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(query): Parameters<AllEventsQuery>,
) -> Result<Response, Problem> {
    api.budgets.spend(caller.limit_group(), COST)?;
    let wanted = WantedEvents {
        namespace: namespace(query.namespace)?,
        types: types(&query.type_)?,
        ..WantedEvents::default()
    };
    answer(&headers, &read(&api, &token, wanted, query.limit).await?)
}

async fn of_pipeline<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
    Parameters(query): Parameters<EventsQuery>,
) -> Result<Response, Problem> {
    let shown = find_pipeline(&api, &caller, &named).await?;
    api.budgets.spend(caller.limit_group(), COST)?;
    let promotions = shown.promotions.iter().filter_map(|promotion| promotion.metadata.name.clone());
    let wanted = WantedEvents {
        namespace: Some(named.namespace),
        pipeline: Some(named.name),
        promotions: promotions.collect(),
        types: types(&query.type_)?,
    };
    answer(&headers, &read(&api, &token, wanted, query.limit).await?)
}

fn types(type_: &str) -> Result<Vec<String>, Problem> {
    match type_ {
        "" => Ok(Vec::new()),
        "Normal" | "Warning" => Ok(vec![type_.into()]),
        _ => Err(Problem::bad_request(
            "type is Normal or Warning: write one of them, or leave it out for both",
        )),
    }
}

/// Reads events in the name of whom the token identifies.
async fn read<H: Hub>(
    api: &Api<H>,
    token: &str,
    wanted: WantedEvents,
    limit: Limit,
) -> Result<Events, Problem> {
    let place = match &wanted.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in all namespaces; name one with namespace=…".into(),
    };
    let mut items = api.hub.events(token, wanted).await.map_err(|error| match error {
        ChangeError::Refused(why) => {
            let detail = format!("the API server does not show you the events: {why}. You need the right to list events {place}");
            Problem::new(StatusCode::FORBIDDEN, detail)
        }
        error => Problem::from(error),
    })?;
    let older = items.len().saturating_sub(limit.rows());
    items.drain(..older);
    Ok(Events { items })
}
