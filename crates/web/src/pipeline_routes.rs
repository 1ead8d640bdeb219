//! The routes of pipelines and promotions.

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_view::explain::{Explanation, explain};
use sluice_view::explain_back::explain_environment;
use sluice_view::history::{Entry, history};
use sluice_view::object_name::ObjectName;
use sluice_view::pipeline_screen::PipelineScreen;
use sluice_view::story::{PromotionStory, promotion_story};
use sluice_view::tree::{EnvironmentNode, retain_nodes, tree};

use crate::action_body::ActionBody;
use crate::answer::answer;
use crate::board::ShownPipeline;
use crate::caller::IdentifiedCaller;
use crate::event_routes;
use crate::find::{find_pipeline, find_promotion, visible_pipelines};
use crate::hub::Hub;
use crate::in_path::InPath;
use crate::list_parameters::{Limit, after, search_words};
use crate::origin_check::check_origin;
use crate::parameters::Parameters;
use crate::pipeline_filter::PipelineFilter;
use crate::problem::Problem;
use crate::reconcile_route;
use crate::requested_action::{ActionPath, RequestedAction, Seen};
use crate::state::Api;
use crate::triggers::triggers_of;

/// The most bytes of the body of a request.
const MAX_BODY_BYTES: usize = 8 << 10;

/// The pipelines that a caller may see.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PipelineList {
    /// The pipelines, ordered by namespace and name.
    pub items: Vec<PipelineScreen>,
    /// False while Sluice still reads the pipelines, so that some may be missing.
    pub complete: bool,
    /// What to send as `continue` for the next pipelines; absent if these are the last.
    #[serde(rename = "continue", default, skip_serializing_if = "String::is_empty")]
    pub continue_: String,
}

/// Why each environment of a pipeline gets a revision, or why it does not.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Explanations {
    /// The environments, in order.
    pub items: Vec<Explanation>,
}

/// What was promoted into the environments of a pipeline.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct History {
    /// The promotions, the newest first.
    pub items: Vec<Entry>,
}

/// What a pipeline consists of.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Tree {
    /// The environments, in order.
    pub items: Vec<EnvironmentNode>,
}

/// One pipeline.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PipelineAnswer {
    /// The pipeline on one screen.
    #[serde(flatten)]
    pub screen: PipelineScreen,
    /// What to send as `seen` with an action on the pipeline.
    pub seen: String,
}

/// One promotion.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PromotionAnswer {
    /// The promotion and its whole story.
    #[serde(flatten)]
    pub story: PromotionStory,
    /// What to send as `seen` with an action on the promotion.
    pub seen: String,
}

/// An action on a pipeline or promotion.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionRequest {
    /// The `seen` of the pipeline or promotion as you have read it. If it has changed since, the answer is 409.
    pub seen: String,
    /// Why, for a rejection; at most 1000 characters.
    #[serde(default)]
    pub reason: String,
}

/// Which pipelines to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PipelinesQuery {
    /// Only this namespace.
    pub namespace: String,
    /// Only those that have each of these words in their name, namespace, application, clusters or revisions. The word
    /// `cluster:eu` finds those on a cluster whose name begins with `eu`; `namespace:`, `application:`, `health:` and
    /// `revision:` do the same.
    pub search: String,
    /// Only those with an environment that needs a `person`, has `failed`, is `moving` or is `unreadable`.
    pub of: String,
    /// The most pipelines to return, at most 5000; default is 500.
    pub limit: Limit,
    /// The `continue` of the answer before.
    #[serde(rename = "continue")]
    pub continue_: String,
}

impl PipelinesQuery {
    /// Returns the namespace and name of the last pipeline of the page before; `None` for the first page.
    ///
    /// # Errors
    /// When it is not the `continue` of an answer.
    pub(crate) fn after(&self) -> Result<Option<(String, String)>, Problem> {
        after(&self.continue_)
    }
}

/// Which environment to explain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    /// Only this environment, or `environment/target`.
    pub environment: String,
}

/// Which environments to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TreeQuery {
    /// Only this environment, or `environment/target`.
    pub environment: String,
}

/// Which promotions to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// Only those into this environment, or `environment/target`.
    pub environment: String,
    /// The most promotions to return, at most 5000; default is 500.
    pub limit: Limit,
}

/// Returns the routes.
pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new()
        .route("/api/v1/pipelines", get(list::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}", get(one::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}/explain", get(explanations::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}/history", get(promotions::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}/tree", get(objects::<H>))
        .route("/api/v1/pipelines/{namespace}/{name}/triggers", get(starts::<H>))
        .route("/api/v1/promotions/{namespace}/{name}", get(promotion::<H>))
        .route("/api/v1/{kind}/{namespace}/{name}/{action}", post(carry_out::<H>))
        .merge(event_routes::routes())
        .merge(reconcile_route::routes())
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

