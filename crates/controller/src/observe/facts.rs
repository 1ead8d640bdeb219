//! What is kept of an observed object: the parts whose change can change a decision or a status.
//! Equality of facts decides whether anything happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sluice_api::ALLOWED_NAMESPACES;
use sluice_core::observed::Health;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;

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
    Namespace {
        /// The namespaces whose Pipelines may have targets in it, by its annotation.
        allowed: Option<AllowedNamespaces>,
    },
}

/// The namespaces that an annotation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedNamespaces(String);

impl AllowedNamespaces {
    /// Reads it from the annotations of an object; `None` where there is none.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        annotations.get(ALLOWED_NAMESPACES).cloned().map(Self)
    }

    /// Whether it names a namespace, or all with `*`.
    pub fn admits(&self, namespace: &str) -> bool {
        self.0.split(',').map(str::trim).any(|name| name == "*" || name == namespace)
    }

    fn size(&self) -> usize {
        self.0.len()
    }
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
    pub default_facet: DefaultFacet,
    /// Namespace and name of the GitRepository it comes from.
    pub git_source: Option<(String, String)>,
    /// The workloads and Flux objects that it owns.
    pub owned: Owned,
    /// The Helm release that it is an object of, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
    /// Facets whose value cannot be one, each with the reason.
    pub invalid: Vec<(Facet, String)>,
    /// The facets of the state that Flux will not try again; see [`super::gave_up::facets`].
    pub gave_up: BTreeMap<Facet, String>,
    /// Its own word covers what it made: all of it was healthy when it was applied.
    pub covers: bool,
    /// It applies to another cluster, where this one's workloads are not.
    pub elsewhere: bool,
}

/// Names a Helm release on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ReleaseName {
    fn size(&self) -> usize {
        80 + self.namespace.len() + self.name.len()
    }
}

/// The objects that a Kustomization or HelmRelease owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Those that the inventory in its status names.
    Inventory(BTreeSet<ObjectKey>),
    /// Those that Helm annotated with this release, in the release's namespace: a HelmRelease of a
    /// helm-controller before 1.5 has no inventory.
    Release(ReleaseName),
}

impl Owned {
    /// The objects that the inventory names; none where there is no inventory.
    pub fn inventory(&self) -> impl Iterator<Item = &ObjectKey> {
        match self {
            Owned::Inventory(entries) => Some(entries.iter()),
            Owned::Release(_) => None,
        }
        .into_iter()
        .flatten()
    }
}

impl Fact {
    /// About how much memory it takes together with its key and its places in the index, in bytes.
    pub fn size(&self, key: &ObjectKey) -> usize {
        let owner = |owner: Option<&ObjectKey>| owner.map_or(0, |o| 2 * (o.namespace.len() + o.name.len()));
        let own = match self {
            Fact::Flux(flux) => {
                let facets = flux.facets.iter().chain(&flux.gave_up);
                let facets: usize = facets.map(|(f, v)| 100 + f.to_string().len() + v.len()).sum();
                let inventory: usize =
                    flux.owned.inventory().map(|k| 100 + k.namespace.len() + k.name.len()).sum();
                let joins: usize = flux.joins.iter().map(|name| 30 + name.len()).sum();
                let attempt = flux.attempt.as_ref().map_or(0, |(_, revision)| revision.len());
                let git = flux
                    .git_source
                    .as_ref()
                    .map_or(0, |(namespace, name)| 300 + namespace.len() + name.len());
                let strings = flux.verdict.message.len() + flux.version.len() + attempt + git;
                let owned = match &flux.owned {
                    Owned::Release(release) => release.size(),
                    Owned::Inventory(_) => 0,
                };
                let release = flux.release.as_ref().map_or(0, |release| release.size());
                400 + facets + inventory + joins + strings + owned + release + owner(flux.owner.as_ref())
            }
            Fact::Workload(workload) => {
                let images: usize = workload.images.iter().map(|image| 30 + image.len()).sum();
                let release = workload.release.as_ref().map_or(0, |release| release.size());
                workload.verdict.message.len() + images + release + owner(Some(&workload.owner))
            }
            Fact::Source(repository) => repository.url.len() + repository.branch.len(),
            Fact::Namespace { allowed } => allowed.as_ref().map_or(0, AllowedNamespaces::size),
        };
        600 + 3 * (key.namespace.len() + key.name.len()) + own
    }

    /// The Helm release that it is an object of, by Helm's annotations.
    fn release(&self) -> Option<&ReleaseName> {
        match self {
            Fact::Flux(flux) => flux.release.as_deref(),
            Fact::Workload(workload) => workload.release.as_deref(),
            Fact::Source(_) | Fact::Namespace { .. } => None,
        }
    }

    /// What made it, by its own labels. Labels prove nothing: see [`FluxFact::owns`].
    pub fn owner(&self) -> Option<&ObjectKey> {
        match self {
            Fact::Flux(flux) => flux.owner.as_ref(),
            Fact::Workload(workload) => Some(&workload.owner),
            Fact::Source(_) | Fact::Namespace { .. } => None,
        }
    }
}

impl FluxFact {
    /// Whether it owns an object whose labels name it. Anybody who may create a Deployment may write
    /// such labels, so they do not count alone.
    pub fn owns(&self, key: &ObjectKey, object: &Fact) -> bool {
        match &self.owned {
            Owned::Inventory(entries) => entries.contains(key),
            Owned::Release(release) => {
                key.namespace == release.namespace && object.release() == Some(release)
            }
        }
    }

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
    /// The Kustomization or HelmRelease that its labels name.
    pub owner: ObjectKey,
    /// The Helm release that it is an object of, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
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
    /// A kind (in one namespace, or in all) is more than may be kept: why, and what to do.
    TooLarge(Kind, Option<String>, String),
    /// A kind may not be read on the whole cluster, and is asked for namespace by namespace.
    Narrowed(Kind),
    /// The cluster has no such kind.
    Absent(Kind),
    /// An object is there, or has changed.
    Applied(ObjectKey, Fact),
    /// An object is gone.
    Deleted(ObjectKey),
}
