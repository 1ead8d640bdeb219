//! The objects of Flux as the controller observes them: those that have something to do with one pipeline.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_api::Pipeline;
use sluice_core::fleet::fact::HealthStatus;
use sluice_core::fleet::observed_cluster::{KindState, ObservedCluster};
use sluice_core::fleet::trigger_fact::TriggerFact;
use sluice_core::fleet::{ClusterKey, Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::Health;

use super::first_targets::{first_environments, targets};
use super::objects::{AppliedObject, SourceObject, TriggerObject, TriggerObjects};
use super::way::{hook_of, reconciles_any, way, writes_to};

/// The most automations, Receivers and Alerts of one pipeline that are shown, each. Users of other namespaces may create any
/// number of them that name its sources.
const MAX_OF_KIND: usize = 50;

/// The objects that have something to do with a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Related {
    /// The objects.
    pub objects: TriggerObjects,
    /// The kinds of which there are too many.
    pub cut: Vec<Kind>,
}

impl Related {
    /// Returns which objects are left out, in sentences.
    pub fn cut_sentences(&self) -> impl Iterator<Item = String> {
        self.cut.iter().map(|kind| {
            let name = kind.resource().1;
            format!("more than {MAX_OF_KIND} {name} start it: only {MAX_OF_KIND} are shown")
        })
    }
}

/// The objects on a cluster that a reader may see.
struct Shown<'a, F> {
    cluster: &'a ObservedCluster,
    shows: F,
    /// The most objects of a kind that are chosen.
    most: usize,
}

impl<F: Fn(&ObjectKey) -> bool> Shown<'_, F> {
    fn object(&self, key: &ObjectKey) -> Option<TriggerObject> {
        (self.shows)(key).then(|| object(self.cluster, key)).flatten()
    }
}

/// Returns the objects on a cluster that have something to do with a pipeline, of those for which `shows` is true. An
/// object that is only named in another one leads on if both are shown.
pub fn related(
    pipeline: &Pipeline,
    key: &ClusterKey,
    cluster: &ObservedCluster,
    shows: impl Fn(&ObjectKey) -> bool,
) -> Related {
    related_of(pipeline, key, &Shown { cluster, shows, most: MAX_OF_KIND })
}

/// Returns the objects on a cluster that have something to do with a pipeline, all of them: what a caller may see of them
/// must not depend on how many others there are.
pub fn all_related(pipeline: &Pipeline, key: &ClusterKey, cluster: &ObservedCluster) -> BTreeSet<ObjectKey> {
    let asked = RefCell::new(BTreeSet::new());
    let shows = |key: &ObjectKey| {
        asked.borrow_mut().insert(key.clone());
        true
    };
    related_of(pipeline, key, &Shown { cluster, shows, most: usize::MAX });
    asked.into_inner()
}

fn related_of<F: Fn(&ObjectKey) -> bool>(
    pipeline: &Pipeline,
    key: &ClusterKey,
    shown: &Shown<'_, F>,
) -> Related {
    let mut related = Related::default();
    let mut applied = BTreeSet::new();
    let mut sources = BTreeSet::new();
    for target in first_environments(pipeline).flat_map(|environment| targets(pipeline, environment)) {
        if target.cluster != *key || !target.is_watched() {
            continue;
        }
        for member in &target.members {
            let way = way(member, |key| shown.object(key));
            applied.extend(way.applied);
            sources.extend(way.sources);
        }
    }
    if *key == ClusterKey::Local {
        add_hub_objects(pipeline, shown, (&applied, &sources), &mut related);
    }
    for key in applied.into_iter().chain(sources) {
        if let Some(object) = shown.object(&key) {
            related.objects.insert(key, object);
        }
    }
    related
}

/// Adds what changes these objects, and what tells Sluice about the pipeline.
fn add_hub_objects<F: Fn(&ObjectKey) -> bool>(
    pipeline: &Pipeline,
    hub: &Shown<'_, F>,
    (applied, sources): (&BTreeSet<ObjectKey>, &BTreeSet<ObjectKey>),
    related: &mut Related,
) {
    let metadata = &pipeline.metadata;
    let own =
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    let mut receivable: BTreeSet<ObjectKey> = applied.union(sources).cloned().collect();
    for (key, fact) in chosen(hub, Kind::ImageUpdateAutomation, |_, fact| writes_to(fact, sources), related) {
        if let TriggerFact::ImageUpdateAutomation { policies, .. } = &fact {
            for name in policies {
                let policy = ObjectKey { kind: Kind::ImagePolicy, name: name.clone(), ..key.clone() };
                if let Some(object) = hub.object(&policy) {
                    receivable.insert(policy.clone());
                    related.objects.insert(policy, object);
                }
            }
        }
        receivable.insert(key.clone());
        related.objects.insert(key, TriggerObject::Trigger(fact));
    }
    for (key, fact) in chosen(hub, Kind::Receiver, |_, fact| reconciles_any(fact, &receivable), related) {
        related.objects.insert(key, TriggerObject::Trigger(fact));
    }
    let provider_of = |key: &ObjectKey, fact: &TriggerFact| {
        let TriggerFact::Alert { provider, .. } = fact else { return None };
        let provider = ObjectKey { kind: Kind::Provider, name: provider.clone(), ..key.clone() };
        let fact = trigger(hub.cluster, &provider)?;
        (hook_of(fact, own).is_some() && (hub.shows)(&provider)).then(|| (provider, fact.clone()))
    };
    for (key, fact) in chosen(hub, Kind::Alert, |key, fact| provider_of(key, fact).is_some(), related) {
        if let Some((provider, fact)) = provider_of(&key, &fact) {
            related.objects.insert(provider, TriggerObject::Trigger(fact));
        }
        related.objects.insert(key, TriggerObject::Trigger(fact));
    }
}

