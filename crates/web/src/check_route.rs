//! The check of pipelines and clusters, as far as it follows from what the controller observes and the caller may see.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_core::access::Caller;
use sluice_core::fleet::ClusterKey;
use sluice_view::check::observed::{IMAGE_NAME_PART, Observed};
use sluice_view::check::pipelines::Pipelines;
use sluice_view::check::{CheckReport, Reading, Topic, check_observed};
use sluice_view::fleet::observed_clusters::cluster_state;

use crate::answer::answer;
use crate::caller::IdentifiedCaller;
use crate::find::visible_pipelines;
use crate::fleet_versions::VersionKind;
use crate::hub::Hub;
use crate::list_parameters::Limit;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::state::Api;
use crate::versions_query::VersionsQuery;
use crate::visible_fleet::{Visible, visible_clusters};

/// What an answer costs a caller, in requests.
const COST: usize = 10;
/// What only `sluice check` looks at, with the caller's kubeconfig.
const UNCHECKED: [Topic; 7] = [
    Topic::Definitions,
    Topic::Controller,
    Topic::Rights,
    Topic::Secrets,
    Topic::Hooks,
    Topic::Values,
    Topic::Clocks,
];

/// What is wrong with the pipelines and clusters that the caller may see.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CheckAnswer {
    /// The findings.
    #[serde(flatten)]
    pub report: CheckReport,
    /// What is not checked here: `sluice check` looks at it with your kubeconfig.
    pub unchecked: Vec<Topic>,
}

/// What to check.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CheckQuery {
    /// Only the pipelines of this namespace, and the clusters that they name.
    pub namespace: String,
}

pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new().route("/api/v1/check", get(check::<H>))
}

async fn check<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, _): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(CheckQuery { namespace }): Parameters<CheckQuery>,
) -> Result<Response, Problem> {
    api.budgets.spend(caller.limit_group(), COST)?;
    let board = api.boards.current(&api.hub).await;
    let visible = visible_pipelines(&api, &caller, &board).await?;
    let shown: Vec<_> = visible
        .into_iter()
        .filter(|shown| namespace.is_empty() || shown.screen.namespace == namespace)
        .collect();
    let pipelines: Vec<Pipeline> = shown.iter().map(|shown| shown.stored.whole()).collect();
    let promotions =
        shown.iter().flat_map(|shown| &shown.promotions).map(|promotion| promotion.as_ref().clone());
    let facts = Pipelines {
        namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
        found: Reading::Known((pipelines.as_slice(), Vec::new())),
        promotions: Reading::Known(promotions.collect()),
    };
    let observed = observed(&api, &caller).await?;
    let report = check_observed(&facts, &observed);
    answer(&headers, &CheckAnswer { report, unchecked: UNCHECKED.to_vec() })
}

/// Returns what the controller has observed of the clusters that a caller may see.
async fn observed<H: Hub>(api: &Api<H>, caller: &Caller) -> Result<Observed, Problem> {
    let visible = visible_clusters(&api.hub, caller, &api.fleet).await?;
    let row = |key: &ClusterKey| api.fleet.read(key, |cluster| cluster_state(key, cluster));
    let clusters = visible.iter().filter_map(row).collect();
    let kind = VersionKind::Images;
    let query =
        VersionsQuery { name: IMAGE_NAME_PART.into(), limit: Limit::MOST, ..VersionsQuery::default() };
    let visible = Visible::to(&api.hub, caller, &api.fleet, kind.kinds()).await?;
    let images = api.rows.page(&api.fleet, kind, visible, query).await?.items;
    Ok(Observed::Answered { clusters, images })
}