async fn list<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(query): Parameters<PipelinesQuery>,
) -> Result<Response, Problem> {
    let (after, wanted) = (query.after()?, search_words(&query.search)?);
    let of = PipelineFilter::parse(&query.of)?;
    api.budgets.spend(caller.limit_group(), query.limit.rows() / 500)?;
    let board = api.boards.current(&api.hub).await;
    let visible = visible_pipelines(&api, &caller, &board).await?;
    let is_wanted = |shown: &&ShownPipeline| {
        let screen = &shown.screen;
        after.as_ref().is_none_or(|(namespace, name)| (&screen.namespace, &screen.name) > (namespace, name))
            && (query.namespace.is_empty() || query.namespace == screen.namespace)
            && shown.searched.have(&wanted)
            && of.is_none_or(|of| of.is_of(screen))
    };
    let mut found = visible.into_iter().map(AsRef::as_ref).filter(is_wanted);
    let items: Vec<PipelineScreen> =
        found.by_ref().take(query.limit.rows()).map(|shown| shown.screen.clone()).collect();
    let continue_ = match (found.next(), items.last()) {
        (Some(_), Some(last)) => serde_json::json!([last.namespace, last.name]).to_string(),
        _ => String::new(),
    };
    answer(&headers, &PipelineList { items, complete: board.is_complete, continue_ })
}

async fn one<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let shown = find_pipeline(&api, &caller, &named).await?;
    let seen = Seen::of_pipeline(&shown.stored.object).to_string();
    answer(&headers, &PipelineAnswer { screen: shown.screen.clone(), seen })
}

async fn explanations<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
    Parameters(query): Parameters<ExplainQuery>,
) -> Result<Response, Problem> {
    let ExplainQuery { environment } = query;
    let shown = find_pipeline(&api, &caller, &named).await?;
    let (pipeline, now) = (shown.stored.whole(), Timestamp::now());
    let items = match environment.as_str() {
        "" => explain(&pipeline, &shown.promotions, now),
        wanted => explain_environment(&pipeline, &shown.promotions, wanted, now),
    };
    if !environment.is_empty() {
        found(&items, &named, &environment)?;
    }
    answer(&headers, &Explanations { items })
}

async fn promotions<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
    Parameters(query): Parameters<HistoryQuery>,
) -> Result<Response, Problem> {
    let shown = find_pipeline(&api, &caller, &named).await?;
    let environment = Some(query.environment.as_str()).filter(|name| !name.is_empty());
    let mut items = history(&named.name, environment, &shown.promotions);
    items.truncate(query.limit.rows());
    answer(&headers, &History { items })
}

async fn objects<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
    Parameters(query): Parameters<TreeQuery>,
) -> Result<Response, Problem> {
    let TreeQuery { environment } = query;
    let shown = find_pipeline(&api, &caller, &named).await?;
    let mut items = tree(&shown.stored.whole());
    if !environment.is_empty() {
        retain_nodes(&mut items, &environment);
        found(&items, &named, &environment)?;
    }
    answer(&headers, &Tree { items })
}

async fn starts<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let shown = find_pipeline(&api, &caller, &named).await?;
    answer(&headers, &triggers_of(&api, &caller, &shown).await?)
}

async fn promotion<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    InPath(named): InPath<ObjectName>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (pipeline, promotion) = find_promotion(&api, &caller, &named).await?;
    let seen = Seen::of_promotion(&promotion, &pipeline).to_string();
    answer(&headers, &PromotionAnswer { story: promotion_story(&promotion), seen })
}

/// Makes sure that something was found in an environment or target of a pipeline.
fn found<T>(items: &[T], pipeline: &ObjectName, environment: &str) -> Result<(), Problem> {
    match items {
        [] => {
            Err(Problem::not_found(format!("pipeline {pipeline} has no environment or target {environment}")))
        }
        _ => Ok(()),
    }
}

async fn carry_out<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    InPath(path): InPath<ActionPath>,
    headers: HeaderMap,
    ActionBody(request): ActionBody<ActionRequest>,
) -> Result<StatusCode, Problem> {
    // A proxy adds a person's token also to requests that another site makes the browser send.
    check_origin(&headers, api.page_url.as_deref())?;
    let requested = RequestedAction::find(&api, &caller, &path).await?;
    requested.carry_out(&api, (&caller, &token), (&request.seen, &request.reason)).await?;
    Ok(StatusCode::NO_CONTENT)
}
