//! The facts that Sluice keeps of an observed object: the parts that can change a decision or a status. An event
//! with the same facts changes nothing.

mod flux_status;
pub mod git_repository;
pub mod helm_release;
pub mod kustomization;
pub mod metadata;
pub mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sluice_api::ALLOWED_NAMESPACES;
use sluice_core::Time;
use sluice_core::observed::Health;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;

/// A cluster whose objects are observed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKey {
    /// The hub, which stores the Pipelines.
    Local,
    /// A cluster that a GitopsCluster names.
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
    /// Flux's Kustomization, not the file of the tool kustomize.
    Kustomization,
    /// Flux's HelmRelease.
    HelmRelease,
    /// Flux's source in git.
    GitRepository,
    /// Of a Namespace, Sluice reads only the existence and an annotation.
    Namespace,
    /// In the group `apps`.
    Deployment,
    /// In the group `apps`.
    StatefulSet,
    /// In the group `apps`.
    DaemonSet,
    /// In the group `batch`.
    CronJob,
}

impl Kind {
    /// All kinds.
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

    /// The kinds whose pods run images.
    pub const WITH_IMAGES: [Kind; 4] = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet, Kind::CronJob];

    /// Returns the name of the kind in Kubernetes.
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

    /// Returns the API group and the plural name, as a role names them.
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

    /// Returns the kind of this API group and name if its health counts for its owner. These kinds are the
    /// workloads, and the Flux objects, which may own workloads themselves.
    pub fn of_group(group: &str, name: &str) -> Option<Kind> {
        use Kind::*;
        let kinds = [Deployment, StatefulSet, DaemonSet, CronJob, HelmRelease, Kustomization];
        kinds.into_iter().find(|k| k.name() == name && k.resource().0 == group)
    }
}

/// The identity of an object on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for a Namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The facts of an observed object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Kustomization or HelmRelease.
    Flux(Box<FluxFact>),
    /// A Deployment, StatefulSet, DaemonSet or CronJob that Flux made.
    Workload(WorkloadFact),
    /// A source in git.
    Source(Repository),
    /// A namespace.
    Namespace {
        /// The namespaces whose Pipelines may have targets here. `None` if the annotation is absent.
        allowed: Option<AllowedNamespaces>,
    },
}

/// The namespaces in the annotation [`ALLOWED_NAMESPACES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedNamespaces(String);

impl AllowedNamespaces {
    /// Reads the annotations of an object. `None` if the annotation is absent.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        annotations.get(ALLOWED_NAMESPACES).cloned().map(Self)
    }

    /// Whether the annotation contains a namespace, or `*` for all.
    pub fn admits(&self, namespace: &str) -> bool {
        self.0.split(',').map(str::trim).any(|name| name == "*" || name == namespace)
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthStatus {
    /// The health.
    pub health: Health,
    /// Why the object is not Ready; empty if it is.
    pub message: String,
    /// When the condition behind the health last changed, in RFC 3339.
    pub since: Option<Time>,
}

/// The facts of a Kustomization or HelmRelease.
#[derive(Clone, Debug, PartialEq)]
pub struct FluxFact {
    /// The pipelines that its labels name.
    pub pipelines: Vec<String>,
    /// The Kustomization or HelmRelease that its labels name as owner.
    pub owner: Option<ObjectKey>,
    /// Of a Kustomization, the generation and the source's revision that Flux last tried to apply.
    pub attempt: Option<(i64, String)>,
    /// The status reports nothing but a reconciliation in progress.
    pub is_reconciling: bool,
    /// The health that the object itself reports.
    pub status: HealthStatus,
    /// The version to show to users.
    pub version: String,
    /// The valid facets, without those of images.
    pub facets: BTreeMap<Facet, String>,
    /// The facet that identifies its revision if the pipeline tracks none.
    pub default_facet: DefaultFacet,
    /// The namespace and name of its GitRepository.
    pub git_source: Option<(String, String)>,
    /// The workloads and Flux objects that it owns.
    pub owned: Owned,
    /// The Helm release that contains it, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
    /// The facets with an invalid value, each with the reason.
    pub invalid: Vec<(Facet, String)>,
    /// The facets of the state that Flux will not try again; see [`super::gave_up::facets`].
    pub gave_up: BTreeMap<Facet, String>,
    /// Its health includes the owned objects: Flux waited until all of them were healthy.
    pub covers_owned: bool,
    /// It applies to another cluster, so its workloads are not on this one.
    pub on_another_cluster: bool,
}

/// The identity of a Helm release on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseName {
    /// The namespace.
    pub namespace: String,
    /// The name.
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
    /// The objects in the inventory of its status.
    Inventory(BTreeSet<ObjectKey>),
    /// The objects that Helm annotated with this release, in the release's namespace. A HelmRelease of a
    /// helm-controller before 1.5 has no inventory.
    Release(ReleaseName),
}

