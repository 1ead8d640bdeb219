//! The clusters that pipelines name: does each GitopsCluster exist, and does its Secret have a kubeconfig that the
//! controller accepts?

use std::collections::BTreeMap;

use sluice_api::pipeline::{Observe, Pipeline};

use super::{Finding, Reading, Topic};
use crate::object_name::ObjectName;

/// A cluster that a pipeline names, or a GitopsCluster of the checked namespaces.
#[derive(Clone, Debug)]
pub struct NamedCluster {
    /// The namespace of the GitopsCluster.
    pub namespace: String,
    /// The name of the GitopsCluster.
    pub name: String,
    /// The pipelines that name it, as `namespace/name`.
    pub pipelines: Vec<String>,
    /// The name of the Secret in the GitopsCluster, if it names one. `None` if nobody has looked: then only what the controller
    /// says about the cluster counts.
    pub secret: Option<Reading<Option<String>>>,
    /// The kubeconfig in the Secret. It is only read if the name of the Secret is known.
    pub kubeconfig: Reading<Kubeconfig>,
}

/// What matters about a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kubeconfig {
    /// None of the keys has a text.
    NoKey,
    /// It is not the YAML of a kubeconfig, or its current context leads nowhere; with the reason.
    Unreadable(String),
    /// It can be read.
    Read {
        /// The address of the API server.
        server: String,
        /// The first thing that the controller refuses, as `has a server that is not https`.
        refused: Option<String>,
        /// The program that it runs. The controller refuses it, unless a flag allows it.
        program: Option<String>,
    },
}

impl NamedCluster {
    /// Returns a cluster that nobody has looked at.
    pub fn unread((ObjectName { namespace, name }, pipelines): (ObjectName, Vec<String>)) -> NamedCluster {
        NamedCluster { namespace, name, pipelines, secret: None, kubeconfig: Reading::Absent }
    }

    /// Returns false if it is known that there is no such GitopsCluster.
    pub fn may_exist(&self) -> bool {
        !matches!(self.secret, Some(Reading::Absent))
    }
}

/// Returns the clusters that pipelines name, with the pipelines. A target with `observe: Push` needs no cluster.
pub fn named(pipelines: &[Pipeline]) -> BTreeMap<ObjectName, Vec<String>> {
    let mut named: BTreeMap<ObjectName, Vec<String>> = BTreeMap::new();
    for pipeline in pipelines {
        let home = pipeline.metadata.namespace.clone().unwrap_or_default();
        let name = format!("{home}/{}", pipeline.metadata.name.as_deref().unwrap_or_default());
        let targets = pipeline.spec.environments.iter().flat_map(|environment| &environment.targets);
        let watched = targets.filter(|target| target.observe == Observe::Watch);
        for cluster in watched.filter_map(|target| target.cluster_ref.as_ref()) {
            let key =
                ObjectName { namespace: cluster.namespace_or(&home).to_owned(), name: cluster.name.clone() };
            let users = named.entry(key).or_default();
            if !users.contains(&name) {
                users.push(name.clone());
            }
        }
    }
    named
}

/// Returns the findings.
pub fn findings(clusters: &[NamedCluster]) -> Vec<Finding> {
    clusters.iter().filter_map(|cluster| Some(finding(cluster, cluster.secret.as_ref()?))).collect()
}

fn finding(cluster: &NamedCluster, secret: &Reading<Option<String>>) -> Finding {
    let topic = Topic::Clusters;
    let NamedCluster { namespace, name, pipelines, .. } = cluster;
    let what = format!("GitopsCluster {namespace}/{name}");
    let add = "docs/operations.md#add-a-cluster";
    let secret = match secret {
        Reading::Known(Some(secret)) => secret,
        Reading::Known(None) => return Finding::error(topic, format!("{what} names no Secret")).fix(add),
        Reading::Absent => {
            let pipelines = pipelines.join(", ");
            return Finding::error(
                topic,
                format!("{what} does not exist, but pipelines name it: {pipelines}"),
            )
            .fix(add);
        }
        unread => {
            let finding = unread.unread(topic, &format!("GitopsClusters in namespace {namespace}"));
            return finding.unwrap_or_else(|| Finding::ok(topic, what));
        }
    };
    let replace = format!(
        "kubectl create secret generic {secret} -n {namespace} --from-file=value=KUBECONFIG; see {add}"
    );
    let of = format!("the kubeconfig of {what} (Secret {secret})");
    match &cluster.kubeconfig {
        Reading::Known(Kubeconfig::Read { server, refused: None, program: None }) => {
            Finding::ok(topic, format!("{what} leads to {server}"))
        }
        Reading::Known(Kubeconfig::Read { refused: Some(refused), .. }) => {
            Finding::error(topic, format!("{of} {refused}, which the controller refuses")).fix(add)
        }
        Reading::Known(Kubeconfig::Read { program: Some(program), .. }) => {
            let message = format!("{of} runs the program {program}, which the controller refuses by default");
            Finding::warning(topic, message)
                .fix("use a token or a client certificate, or start the controller with --insecure-kubeconfig-exec")
        }
        Reading::Known(Kubeconfig::NoKey) => {
            let message =
                format!("Secret {namespace}/{secret} of {what} has no kubeconfig under the key value");
            Finding::error(topic, message).fix(replace)
        }
        Reading::Known(Kubeconfig::Unreadable(why)) => {
            Finding::error(topic, format!("{of} cannot be used: {why}")).fix(replace)
        }
        Reading::Absent => {
            let message = format!("Secret {namespace}/{secret} of {what} does not exist");
            Finding::error(topic, message).fix(replace)
        }
        unread => {
            let finding = unread.unread(topic, &format!("kubeconfigs in namespace {namespace}"));
            finding.unwrap_or_else(|| Finding::ok(topic, what))
        }
    }
}
