//! The Kustomizations and HelmReleases of a target.

use std::collections::BTreeSet;

use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, Target};
use sluice_core::fleet::Kind;

/// Returns the kinds and names of the members of a target, as the spec names them and the controller has found them. `name`
/// is the name of the target.
pub fn members(
    pipeline: &Pipeline,
    environment: &Environment,
    target: &Target,
    name: &str,
) -> BTreeSet<(String, String)> {
    let app = pipeline.spec.app_ref.iter().map(|app| (app.kind.clone(), app.name.clone()));
    let named = target.workloads.iter().map(|workload| (workload.kind.clone(), workload.name.clone()));
    let status = pipeline.status.as_ref().and_then(|status| status.environments.get(&environment.name));
    let observed = status.iter().flat_map(|status| &status.targets).filter(|target| target.name == name);
    let found = observed
        .flat_map(|target| &target.workloads)
        .map(|workload| (workload.kind.clone(), workload.name.clone()));
    let is_of_flux = |(kind, _): &(String, String)| Kind::of_flux(kind).is_some();
    app.chain(named).chain(found).filter(is_of_flux).collect()
}
