//! The facts that Sluice keeps of an observed object: the parts that can change a decision, a status or a view. An event
//! with the same facts changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::Inventory;
use super::object_key::ObjectKey;
use super::owned_check::{OwnedCheck, SpecVersion};
use super::trigger_fact::TriggerFact;
use super::watched_kind::Kind;
use crate::observed::Health;
use crate::repository::Repository;
use crate::revision::Facet;
use crate::time::Time;
use crate::tracks::DefaultFacet;

/// The facts of an observed object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Kustomization or HelmRelease.
    Flux(Box<FluxFact>),
    /// A Deployment, StatefulSet, DaemonSet or CronJob.
    Workload(WorkloadFact),
    /// A source of manifests or charts.
    Source(Box<SourceFact>),
    /// Something on the hub that starts pipelines.
    Trigger(Box<TriggerFact>),
    /// A namespace.
    Namespace {
        /// The namespaces whose Pipelines may have targets here. `None` if the annotation is absent.
        allowed: Option<AllowedNamespaces>,
    },
}

/// The namespaces in the annotation `pipelines.weave.works/allowed-namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedNamespaces(String);

impl AllowedNamespaces {
    /// Reads the value of the annotation.
    pub fn new(annotation: &str) -> Self {
        Self(annotation.into())
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The version of its spec.
    pub spec_version: SpecVersion,
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
    /// The source of its manifests or its chart.
    pub source: Option<ObjectKey>,
    /// Of a HelmRelease, the HelmChart that Flux made for it.
    pub chart: Option<ObjectKey>,
    /// The path of its manifests in the source, or the name of its chart; empty if its source is the chart.
    pub content: String,
    /// Of a HelmRelease, the version or range of versions in its spec; `None` if its source says which version it runs.
    pub desired_chart: Option<Box<str>>,
    /// Of a Kustomization, the revision that the applied artifact was built from, as its maker says. Of an OCI artifact, it is a
    /// commit.
    pub origin_revision: Option<Box<str>>,
    /// The workloads and Flux objects that it owns.
    pub owned: Owned,
    /// The Helm release that contains it, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
    /// The facets with an invalid value, each with the reason.
    pub invalid: Vec<(Facet, String)>,
    /// The facets of the state that Flux will not try again.
    pub gave_up: BTreeMap<Facet, String>,
    /// Its health includes the owned objects: Flux waited until all of them were healthy.
    pub covers_owned: bool,
    /// It applies to another cluster, so its workloads are not on this one.
    pub on_another_cluster: bool,
    /// The check of what it owns, while it is Ready and the watches may not have reported every change that it made.
    /// The index sets it.
    pub owned_check: Option<Box<OwnedCheck>>,
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
    Inventory(Inventory),
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

    /// Whether an object is one of them. `release` is the Helm release that contains it, by Helm's annotations.
    pub fn contains(&self, key: &ObjectKey, release: Option<&ReleaseName>) -> bool {
        match self {
            Owned::Inventory(entries) => entries.contains(key),
            Owned::Release(own) => key.namespace == own.namespace && release == Some(own),
        }
    }

    /// Returns the kinds and namespaces that they are in.
    pub fn scopes(&self) -> BTreeSet<(Kind, String)> {
        match self {
            Owned::Inventory(entries) => {
                entries.iter().map(|key| (key.kind, key.namespace.clone())).collect()
            }
            Owned::Release(release) => {
                Kind::OWNED.into_iter().map(|kind| (kind, release.namespace.clone())).collect()
            }
        }
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
                let sources = flux.source.iter().chain(&flux.chart);
                let source: usize = sources.map(|key| 150 + key.namespace.len() + key.name.len()).sum();
                let texts = [&flux.status.message, &flux.version, &flux.content];
                let rare = [&flux.desired_chart, &flux.origin_revision];
                let rare: usize = rare.into_iter().flatten().map(|text| text.len()).sum();
                let strings = texts.map(String::len).iter().sum::<usize>() + attempt + source + rare;
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
                workload.status.message.len() + images + release + owner(workload.owner.as_ref())
            }
            Fact::Source(source) => 200 + source.size(),
            Fact::Trigger(trigger) => 200 + trigger.size(),
            Fact::Namespace { allowed } => allowed.as_ref().map_or(0, AllowedNamespaces::size),
        };
        let part = self
            .release_here(key)
            .map_or(0, |release| 150 + release.name.len() + key.namespace.len() + key.name.len());
        600 + 3 * (key.namespace.len() + key.name.len()) + content + part
    }

    /// Returns the version of the object's spec; `None` of a kind that no Flux object's health depends on.
    pub fn spec_version(&self) -> Option<SpecVersion> {
        match self {
            Fact::Flux(flux) => Some(flux.spec_version),
            Fact::Workload(workload) => Some(workload.spec_version),
            Fact::Source(_) | Fact::Trigger(_) | Fact::Namespace { .. } => None,
        }
    }

    /// Returns the Helm release that contains the object, by Helm's annotations.
    fn release(&self) -> Option<&ReleaseName> {
        match self {
            Fact::Flux(flux) => flux.release.as_deref(),
            Fact::Workload(workload) => workload.release.as_deref(),
            Fact::Source(_) | Fact::Trigger(_) | Fact::Namespace { .. } => None,
        }
    }

    /// Returns the Helm release that contains the object, if a HelmRelease in the object's own namespace may have made it.
    /// Helm keeps a release in the namespace of its objects.
    pub(super) fn release_here(&self, key: &ObjectKey) -> Option<&ReleaseName> {
        self.owner().filter(|owner| owner.kind == Kind::HelmRelease)?;
        self.release().filter(|release| release.namespace == key.namespace)
    }

    /// Whether it is a workload whose images differ from those in its former fact.
    pub(super) fn has_new_images(&self, former: &Fact) -> bool {
        matches!((self, former), (Fact::Workload(new), Fact::Workload(former)) if new.images != former.images)
    }

    /// Returns the GitRepository that a Flux object refers to.
    pub(super) fn git_source(&self) -> Option<&ObjectKey> {
        match self {
            Fact::Flux(flux) => flux.git_source(),
            _ => None,
        }
    }

    /// Whether only views show the object: no decision follows from a workload that Flux did not make.
    pub fn is_only_shown(&self) -> bool {
        matches!(self, Fact::Workload(workload) if workload.owner.is_none())
    }

    /// Returns the owner that the object's labels name. Labels alone prove nothing; see [`FluxFact::owns`].
    pub fn owner(&self) -> Option<&ObjectKey> {
        match self {
            Fact::Flux(flux) => flux.owner.as_ref(),
            Fact::Workload(workload) => workload.owner.as_ref(),
            Fact::Source(_) | Fact::Trigger(_) | Fact::Namespace { .. } => None,
        }
    }
}

