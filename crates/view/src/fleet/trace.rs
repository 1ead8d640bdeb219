//! Where something that runs comes from: from a workload or Flux object to the Flux objects that made it, their sources,
//! and the repository and revision behind those. Beside what a Flux object runs, its link says what it should run.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Facet;
use sluice_core::chart_version::{differs_from_exact, without_build_metadata};
use sluice_core::fleet::fact::SourceFact;
use sluice_core::fleet::observed_cluster::{KindState, MAX_NESTING, ObservedCluster};
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::Health;

use super::object_name;
use super::versions::is_false;

/// The way from an object to where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The object, then the Flux objects and sources behind it.
    pub links: Vec<TraceLink>,
}

/// One object on the way from what runs to where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceLink {
    /// The object, as `Kind/name`.
    pub object: String,
    /// Its namespace.
    pub namespace: String,
    /// The object before this one that it made, or that it is the source of; empty for the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Its health.
    pub health: Health,
    /// Why it is not healthy; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What it runs, has applied or has fetched.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// What a Flux object should run: the chart version or range of a HelmRelease's spec, else the revision of its source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub desired: String,
    /// Whether it runs something else than it should, or than its source offers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub differs: bool,
    /// What its source offers; empty if it has exactly that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted: String,
    /// The images of a workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// The path or the chart that it takes from its source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The address of a source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// What a source follows, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub follows: String,
    /// The repository that an artifact was built from, as its maker says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// The revision that an artifact was built from, as its maker says: the artifact of a source, or the one that a Kustomization
    /// has applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin_revision: String,
    /// Whether Flux has verified a signature; absent if it is not asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Why the way ends here although more is known to be behind it; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missing: String,
}

impl TraceLink {
    /// Whether its source offers something else than it should run: a newer version in a range.
    pub fn has_another_offer(&self) -> bool {
        !self.wanted.is_empty() && self.wanted != self.desired
    }

    /// Adds what the object's source offers.
    fn add(&mut self, offer: Offer) {
        if self.desired.is_empty() {
            self.desired = offer.revision.clone();
        }
        if !offer.is_applied {
            (self.wanted, self.differs) = (offer.revision, true);
        }
    }
}

/// One object on the way, before it is known what the caller may see.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// The object.
    pub key: ObjectKey,
    /// The object that names this one; `None` for the first.
    named_by: Option<ObjectKey>,
    offer: Option<Offer>,
    link: TraceLink,
}

/// What a source offers to a Flux object.
#[derive(Clone, Debug)]
struct Offer {
    source: ObjectKey,
    revision: String,
    /// Whether the object has applied it.
    is_applied: bool,
}

impl TraceStep {
    fn new(key: &ObjectKey, named_by: Option<&ObjectKey>, link: TraceLink) -> Self {
        let of = named_by.map(object_name).unwrap_or_default();
        let link = TraceLink { object: object_name(key), namespace: key.namespace.clone(), of, ..link };
        TraceStep { key: key.clone(), named_by: named_by.cloned(), offer: None, link }
    }

    /// An object that another one names, where the way ends.
    fn end(key: &ObjectKey, named_by: &ObjectKey, missing: String) -> Self {
        TraceStep::new(key, Some(named_by), TraceLink { missing, ..TraceLink::default() })
    }
}

/// Returns the way from an object on a cluster to where it comes from; `None` if the object is not observed. After each
/// Flux object come its sources, and then the Flux object that made it.
pub fn trace(cluster: &ObservedCluster, key: &ObjectKey) -> Option<Vec<TraceStep>> {
    let mut steps: Vec<TraceStep> = Vec::new();
    let (mut at, mut before): (ObjectKey, Option<ObjectKey>) = (key.clone(), None);
    // A hostile cluster may have owners in a circle.
    for _ in 0..MAX_NESTING {
        let fact = cluster.object(&at)?;
        let mut step = TraceStep::new(&at, before.as_ref(), link(fact));
        let sources = match fact {
            Fact::Flux(flux) => {
                step.offer = offer(cluster, flux);
                flux_sources(cluster, flux, &at)
            }
            Fact::Source(source) => {
                made_from(source).map(|from| source_steps(cluster, from, &at)).unwrap_or_default()
            }
            Fact::Workload(_) | Fact::Trigger(_) | Fact::Namespace { .. } => Vec::new(),
        };
        steps.push(step);
        steps.extend(sources);
        match (cluster.owner_of(&at), fact.owner()) {
            (Some((owner, _)), _) => before = Some(std::mem::replace(&mut at, owner.clone())),
            (None, Some(labelled)) => {
                steps.push(TraceStep::end(labelled, &at, unproven_owner(cluster, labelled)));
                break;
            }
            (None, None) => break,
        }
    }
    Some(steps)
}

/// Returns the links that a caller may see. `may_get` returns true for the objects that the caller may get. Of another object,
/// the caller sees the name, if an object that the caller may get has that name in it. The caller sees no object after it.
pub fn visible(steps: Vec<TraceStep>, may_get: impl Fn(&ObjectKey) -> bool) -> Vec<TraceLink> {
    let mut shown: HashSet<ObjectKey> = HashSet::new();
    let mut links = Vec::new();
    for TraceStep { key, named_by, offer, mut link } in steps {
        if named_by.is_some_and(|by| !shown.contains(&by)) {
            continue;
        }
        if may_get(&key) {
            if let Some(offer) = offer.filter(|offer| may_get(&offer.source)) {
                link.add(offer);
            }
            shown.insert(key);
        } else {
            let missing = format!("you may not get {} in namespace {}", key.kind.resource().1, key.namespace);
            let TraceLink { object, namespace, of, .. } = link;
            link = TraceLink { object, namespace, of, missing, ..TraceLink::default() };
        }
        links.push(link);
    }
    links
}