/// Returns the objects of a kind that fit and are shown: of each namespace the first one before the second of any, so that
/// those of one user do not displace those of others.
fn chosen<F: Fn(&ObjectKey) -> bool>(
    hub: &Shown<'_, F>,
    kind: Kind,
    fits: impl Fn(&ObjectKey, &TriggerFact) -> bool,
    related: &mut Related,
) -> Vec<(ObjectKey, TriggerFact)> {
    let facts = hub.cluster.objects_of(kind).filter_map(|(key, fact)| match fact {
        Fact::Trigger(fact) if fits(key, fact) && (hub.shows)(key) => Some((key, &**fact)),
        _ => None,
    });
    let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, &ObjectKey, &TriggerFact)> = facts
        .map(|(key, fact)| {
            let rank = of_namespace.entry(&key.namespace).or_default();
            *rank += 1;
            (*rank, key, fact)
        })
        .collect();
    if ranked.len() > hub.most {
        related.cut.push(kind);
        ranked.sort_by_key(|(rank, key, _)| (*rank, *key));
        ranked.truncate(hub.most);
    }
    ranked.into_iter().map(|(_, key, fact)| (key.clone(), fact.clone())).collect()
}

/// Returns the kinds of which it is not known whether there are objects that start a pipeline on the hub, each with the
/// reason in a sentence.
pub fn unobserved(hub: &ObservedCluster) -> Vec<(Kind, String)> {
    let unknown = Kind::SHOWN_ON_HUB.into_iter().filter_map(|kind| {
        let why = match hub.kind_state(kind, "") {
            Some(KindState::Listed | KindState::Absent) => return None,
            Some(KindState::Unreadable(why)) => why.as_str(),
            Some(KindState::ByNamespace) => "only those in the namespaces of targets are read",
            None => "they are not read yet",
        };
        Some((kind, format!("{} on the hub: {why}", kind.resource().1)))
    });
    unknown.collect()
}

fn trigger<'a>(cluster: &'a ObservedCluster, key: &ObjectKey) -> Option<&'a TriggerFact> {
    match cluster.object(key)? {
        Fact::Trigger(fact) => Some(fact),
        _ => None,
    }
}

fn object(cluster: &ObservedCluster, key: &ObjectKey) -> Option<TriggerObject> {
    Some(match cluster.object(key)? {
        Fact::Flux(flux) => TriggerObject::Applied(applied(cluster, key, flux)),
        Fact::Source(source) => TriggerObject::Source(SourceObject {
            follows: source.follows.clone(),
            address: source.repository.url.clone(),
            made_from: source.made_from.as_ref().map(|(from, _)| from.clone()),
            fetched: source.fetched,
            problem: problem(&source.status),
        }),
        Fact::Trigger(fact) => TriggerObject::Trigger((**fact).clone()),
        Fact::Workload(_) | Fact::Namespace { .. } => return None,
    })
}

fn applied(cluster: &ObservedCluster, key: &ObjectKey, flux: &FluxFact) -> AppliedObject {
    // A HelmRelease has the version only in its spec, and Flux copies it to the HelmChart.
    let version = flux.chart.as_ref().and_then(|chart| match cluster.object(chart)? {
        Fact::Source(chart) => chart.follows.strip_prefix("version ").map(String::from),
        _ => None,
    });
    let owner = cluster.owner_of(key).map(|(owner, _)| owner.clone());
    AppliedObject {
        source: flux.source.clone(),
        chart: flux.chart.clone(),
        content: flux.content.clone(),
        version,
        owner: owner.filter(|owner| key.kind == Kind::HelmRelease && owner.kind == Kind::Kustomization),
        problem: problem(&flux.status),
    }
}

/// Returns why an object does not work, as [`sluice_api::flux::trigger_facts::problem`] does.
fn problem(status: &HealthStatus) -> String {
    match status.health {
        Health::Suspended => "it is suspended".into(),
        Health::Failed => status.message.clone(),
        Health::Ready | Health::Progressing | Health::Pending | Health::Unknown => String::new(),
    }
}
