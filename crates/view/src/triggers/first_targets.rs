//! The targets of the environments that a pipeline begins with.

use std::collections::BTreeSet;

use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, Observe, Target};
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};

use crate::members::members;

/// A target of an environment without predecessors.
pub(super) struct FirstTarget<'a> {
    /// The environment.
    pub environment: &'a Environment,
    /// The target.
    pub target: &'a Target,
    /// Its cluster.
    pub cluster: ClusterKey,
    /// The Kustomizations and HelmReleases of the application.
    pub members: Vec<ObjectKey>,
}

impl FirstTarget<'_> {
    /// Whether Sluice reads the cluster of the target.
    pub(super) fn is_watched(&self) -> bool {
        self.target.observe == Observe::Watch
    }
}

/// Returns the environments without predecessors.
pub(super) fn first_environments(pipeline: &Pipeline) -> impl Iterator<Item = &Environment> {
    let all = pipeline.spec.environments.iter().enumerate();
    all.filter(|(at, _)| pipeline.spec.after(*at).is_empty()).map(|(_, environment)| environment)
}

/// Returns the targets of an environment.
pub(super) fn targets<'a>(pipeline: &'a Pipeline, environment: &'a Environment) -> Vec<FirstTarget<'a>> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let one = |(target, name): (&'a Target, String)| {
        let members = members(pipeline, environment, target, &name).into_iter();
        let member = |(kind, name): (String, String)| {
            Some(ObjectKey { kind: Kind::of_flux(&kind)?, namespace: target.namespace.clone(), name })
        };
        FirstTarget {
            environment,
            target,
            cluster: target.cluster_key(home),
            members: members.filter_map(member).collect(),
        }
    };
    environment.targets.iter().zip(environment.target_names()).map(one).collect()
}

/// Returns the clusters of all these targets that Sluice reads.
pub fn clusters(pipeline: &Pipeline) -> BTreeSet<ClusterKey> {
    let all = first_environments(pipeline).flat_map(|environment| targets(pipeline, environment));
    all.filter(FirstTarget::is_watched).map(|target| target.cluster).collect()
}
