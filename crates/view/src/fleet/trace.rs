//! Where something that runs comes from: from a workload or Flux object to the Flux objects that made it, their sources,
//! and the repository and revision behind those. Beside what is, each link says what its source offers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::fleet::fact::SourceFact;
use sluice_core::fleet::observed_cluster::{MAX_NESTING, ObservedCluster};
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::Health;

use super::object_name;

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
    /// The revision that an artifact was built from, as its maker says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin_revision: String,
    /// Whether Flux has verified a signature; absent if it is not asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Why the way ends here although more is known to be behind it; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missing: String,
}

/// Returns the way from an object on a cluster to where it comes from; `None` if the object is not observed. After each
/// Flux object come its sources, and then the Flux object that made it.
pub fn trace(cluster: &ObservedCluster, key: &ObjectKey) -> Option<Vec<TraceLink>> {
    let mut links = Vec::new();
    let (mut at, mut before) = (key.clone(), String::new());
    // A hostile cluster may have owners in a circle.
    for _ in 0..MAX_NESTING {
        let fact = cluster.object(&at)?;
        let mut link = link(&at, fact);
        link.of = before;
        before = link.object.clone();
        let sources = match fact {
            Fact::Flux(flux) => {
                link.wanted = wanted(cluster, flux);
                sources(cluster, flux, &link.object)
            }
            Fact::Source(source) => sources_of_source(cluster, source, &link.object),
            Fact::Workload(_) | Fact::Namespace { .. } => Vec::new(),
        };
        links.push(link);
        links.extend(sources);
        match cluster.owner_of(&at) {
            Some((owner, _)) => at = owner.clone(),
            None => break,
        }
    }
    Some(links)
}

fn link(key: &ObjectKey, fact: &Fact) -> TraceLink {
    let link =
        TraceLink { object: object_name(key), namespace: key.namespace.clone(), ..TraceLink::default() };
    match fact {
        Fact::Workload(workload) => TraceLink {
            health: workload.status.health,
            message: workload.status.message.clone(),
            images: workload.images.clone(),
            ..link
        },
        Fact::Flux(flux) => TraceLink {
            health: flux.status.health,
            message: flux.status.message.clone(),
            revision: revision(flux),
            content: flux.content.clone(),
            ..link
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
                ..link
            }
        }
        Fact::Namespace { .. } => link,
    }
}

/// Returns what a Flux object has applied, in full.
fn revision(flux: &FluxFact) -> String {
    let source = flux.facets.get(&sluice_core::Facet::Source);
    source.cloned().unwrap_or_else(|| flux.version.clone())
}

/// Returns what the source of a Flux object offers, if the object has not applied it.
fn wanted(cluster: &ObservedCluster, flux: &FluxFact) -> String {
    let offered = flux.chart.as_ref().or(flux.source.as_ref()).and_then(|source| cluster.object(source));
    let Some(Fact::Source(source)) = offered else { return String::new() };
    let applied = revision(flux);
    let is_chart = flux.facets.contains_key(&sluice_core::Facet::Chart);
    // A chart has a version. An OCI artifact has the version as its tag, and a digest.
    let offered = match is_chart {
        true => source.revision.split(['@', '+']).next().unwrap_or_default(),
        false => &source.revision,
    };
    if offered == applied { String::new() } else { offered.into() }
}

/// Returns the links of the sources of a Flux object, the nearest first.
fn sources(cluster: &ObservedCluster, flux: &FluxFact, of: &str) -> Vec<TraceLink> {
    let Some(nearest) =
        flux.chart.as_ref().filter(|chart| cluster.object(chart).is_some()).or(flux.source.as_ref())
    else {
        return Vec::new();
    };
    source_links(cluster, nearest, of)
}

fn sources_of_source(cluster: &ObservedCluster, source: &SourceFact, of: &str) -> Vec<TraceLink> {
    match &source.made_from {
        Some((from, _)) => source_links(cluster, from, of),
        None => Vec::new(),
    }
}

fn source_links(cluster: &ObservedCluster, nearest: &ObjectKey, of: &str) -> Vec<TraceLink> {
    let (mut at, mut of) = (nearest.clone(), of.to_string());
    let mut links = Vec::new();
    for _ in 0..MAX_NESTING {
        let fact = cluster.object(&at);
        let mut found = match fact {
            Some(fact) => link(&at, fact),
            None => TraceLink {
                object: object_name(&at),
                namespace: at.namespace.clone(),
                missing: missing(cluster, at.kind, &at.namespace),
                ..TraceLink::default()
            },
        };
        found.of = std::mem::replace(&mut of, found.object.clone());
        links.push(found);
        match fact {
            Some(Fact::Source(source)) => match &source.made_from {
                Some((from, _)) => at = from.clone(),
                None => break,
            },
            _ => break,
        }
    }
    links
}

/// Says why an object that another one names is not observed.
fn missing(cluster: &ObservedCluster, kind: Kind, namespace: &str) -> String {
    use sluice_core::fleet::observed_cluster::KindState;
    match cluster.kind_state(kind, namespace) {
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