impl Owned {
    /// Returns the objects in the inventory; none if there is no inventory.
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
    /// Returns the approximate memory of the fact, its key and its entries in the index, in bytes.
    pub fn size(&self, key: &ObjectKey) -> usize {
        let owner = |owner: Option<&ObjectKey>| owner.map_or(0, |o| 2 * (o.namespace.len() + o.name.len()));
        let content = match self {
            Fact::Flux(flux) => {
                let facets = flux.facets.iter().chain(&flux.gave_up);
                let facets: usize = facets.map(|(f, v)| 100 + f.to_string().len() + v.len()).sum();
                let inventory: usize =
                    flux.owned.inventory().map(|k| 100 + k.namespace.len() + k.name.len()).sum();
                let pipelines: usize = flux.pipelines.iter().map(|name| 30 + name.len()).sum();
                let attempt = flux.attempt.as_ref().map_or(0, |(_, revision)| revision.len());
                let git = flux
                    .git_source
                    .as_ref()
                    .map_or(0, |(namespace, name)| 300 + namespace.len() + name.len());
                let strings = flux.status.message.len() + flux.version.len() + attempt + git;
                let owned = match &flux.owned {
                    Owned::Release(release) => release.size(),
                    Owned::Inventory(_) => 0,
                };
                let release = flux.release.as_ref().map_or(0, |release| release.size());
                400 + facets + inventory + pipelines + strings + owned + release + owner(flux.owner.as_ref())
            }
            Fact::Workload(workload) => {
                let images: usize = workload.images.iter().map(|image| 30 + image.len()).sum();
                let release = workload.release.as_ref().map_or(0, |release| release.size());
                workload.status.message.len() + images + release + owner(Some(&workload.owner))
            }
            Fact::Source(repository) => repository.url.len() + repository.branch.len(),
            Fact::Namespace { allowed } => allowed.as_ref().map_or(0, AllowedNamespaces::size),
        };
        600 + 3 * (key.namespace.len() + key.name.len()) + content
    }

    /// Returns the Helm release that contains the object, by Helm's annotations.
    fn release(&self) -> Option<&ReleaseName> {
        match self {
            Fact::Flux(flux) => flux.release.as_deref(),
            Fact::Workload(workload) => workload.release.as_deref(),
            Fact::Source(_) | Fact::Namespace { .. } => None,
        }
    }

    /// Returns the owner that the object's labels name. Labels alone prove nothing; see [`FluxFact::owns`].
    pub fn owner(&self) -> Option<&ObjectKey> {
        match self {
            Fact::Flux(flux) => flux.owner.as_ref(),
            Fact::Workload(workload) => Some(&workload.owner),
            Fact::Source(_) | Fact::Namespace { .. } => None,
        }
    }
}

impl FluxFact {
    /// Whether it owns an object whose labels name it as owner. Labels alone do not count, because each user who
    /// may create a Deployment may write such labels.
    pub fn owns(&self, key: &ObjectKey, object: &Fact) -> bool {
        match &self.owned {
            Owned::Inventory(entries) => entries.contains(key),
            Owned::Release(release) => {
                key.namespace == release.namespace && object.release() == Some(release)
            }
        }
    }

    /// Returns this fact, with the former status if Flux only repeats an attempt. Flux reconciles a Kustomization
    /// periodically, and each time reports for a moment that it is reconciling. While Flux repeats the same
    /// attempt, a failed object has not recovered, and a Ready object is still Ready.
    pub fn with_former_status(self, former: Option<&Fact>) -> Self {
        match former {
            Some(Fact::Flux(former))
                if self.is_reconciling
                    && self.attempt.is_some()
                    && self.attempt == former.attempt
                    && self.facets == former.facets
                    && matches!(former.status.health, Health::Ready | Health::Failed) =>
            {
                Self { status: former.status.clone(), is_reconciling: former.is_reconciling, ..self }
            }
            _ => self,
        }
    }
}

/// The facts of a Deployment, StatefulSet, DaemonSet or CronJob.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFact {
    /// The Kustomization or HelmRelease that its labels name as owner.
    pub owner: ObjectKey,
    /// The Helm release that contains it, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
    /// The health.
    pub status: HealthStatus,
    /// The images of all containers.
    pub images: Vec<String>,
}

/// An event of a cluster. The optional text of an event about a kind is a namespace; `None` means all namespaces.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The cluster answers. All earlier state is outdated, and lists of all kinds follow.
    Connected,
    /// The cluster cannot be used; the text says why and what to do.
    Lost(String),
    /// All objects of a kind.
    Listed(Kind, Option<String>, Vec<(ObjectKey, Fact)>),
    /// A kind cannot be read; the last text says why and what to do.
    Unreadable(Kind, Option<String>, String),
    /// A kind exceeds a limit, and Sluice keeps none of its objects; the last text says why and what to do.
    TooLarge(Kind, Option<String>, String),
    /// The user may not read a kind on the whole cluster, so Sluice reads it in each namespace with targets.
    ByNamespace(Kind),
    /// The cluster does not serve a kind.
    Absent(Kind),
    /// An object exists, or has changed.
    Applied(ObjectKey, Fact),
    /// An object was deleted.
    Deleted(ObjectKey),
}
