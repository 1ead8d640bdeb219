//! The check: what is wrong with the installation, its pipelines and its clusters. It follows from what the controller
//! observes and the caller may see, and from what the API server says to the caller.

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
use sluice_view::check::clusters::{NamedCluster, named};
use sluice_view::check::observed::{IMAGE_NAME_PART, Observed};
use sluice_view::check::pipelines::Pipelines;
use sluice_view::check::{CheckFacts, CheckReport, MAX_INSTALLATION_REQUESTS, Reading, Topic};
use sluice_view::fleet::observed_clusters::cluster_state;

use crate::answer::answer;
use crate::caller::IdentifiedCaller;
use crate::find::visible_pipelines;
use crate::fleet_versions::VersionKind;
use crate::hub::Hub;
use crate::list_parameters::{self, Limit};
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::state::Api;
use crate::versions_query::VersionsQuery;
use crate::visible_fleet::{Visible, visible_clusters};

/// What an answer from what is observed costs a caller, in requests.
const COST: usize = 10;
/// What is not checked unless the API server is asked about the installation.
const OF_INSTALLATION: [Topic; 5] =
    [Topic::Definitions, Topic::Controller, Topic::Rights, Topic::Hooks, Topic::Clocks];
const ASK: &str = "the API server is asked about it only with installation=true";
/// What only `sluice check` looks at, and why.
const ONLY_COMMAND: [(Topic, &str); 2] = [
    (Topic::Secrets, "each Secret would be a request: sluice check reads them with your rights"),
    (Topic::Values, "they are in your checkout of the repository: sluice check --checkout DIR looks there"),
];

/// What is wrong with the installation, and with the pipelines and clusters that the caller may see.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CheckAnswer {
    /// The findings.
    #[serde(flatten)]
    pub report: CheckReport,
    /// What is not checked here.
    pub unchecked: Vec<UncheckedTopic>,
}

/// A topic that is not checked here.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UncheckedTopic {
    /// The topic.
    pub topic: Topic,
    /// Why, and what checks it.
    pub why: String,
}

/// What to check.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CheckQuery {
    /// Only the pipelines of this namespace, and the clusters that they name.
    pub namespace: String,
    /// Also what the API server of the hub says to you about the installation. This costs as much as 40 requests.
    pub installation: bool,
}

pub(crate) fn routes<H: Hub>() -> Router<Api<H>> {
    Router::new().route("/api/v1/check", get(check::<H>))
}

async fn check<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(CheckQuery { namespace, installation }): Parameters<CheckQuery>,
) -> Result<Response, Problem> {
    let namespace = list_parameters::namespace(namespace)?;
    let cost = if installation { MAX_INSTALLATION_REQUESTS } else { COST };
    api.budgets.spend(caller.limit_group(), cost)?;
    let board = api.boards.current(&api.hub).await;
    let mut shown = visible_pipelines(&api, &caller, &board).await?;
    shown.retain(|shown| namespace.as_ref().is_none_or(|wanted| shown.screen.namespace == *wanted));
    let pipelines: Vec<Pipeline> = shown.iter().map(|shown| shown.stored.whole()).collect();
    let promotions =
        shown.iter().flat_map(|shown| &shown.promotions).map(|promotion| promotion.as_ref().clone());
    let asked = match installation {
        true => Some(api.hub.installation(&caller, &token, namespace.as_deref(), &pipelines).await?),
        false => None,
    };
    let facts = CheckFacts {
        installation: asked,
        clusters: named(&pipelines).into_iter().map(NamedCluster::unread).collect(),
        observed: observed(&api, &caller).await?,
        secrets: None,
        pipelines: Pipelines {
            namespace: namespace.clone(),
            found: Reading::Known((pipelines.as_slice(), Vec::new())),
            promotions: Reading::Known(promotions.collect()),
        },
        values: None,
    };
    let unasked = OF_INSTALLATION.map(|topic| (topic, ASK)).into_iter().filter(|_| !installation);
    let unchecked = unasked.chain(ONLY_COMMAND).map(|(topic, why)| UncheckedTopic { topic, why: why.into() });
    let report = sluice_view::check::check(&facts);
    answer(&headers, &CheckAnswer { report, unchecked: unchecked.collect() })
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
