//! Finds what a caller asks about, for those who may see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_view::fleet::cluster_environments::ClusterEnvironments;
use sluice_view::object_name::ObjectName;

use crate::board::{Board, ShownPipeline};
use crate::hub::Hub;
use crate::problem::Problem;
use crate::rights::{Namespaces, kind, may_see};
use crate::state::Api;

/// Returns a pipeline that the caller may see. Who may not see it is not told whether it exists.
pub(crate) async fn find_pipeline<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    ObjectName { namespace, name }: &ObjectName,
) -> Result<Arc<ShownPipeline>, Problem> {
    // Asked also if there is no such pipeline: the time of the answer must not say that.
    let may_see = may_see(&api.hub, caller, namespace, name).await?;
    let board = api.boards.current(&api.hub).await;
    match board.pipelines.get(&(namespace.clone(), name.clone())) {
        Some(shown) if may_see => Ok(shown.clone()),
        None if may_see && !board.is_complete => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Sluice has not read all pipelines yet: wait a moment",
        )),
        _ => Err(Problem::not_found(format!(
            "there is no pipeline {name} in namespace {namespace}, or you may not see it: that needs the right to get \
             pipelines and promotions there, as the ClusterRole sluice-viewer has it"
        ))),
    }
}

/// Returns a promotion that the caller may see, and its pipeline. Who may not see it is not told whether it exists.
pub(crate) async fn find_promotion<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    ObjectName { namespace, name }: &ObjectName,
) -> Result<(Pipeline, Arc<Promotion>), Problem> {
    // Asked first, so that nobody else has anything looked for.
    if api.hub.allows(caller, &kind("promotions").within(namespace)).await? {
        let board = api.boards.current(&api.hub).await;
        let of = board.pipelines.iter().filter(|((of, _), _)| of == namespace);
        let found = of.into_iter().find_map(|(_, shown)| {
            let promotion = shown.promotions.iter().find(|p| p.metadata.name.as_ref() == Some(name))?;
            Some((shown, promotion.clone()))
        });
        if let Some((shown, promotion)) = found
            && may_see(&api.hub, caller, namespace, &promotion.spec.pipeline).await?
        {
            return Ok((shown.stored.whole(), promotion));
        }
    }
    Err(Problem::not_found(format!(
        "there is no promotion {name} in namespace {namespace}, or you may not see it. Sluice keeps a number of the \
         promotions that have ended; git has all of them"
    )))
}

/// Returns the pipelines of the namespaces in which a caller may see all. A right that names single Pipelines does not
/// count here: the API server would be asked about each of them.
pub(crate) async fn visible_pipelines<'b, H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    board: &'b Board,
) -> Result<Vec<&'b Arc<ShownPipeline>>, Problem> {
    let all: BTreeSet<String> = board.pipelines.keys().map(|(namespace, _)| namespace.clone()).collect();
    let namespaces = Namespaces::to_see(&api.hub, caller, all).await?;
    let visible = board.pipelines.iter().filter(|((namespace, _), _)| namespaces.contains(namespace));
    Ok(visible.map(|(_, shown)| shown).collect())
}

/// Returns the environments that the pipelines a caller may see have on each cluster.
pub(crate) async fn visible_environments<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
) -> Result<ClusterEnvironments, Problem> {
    let board = api.boards.current(&api.hub).await;
    let pipelines = visible_pipelines(api, caller, &board).await?;
    Ok(ClusterEnvironments::of(pipelines.iter().map(|shown| shown.stored.object.as_ref())))
}
