//! Reads what the API server says about an installation. `sluice check` and the API ask the same, both with the rights of the
//! caller.

use kube::Client;
use sluice_api::pipeline::Observe;
use sluice_view::check::Installation;

use super::installation_question::InstallationQuestion;
use super::{clocks, controller, definitions, flux, hooks, rights};

/// Reads the facts. A right that the caller lacks is a fact.
///
/// # Errors
/// When the API server cannot be reached, or does not accept the caller's credentials.
pub async fn read_installation<'a>(
    client: &Client,
    question: InstallationQuestion<'a>,
) -> kube::Result<Installation<'a>> {
    let InstallationQuestion { pipelines, version, .. } = question;
    // The first request also shows whether the cluster can be used at all.
    let mut clocks = clocks::read(client, question.clock_of).await?;
    let now = clocks.server.known().copied().unwrap_or(clocks.here);
    let groups = definitions::groups(client).await?;
    let (mut definitions, mut controller, rights, mut flux, hooks) = tokio::try_join!(
        definitions::read(client, &groups),
        controller::read(client, &question.controller_namespace, version, now),
        rights::read(client, &question),
        flux::read(client, &groups),
        hooks::read(client, &question),
    )?;
    let targets = pipelines.iter().flat_map(|p| &p.spec.environments).flat_map(|e| &e.targets);
    let watched: Vec<_> = targets.filter(|target| target.observe == Observe::Watch).collect();
    flux.targets_here = watched.iter().filter(|target| target.cluster_ref.is_none()).count();
    definitions.targets_elsewhere = watched.len() - flux.targets_here;
    controller.is_running = question.is_controller;
    clocks.newest = clocks::newest(&controller, pipelines);
    Ok(Installation { definitions, controller, rights, flux, hooks, clocks })
}
