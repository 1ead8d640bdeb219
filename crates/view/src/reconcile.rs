//! What to reconcile for a pipeline: the objects of Flux on the hub, and the commands for other clusters.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::pipeline::{Environment, Observe, Pipeline, Target};
use sluice_core::fleet::Kind;
use sluice_core::repository::Repository;

use crate::members::members;
use crate::object_name::FluxName;

/// What a request to reconcile a pipeline did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconcileReport {
    /// The objects on the hub, in the order of the requests: sources first.
    pub items: Vec<RequestedObject>,
    /// What to run for targets on other clusters.
    pub elsewhere: Vec<CommandElsewhere>,
}

/// An object that Flux was asked to reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestedObject {
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Why it was not asked, and what to do; absent if it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// The command for a target on another cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandElsewhere {
    /// The environment.
    pub environment: String,
    /// The name of the cluster; empty if the pipeline does not name it.
    pub cluster: String,
    /// The command to run there.
    pub command: String,
}

/// What there is to reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcilePlan {
    /// The Kustomizations and HelmReleases on the hub.
    pub here: BTreeSet<FluxName>,
    /// The commands for other clusters.
    pub elsewhere: Vec<CommandElsewhere>,
    /// The repositories and branches that Sluice commits to.
    pub repositories: Vec<Repository>,
}

/// Returns what to reconcile for those targets of a pipeline that are wanted.
pub fn plan(pipeline: &Pipeline, is_wanted: impl Fn(&Environment, &str) -> bool) -> ReconcilePlan {
    let mut plan = ReconcilePlan::default();
    for environment in &pipeline.spec.environments {
        let targets = environment.targets.iter().zip(environment.target_names());
        let wanted: Vec<_> = targets.filter(|(_, name)| is_wanted(environment, name)).collect();
        if !wanted.is_empty() {
            plan.repositories.extend(repository(pipeline, environment));
        }
        for (target, name) in wanted {
            let members = members(pipeline, environment, target, &name);
            match &target.cluster_ref {
                None if target.observe == Observe::Watch => {
                    let here = members.into_iter().map(|(kind, name)| FluxName {
                        kind,
                        namespace: target.namespace.clone(),
                        name,
                    });
                    plan.here.extend(here);
                }
                _ => plan.elsewhere.extend(commands(environment, target, &members)),
            }
        }
    }
    plan.repositories.sort();
    plan.repositories.dedup();
    plan
}

/// Returns the repository and branch that Sluice commits to for an environment.
fn repository(pipeline: &Pipeline, environment: &Environment) -> Option<Repository> {
    pipeline.spec.policy(environment)?.strategy.as_ref()?.repository()
}

fn commands<'a>(
    environment: &'a Environment,
    target: &'a Target,
    members: &'a BTreeSet<(String, String)>,
) -> impl Iterator<Item = CommandElsewhere> + 'a {
    members.iter().map(|(kind, name)| CommandElsewhere {
        environment: environment.name.clone(),
        cluster: target.cluster_ref.as_ref().map(|cluster| cluster.name.clone()).unwrap_or_default(),
        command: format!(
            "flux reconcile {} {name} -n {} --with-source",
            kind.to_ascii_lowercase(),
            target.namespace
        ),
    })
}

/// Returns the source that an object of Flux names in its spec.
pub fn source_of(named: &FluxName, spec: &Value) -> Option<FluxName> {
    let places = ["/sourceRef", "/chart/spec/sourceRef", "/chartRef"];
    let reference = places.into_iter().find_map(|place| spec.pointer(place))?;
    let kind = reference["kind"].as_str().filter(|kind| group(kind).is_some())?;
    let namespace = reference["namespace"].as_str().unwrap_or(&named.namespace);
    let name = reference["name"].as_str()?.into();
    Some(FluxName { kind: kind.into(), namespace: namespace.into(), name })
}

/// Returns the API group of a kind of Flux that can be reconciled.
pub fn group(kind: &str) -> Option<&'static str> {
    let kind = Kind::of_flux(kind).or_else(|| Kind::of_source(kind))?;
    (kind != Kind::ExternalArtifact).then(|| kind.resource().0)
}