impl FluxFact {
    /// Returns the GitRepository that its manifests or its chart come from.
    pub fn git_source(&self) -> Option<&ObjectKey> {
        self.source.as_ref().filter(|source| source.kind == Kind::GitRepository)
    }

    /// Whether it owns an object whose labels name it as owner. Labels alone do not count, because each user who
    /// may create a Deployment may write such labels.
    pub fn owns(&self, key: &ObjectKey, object: &Fact) -> bool {
        self.owned.contains(key, object.release())
    }

    /// Whether it is Ready, as before, and neither its spec nor what Flux applied has changed.
    pub(super) fn is_same_state(&self, former: &FluxFact) -> bool {
        let state = |flux: &FluxFact| (flux.status.health == Health::Ready).then_some(flux.spec_version);
        state(self).is_some() && state(self) == state(former) && self.facets == former.facets
    }

    /// Whether its health may depend on changes that it made and that no watch has reported yet.
    pub(super) fn needs_check(&self) -> bool {
        let owns_nothing = matches!(&self.owned, Owned::Inventory(entries) if entries.is_empty());
        self.status.health == Health::Ready && !self.on_another_cluster && !owns_nothing
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

/// The facts of a source of manifests or charts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFact {
    /// The address and, of a GitRepository, the branch; empty if Flux follows no branch.
    pub repository: Repository,
    /// What Flux follows, in words: `branch main`, `tag v1`, `range >=1.0`.
    pub follows: String,
    /// The source that it is made from, and the path or chart in it. Only a HelmChart and an ExternalArtifact have one.
    pub made_from: Option<(ObjectKey, String)>,
    /// The health.
    pub status: HealthStatus,
    /// The revision that was fetched last; empty if there was none.
    pub revision: String,
    /// When that was fetched.
    pub fetched: Option<Time>,
    /// What an OCI artifact, or the source of a chart, says about where it comes from.
    pub origin: Option<Box<Origin>>,
    /// Whether Flux has verified a signature; `None` if it is not asked to.
    pub verified: Option<bool>,
}

/// Where an artifact was built from, as its maker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The address of the repository; empty if unknown.
    pub repository: String,
    /// The revision; empty if unknown.
    pub revision: String,
}

impl SourceFact {
    fn size(&self) -> usize {
        let origin = self.origin.as_ref().map_or(0, |o| 48 + o.repository.len() + o.revision.len());
        let made_from = self
            .made_from
            .as_ref()
            .map_or(0, |(key, path)| key.namespace.len() + key.name.len() + path.len());
        let texts = [&self.repository.url, &self.repository.branch, &self.follows, &self.revision];
        texts.map(String::len).iter().sum::<usize>() + self.status.message.len() + origin + made_from
    }
}

/// The facts of a Deployment, StatefulSet, DaemonSet or CronJob.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFact {
    /// The version of its spec.
    pub spec_version: SpecVersion,
    /// The Kustomization or HelmRelease that its labels name as owner; `None` if Flux did not make it.
    pub owner: Option<ObjectKey>,
    /// The Helm release that contains it, by Helm's annotations.
    pub release: Option<Box<ReleaseName>>,
    /// The health.
    pub status: HealthStatus,
    /// The images of all containers.
    pub images: Vec<String>,
}
