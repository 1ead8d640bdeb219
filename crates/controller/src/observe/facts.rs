//! What is kept of an observed object: the parts whose change can change a decision or a status.
//! Equality of facts decides whether anything happened.

use std::collections::BTreeMap;
use std::fmt;

use sluice_core::model::Repository;
use sluice_core::revision::Facet;
use sluice_core::world::{Health, Natural};

/// A cluster whose objects are observed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKey {
    /// The one that holds the Pipelines.
    Local,
    /// A GitopsCluster.
    Remote {
        /// The GitopsCluster's namespace.
        namespace: String,
        /// The GitopsCluster's name.
        name: String,
    },
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterKey::Local => f.write_str("the local cluster"),
            ClusterKey::Remote { namespace, name } => write!(f, "cluster {namespace}/{name}"),
        }
    }
}

/// The kinds that are watched on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Flux's.
    Kustomization,
    /// Flux's.
    HelmRelease,
    /// A source in git.
    GitRepository,
    /// Kubernetes' own; only whether it exists.
    Namespace,
    /// Kubernetes' own.
    Deployment,
    /// Kubernetes' own.
    StatefulSet,
    /// Kubernetes' own.
    DaemonSet,
    /// Kubernetes' own.
    CronJob,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Kustomization,
        Kind::HelmRelease,
        Kind::GitRepository,
        Kind::Namespace,
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::CronJob,
    ];

    /// Those whose pods run images.
    pub const WITH_IMAGES: [Kind; 4] = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet, Kind::CronJob];

    /// The kind's name in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kustomization => "Kustomization",
            Kind::HelmRelease => "HelmRelease",
            Kind::GitRepository => "GitRepository",
            Kind::Namespace => "Namespace",
            Kind::Deployment => "Deployment",
            Kind::StatefulSet => "StatefulSet",
            Kind::DaemonSet => "DaemonSet",
            Kind::CronJob => "CronJob",
        }
    }

    /// The API group and plural that a role must grant to read it.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Kind::Kustomization => ("kustomize.toolkit.fluxcd.io", "kustomizations"),
            Kind::HelmRelease => ("helm.toolkit.fluxcd.io", "helmreleases"),
            Kind::GitRepository => ("source.toolkit.fluxcd.io", "gitrepositories"),
            Kind::Namespace => ("", "namespaces"),
            Kind::Deployment => ("apps", "deployments"),
            Kind::StatefulSet => ("apps", "statefulsets"),
            Kind::DaemonSet => ("apps", "daemonsets"),
            Kind::CronJob => ("batch", "cronjobs"),
        }
    }

    /// The kind that a group has under a name, if its health counts for what made it: workloads,
    /// and Flux objects that make workloads in their turn.
    pub fn made(group: &str, name: &str) -> Option<Kind> {
        use Kind::*;
        let kinds = [Deployment, StatefulSet, DaemonSet, CronJob, HelmRelease, Kustomization];
        kinds.into_iter().find(|k| k.name() == name && k.resource().0 == group)
    }
}

/// Names an object on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a Namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An observed object, trimmed.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Kustomization or HelmRelease.
    Flux(Box<FluxFact>),
    /// A Deployment or its kin, made by Flux.
    Workload(WorkloadFact),
    /// A source in git.
    Source(Repository),
    /// A namespace.
    Namespace,
}

/// How an object does, in Flux's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it does.
    pub health: Health,
    /// What it says when it is not Ready.
    pub message: String,
    /// When its Ready condition last changed.
    pub since: Option<String>,
}

/// What is kept of a Kustomization or HelmRelease.
#[derive(Clone, Debug, PartialEq)]
pub struct FluxFact {
    /// The pipelines that it joins by label.
    pub joins: Vec<String>,
    /// The Kustomization or HelmRelease that made it.
    pub owner: Option<ObjectKey>,
    /// What Flux last tried to make of a Kustomization: its generation, and the source's revision.
    pub attempt: Option<(i64, String)>,
    /// It only says that Flux is at work.
    pub at_work: bool,
    /// How it does, by its own word.
    pub verdict: Verdict,
    /// The version to show.
    pub version: String,
    /// Its facets, those of images left out.
    pub facets: BTreeMap<Facet, String>,
    /// What stands for it by default.
    pub natural: Natural,
    /// Namespace and name of the GitRepository it comes from.
    pub git_source: Option<(String, String)>,
    /// The workloads and Flux objects that it says it made.
    pub inventory: Vec<ObjectKey>,
    /// Its own word covers what it made: all of it was healthy when it was applied.
    pub covers: bool,
    /// It applies to another cluster, where this one's workloads are not.
    pub elsewhere: bool,
}

impl Fact {
    /// What made it.
    pub fn owner(&self) -> Option<&ObjectKey> {
        match self {
            Fact::Flux(flux) => flux.owner.as_ref(),
            Fact::Workload(workload) => Some(&workload.owner),
            Fact::Source(_) | Fact::Namespace => None,
        }
    }
}

impl FluxFact {
    /// This fact as it stands after the one before it. Flux goes through a Kustomization again and
    /// again, and each time says for a moment that it is at work. While it only repeats what it did
    /// before, its former verdict stands: nothing has changed, and one that failed has not recovered.
    pub fn after(self, before: Option<&Fact>) -> Self {
        match before {
            Some(Fact::Flux(before))
                if self.at_work
                    && self.attempt.is_some()
                    && self.attempt == before.attempt
                    && self.facets == before.facets
                    && matches!(before.verdict.health, Health::Ready | Health::Failed) =>
            {
                Self { verdict: before.verdict.clone(), at_work: before.at_work, ..self }
            }
            _ => self,
        }
    }
}

/// What is kept of a Deployment or its kin.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFact {
    /// Who made it.
    pub owner: ObjectKey,
    /// How it does.
    pub verdict: Verdict,
    /// The images it runs.
    pub images: Vec<String>,
}

/// What happened on a cluster.
#[derive(Debug)]
pub enum ClusterEvent {
    /// It answers; everything about it follows anew.
    Connected,
    /// It cannot be used: why, and what to do.
    Lost(String),
    /// All objects of a kind (in one namespace, or in all) are these.
    Listed(Kind, Option<String>, Vec<(ObjectKey, Fact)>),
    /// A kind cannot be read (in one namespace, or in all): why, and what to do.
    Unreadable(Kind, Option<String>, String),
    /// A kind may not be read on the whole cluster, and is asked for namespace by namespace.
    Narrowed(Kind),
    /// The cluster has no such kind.
    Absent(Kind),
    /// An object is there, or has changed.
    Applied(ObjectKey, Fact),
    /// An object is gone.
    Deleted(ObjectKey),
}
