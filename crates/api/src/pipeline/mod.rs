//! The `Pipeline`: the environments of an application, their clusters, and how revisions are promoted from one to the next.
//! The fields have the form of the Go predecessor's.

use std::collections::BTreeSet;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::fleet::ClusterKey;
use sluice_core::value_check::visible;

use crate::default_field::is_default;

mod cross_field_rules;
mod promotion_policy;
mod references;
mod status;
mod strategy;

pub use promotion_policy::*;
pub use references::*;
pub use status::*;
pub use strategy::*;

/// The longest name of a target, in bytes: the longest name of a cluster, and a namespace.
const MAX_TARGET_NAME_BYTES: usize = 253 + 1 + 63;

/// Continuous delivery of one application through an ordered list of environments.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pipelines.weave.works",
    version = "v1alpha1",
    kind = "Pipeline",
    namespaced,
    status = "PipelineStatus",
    shortname = "pl",
    category = "all",
    category = "fluxcd",
    derive = "PartialEq",
    derive = "Default",
    doc = "Pipeline names the environments an application goes through, in order, and how each revision is promoted from one to the next.",
    printcolumn(name = "Application", type_ = "string", json_path = ".spec.appRef.name"),
    printcolumn(name = "Environments", type_ = "string", json_path = ".status.summary.environments"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Promoting", type_ = "string", json_path = ".status.summary.promoting"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = cross_field_rules::push_needs_an_application(),
    validation = cross_field_rules::push_tracks_no_images(),
    validation = cross_field_rules::push_needs_a_report_key()
)]
pub struct PipelineSpec {
    /// Suspends the pipeline: it is still observed and shown, but nothing is started, pushed or opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// The one application of this pipeline, under the same kind and name in every target's
    /// namespace. The API version is not compared: Sluice reads the version that each cluster serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_ref: Option<AppRef>,
    /// The facets that make a revision of this pipeline: `chart`, `app`, `images`, `tag`, `digest`, `source`
    /// or `image:<repository>`. Default: `chart` for a HelmRelease; `tag` for a Kustomization from
    /// an OCIRepository; `images` for a Kustomization from a GitRepository whose workloads show
    /// images, and `source` for one whose workloads show none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.all(t, t in ['chart', 'app', 'images', 'tag', 'digest', 'source'] || (t.startsWith('image:') && t.size() > 6))").message("tracks may have chart, app, images, tag, digest, source and image:<repository>"))]
    pub tracks: Vec<String>,
    /// The environments, in the order in which a revision goes through them.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        validation = cross_field_rules::environments_have_unique_names(),
        validation = cross_field_rules::after_names_earlier_environments()
    )]
    pub environments: Vec<Environment>,
    /// How to promote into each environment without its own promotion. An environment without any promotion is only
    /// shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionPolicy>,
}

impl PipelineSpec {
    /// Returns the policy of an environment: its own, else that of the pipeline.
    pub fn policy<'a>(&'a self, environment: &'a Environment) -> Option<&'a PromotionPolicy> {
        environment.promotion.as_deref().or(self.promotion.as_ref())
    }

    /// Returns the policies whose keys authenticate calls about an environment: its own first, then those of the
    /// environments that its revisions are promoted into.
    pub fn policies_about(&self, environment: &str) -> Vec<&PromotionPolicy> {
        let all = || self.environments.iter().enumerate();
        let own = all().filter(|(_, e)| e.name == environment);
        let next = all().filter(|(at, e)| e.name != environment && self.after(*at).contains(&environment));
        own.chain(next).filter_map(|(_, e)| self.policy(e)).collect()
    }

    /// Returns the names of the predecessors of the environment with this index.
    pub fn after(&self, at: usize) -> Vec<&str> {
        let named = self.environments.get(at).map_or(&[][..], |e| &e.after);
        let before = at.checked_sub(1).filter(|_| named.is_empty()).and_then(|at| self.environments.get(at));
        named.iter().map(|name| name.0.as_str()).chain(before.map(|e| e.name.as_str())).collect()
    }
}