fn link(fact: &Fact) -> TraceLink {
    match fact {
        Fact::Workload(workload) => TraceLink {
            health: workload.status.health,
            message: workload.status.message.clone(),
            images: workload.images.clone(),
            ..TraceLink::default()
        },
        Fact::Flux(flux) => TraceLink {
            health: flux.status.health,
            message: flux.status.message.clone(),
            revision: revision(flux),
            desired: flux.desired_chart.as_deref().unwrap_or_default().into(),
            differs: flux
                .desired_chart
                .as_deref()
                .is_some_and(|chart| differs_from_exact(chart, &revision(flux))),
            content: flux.content.clone(),
            origin_revision: flux.origin_revision.as_deref().unwrap_or_default().into(),
            ..TraceLink::default()
        },
        Fact::Source(source) => {
            let origin = source.origin.as_deref().cloned().unwrap_or_default();
            TraceLink {
                health: source.status.health,
                message: source.status.message.clone(),
                revision: source.revision.clone(),
                content: source.made_from.as_ref().map(|(_, content)| content.clone()).unwrap_or_default(),
                address: source.repository.url.clone(),
                follows: source.follows.clone(),
                origin: origin.repository,
                origin_revision: origin.revision,
                verified: source.verified,
                ..TraceLink::default()
            }
        }
        Fact::Trigger(_) | Fact::Namespace { .. } => TraceLink::default(),
    }
}

/// Returns what a Flux object has applied, in full.
fn revision(flux: &FluxFact) -> String {
    let source = flux.facets.get(&Facet::Source);
    source.cloned().unwrap_or_else(|| flux.version.clone())
}

/// Returns what the source of a Flux object offers; `None` if it offers nothing. The revision of a HelmRepository is that
/// of its index, and no version of a chart.
fn offer(cluster: &ObservedCluster, flux: &FluxFact) -> Option<Offer> {
    let key = nearest_source(cluster, flux).filter(|key| key.kind != Kind::HelmRepository)?;
    let Some(Fact::Source(source)) = cluster.object(key) else { return None };
    let revision = Some(source.revision.clone()).filter(|revision| !revision.is_empty())?;
    Some(Offer { source: key.clone(), is_applied: has_applied(flux, &revision), revision })
}

/// Whether a Flux object has applied what its source offers.
fn has_applied(flux: &FluxFact, offered: &str) -> bool {
    if !flux.facets.contains_key(&Facet::Chart) {
        return offered == revision(flux);
    }
    // A chart from an OCI artifact has the artifact's digest, and its version is the artifact's tag. Flux appends the
    // revision of a repository to the version of a chart from there, after `+`.
    match (offered.split_once('@'), flux.facets.get(&Facet::Digest)) {
        (Some((_, offered)), Some(applied)) => offered == applied,
        (offered_parts, _) => {
            let tag = offered_parts.map_or(offered, |(tag, _)| tag);
            without_build_metadata(tag) == without_build_metadata(&revision(flux))
        }
    }
}

/// Returns the source that a Flux object takes its manifests or chart from.
fn nearest_source<'a>(cluster: &ObservedCluster, flux: &'a FluxFact) -> Option<&'a ObjectKey> {
    flux.chart.as_ref().filter(|chart| cluster.object(chart).is_some()).or(flux.source.as_ref())
}

/// Returns the sources of a Flux object, the nearest first.
fn flux_sources(cluster: &ObservedCluster, flux: &FluxFact, key: &ObjectKey) -> Vec<TraceStep> {
    nearest_source(cluster, flux).map(|nearest| source_steps(cluster, nearest, key)).unwrap_or_default()
}

fn source_steps(cluster: &ObservedCluster, nearest: &ObjectKey, named_by: &ObjectKey) -> Vec<TraceStep> {
    let (mut at, mut named_by) = (nearest.clone(), named_by.clone());
    let mut steps = Vec::new();
    for _ in 0..MAX_NESTING {
        let Some(fact) = cluster.object(&at) else {
            steps.push(TraceStep::end(&at, &named_by, not_observed(cluster, &at)));
            break;
        };
        steps.push(TraceStep::new(&at, Some(&named_by), link(fact)));
        let Fact::Source(source) = fact else { break };
        let Some(from) = made_from(source) else { break };
        named_by = std::mem::replace(&mut at, from.clone());
    }
    steps
}

/// Returns the source that a source is made from.
fn made_from(source: &SourceFact) -> Option<&ObjectKey> {
    source.made_from.as_ref().map(|(from, _)| from)
}

/// Says why the way ends at an owner that only the labels of an object name.
fn unproven_owner(cluster: &ObservedCluster, labelled: &ObjectKey) -> String {
    match cluster.object(labelled) {
        Some(_) => "labels name it, but its inventory does not have the object".into(),
        None => not_observed(cluster, labelled),
    }
}

/// Says why an object is not observed.
pub fn not_observed(cluster: &ObservedCluster, key: &ObjectKey) -> String {
    let kind = key.kind;
    match cluster.kind_state(kind, &key.namespace) {
        Some(KindState::Listed) => "there is no such object".into(),
        Some(KindState::Absent) => format!("the cluster does not have the kind {}", kind.name()),
        Some(KindState::Unreadable(why)) => why.clone(),
        Some(KindState::ByNamespace) | None => {
            format!(
                "Sluice may not list {} there, or observes targets only: apply deploy/reader on the cluster, and see \
                 --observe",
                kind.resource().1
            )
        }
    }
}