/// One environment of the application, for example dev or prod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// A DNS-1123 label, unique in the pipeline.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("an environment's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub name: String,
    /// The namespaces and clusters that the application runs in.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = cross_field_rules::targets_have_unique_names())]
    pub targets: Vec<Target>,
    /// The environments whose revisions are promoted into this one; default is the previous one in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub after: Vec<EnvironmentName>,
    /// How to promote into this environment. It replaces the whole promotion of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Box<PromotionPolicy>>,
}

impl Environment {
    /// Returns the name of a cluster in events about this environment. It includes the namespace if another cluster of the
    /// environment has the same name. `home` is the pipeline's namespace.
    pub fn name_of_cluster(&self, cluster: &ClusterRef, home: &str) -> String {
        let mut all = self.targets.iter().filter_map(|t| t.cluster_ref.as_ref());
        let namespace = cluster.namespace_or(home);
        match all.any(|other| other.name == cluster.name && other.namespace_or(home) != namespace) {
            true => format!("{namespace}/{}", cluster.name),
            false => cluster.name.clone(),
        }
    }

    /// Returns the names of the targets, in their order: as given, or made from cluster and namespace. They are safe to print.
    pub fn target_names(&self) -> Vec<String> {
        let mut taken = BTreeSet::new();
        let mut names = Vec::new();
        for target in &self.targets {
            let made = || match &target.cluster_ref {
                Some(cluster) => format!("{}-{}", cluster.name, target.namespace),
                None => target.namespace.clone(),
            };
            let base = visible(&target.name.clone().unwrap_or_else(made), MAX_TARGET_NAME_BYTES);
            let mut name = base.clone();
            let mut n = 2;
            while !taken.insert(name.clone()) {
                name = format!("{base}-{n}");
                n += 1;
            }
            names.push(name);
        }
        names
    }
}

/// The name of an environment, as a reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EnvironmentName(#[schemars(length(min = 1, max = 63))] pub String);

/// One namespace on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = cross_field_rules::push_needs_a_cluster())]
pub struct Target {
    /// Unique in its environment; default is made from the cluster's name and the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a target's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub name: Option<String>,
    /// The namespace in which the application's Flux objects are.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a namespace's name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit"))]
    pub namespace: String,
    /// The cluster; default is the cluster with the Pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// How Sluice observes the target. `Watch`, the default, reads its cluster. `Push` is for a cluster that Sluice cannot
    /// reach: Flux on that cluster reports the state by signed events.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observe: Observe,
    /// More members of this target, by kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub workloads: Vec<WorkloadRef>,
}

impl Target {
    /// Returns the cluster that is meant in a Pipeline in the namespace `home`.
    pub fn cluster_key(&self, home: &str) -> ClusterKey {
        self.cluster_ref.as_ref().map_or(ClusterKey::Local, |cluster| ClusterKey::Remote {
            namespace: cluster.namespace_or(home).into(),
            name: cluster.name.clone(),
        })
    }

    /// Returns the cluster as people read it from a Pipeline in the namespace `home`: empty for the cluster with the
    /// Pipeline, and with the namespace if that is not `home`.
    pub fn cluster_name(&self, home: &str) -> String {
        let Some(cluster) = &self.cluster_ref else { return String::new() };
        match cluster.namespace_or(home) {
            namespace if namespace == home => cluster.name.clone(),
            namespace => format!("{namespace}/{}", cluster.name),
        }
    }

    /// Returns the target with this index and name in the status of its environment: by its name, or if the spec has no
    /// name by its index, if the namespace is the same. The predecessor recorded targets by their index only.
    pub fn status_in<'a>(
        &self,
        environment: &'a EnvironmentStatus,
        index: usize,
        name: &str,
    ) -> Option<&'a TargetStatus> {
        let by_name = environment.targets.iter().find(|status| status.name == name);
        let is_same = |status: &&TargetStatus| self.name.is_none() && status.namespace == self.namespace;
        by_name.or_else(|| environment.targets.get(index).filter(|s| is_same(s) || s.is_of_predecessor()))
    }
}

/// How Sluice observes a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Observe {
    /// Sluice reads the target's cluster.
    #[default]
    Watch,
    /// Flux on the target's cluster reports by signed events; no GitopsCluster is needed.
    Push,
}
