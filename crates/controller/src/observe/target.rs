//! What a target shows, put together from the index: its members by reference, by name and by
//! label, each with what it made; or why it cannot be told, in a sentence that says what to do.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{AppRef, Target as TargetSpec};
use sluice_core::revision::Facet;
use sluice_core::world::{Health, Made, Member, Natural, Target};

use super::facts::{ClusterKey, Fact, FluxFact, Kind, ObjectKey};
use super::index::{Cluster, Link, Reading};
use super::trim;

/// The cluster has not answered yet; ask again soon.
#[derive(Debug, PartialEq, Eq)]
pub struct NotYet;

/// What to look for where.
pub struct Question<'a> {
    /// The pipeline's name, the value of the label that joins it.
    pub pipeline: &'a str,
    /// The application, if the pipeline names one.
    pub app: Option<&'a AppRef>,
    /// The target as its owner wrote it.
    pub target: &'a TargetSpec,
    /// Its cluster.
    pub cluster: &'a ClusterKey,
}

/// What the target shows.
///
/// # Errors
/// [`NotYet`] while its cluster is being asked for the first time.
pub fn observe(question: &Question<'_>, cluster: Option<&Cluster>) -> Result<Target, NotYet> {
    let Some(cluster) = cluster else { return Err(NotYet) };
    match cluster.link() {
        Link::Connecting => return Err(NotYet),
        Link::Lost(why) => return Ok(Target::unreadable(why.clone())),
        Link::Up => {}
    }
    Ok(match members(question, cluster)? {
        Ok(members) => Target { error: None, members },
        Err(error) => Target::unreadable(error),
    })
}

fn members(question: &Question<'_>, cluster: &Cluster) -> Result<Result<Vec<Member>, String>, NotYet> {
    let namespace = question.target.namespace.as_str();
    let named = match named(question) {
        Ok(named) => named,
        Err(error) => return Ok(Err(error)),
    };
    let by_label = named.is_empty();
    let kinds: BTreeSet<Kind> = match by_label {
        true => [Kind::Kustomization, Kind::HelmRelease].into(),
        false => named.iter().map(|k| k.kind).collect(),
    };
    let mut absent = 0;
    for kind in &kinds {
        match cluster.reading(*kind, namespace).ok_or(NotYet)? {
            Reading::Listed => {}
            Reading::Absent if by_label && absent == 0 => absent += 1,
            Reading::Absent => return Ok(Err(no_kind(*kind, question.cluster))),
            Reading::Unreadable(why) => return Ok(Err(why.clone())),
        }
    }
    if let Some(error) = missing_namespace(question, cluster) {
        return Ok(Err(error));
    }
    for key in &named {
        if cluster.object(key).is_none() {
            return Ok(Err(format!(
                "there is no {} {} in namespace {namespace} of {}: create it, or correct the name in the Pipeline",
                key.kind.name(),
                key.name,
                question.cluster
            )));
        }
    }
    let labelled = [Kind::Kustomization, Kind::HelmRelease].into_iter().flat_map(|kind| {
        cluster.objects_in(kind, namespace).filter(|(_, fact)| {
            matches!(fact, Fact::Flux(flux) if flux.joins.iter().any(|p| p == question.pipeline))
        })
    });
    let keys: BTreeSet<ObjectKey> = named.into_iter().chain(labelled.map(|(k, _)| k.clone())).collect();
    if keys.is_empty() {
        return Ok(Err(format!(
            "no Kustomization or HelmRelease in namespace {namespace} of {} belongs to this pipeline: give it \
             the label {}: {}, or name it in spec.appRef",
            question.cluster,
            sluice_api::MEMBER_LABELS[0],
            question.pipeline
        )));
    }
    Ok(keys.iter().map(|key| member(key, cluster)).collect())
}

/// The members that the pipeline names.
fn named(question: &Question<'_>) -> Result<Vec<ObjectKey>, String> {
    let namespace = question.target.namespace.clone();
    let mut named = Vec::new();
    if let Some(app) = question.app {
        let group = app.api_version.split('/').next().unwrap_or_default();
        let kind = match (app.kind.as_str(), group) {
            ("HelmRelease", HELM_GROUP) => Kind::HelmRelease,
            ("Kustomization", KUSTOMIZE_GROUP) => Kind::Kustomization,
            _ => {
                return Err(format!(
                    "spec.appRef is {} {}: write kind HelmRelease with apiVersion {HELM_GROUP}/v2, or kind \
                     Kustomization with apiVersion {KUSTOMIZE_GROUP}/v1",
                    app.api_version, app.kind
                ));
            }
        };
        named.push(ObjectKey { kind, namespace: namespace.clone(), name: app.name.clone() });
    }
    for workload in &question.target.workloads {
        let kind = if workload.kind == "HelmRelease" { Kind::HelmRelease } else { Kind::Kustomization };
        named.push(ObjectKey { kind, namespace: namespace.clone(), name: workload.name.clone() });
    }
    Ok(named)
}

fn no_kind(kind: Kind, cluster: &ClusterKey) -> String {
    let (group, _) = kind.resource();
    format!("{cluster} has no kind {} ({group}): install Flux there (flux install)", kind.name())
}

fn missing_namespace(question: &Question<'_>, cluster: &Cluster) -> Option<String> {
    let namespace = &question.target.namespace;
    let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: namespace.clone() };
    let known = cluster.reading(Kind::Namespace, "") == Some(&Reading::Listed);
    (known && cluster.object(&key).is_none()).then(|| {
        format!(
            "there is no namespace {namespace} on {}: create it, or correct the target's namespace",
            question.cluster
        )
    })
}

/// A member with what it made.
fn member(key: &ObjectKey, cluster: &Cluster) -> Result<Member, String> {
    let Some(Fact::Flux(flux)) = cluster.object(key) else {
        return Err(format!("{} {} is gone", key.kind.name(), key.name));
    };
    let made: Vec<Made> = cluster
        .made_by(key)
        .filter_map(|(k, fact)| match fact {
            Fact::Workload(workload) => Some(Made {
                kind: k.kind.name().into(),
                name: k.name.clone(),
                health: workload.verdict.health,
                message: workload.verdict.message.clone(),
                images: workload.images.clone(),
            }),
            _ => None,
        })
        .collect();
    let (health, message) = health(key, flux, &made, cluster)?;
    let mut facets = flux.facets.clone();
    facets.extend(images(&made));
    let source = flux.git_source.as_ref().and_then(|(namespace, name)| {
        let source = ObjectKey { kind: Kind::GitRepository, namespace: namespace.clone(), name: name.clone() };
        match cluster.object(&source) {
            Some(Fact::Source(repository)) => Some(repository.clone()),
            _ => None,
        }
    });
    Ok(Member {
        kind: key.kind.name().into(),
        name: key.name.clone(),
        health,
        message,
        since: flux.verdict.since.clone(),
        version: flux.version.clone(),
        facets,
        natural: flux.natural,
        source,
        made,
    })
}

/// The worst of what a member says of itself and how what it made does. What it says it made and is
/// not to be seen yet is on its way.
fn health(
    key: &ObjectKey,
    flux: &FluxFact,
    made: &[Made],
    cluster: &Cluster,
) -> Result<(Health, String), String> {
    let mut worst = (flux.verdict.health, flux.verdict.message.clone());
    if flux.elsewhere {
        return Ok(worst);
    }
    for (namespace, name, kind) in &flux.inventory {
        match cluster.reading(*kind, namespace) {
            Some(Reading::Unreadable(why)) if !flux.covers => return Err(why.clone()),
            Some(Reading::Listed) => {}
            _ => continue,
        }
        let object = ObjectKey { kind: *kind, namespace: namespace.clone(), name: name.clone() };
        // Helm's word covers what it made, and its revision needs no images.
        let matters = !flux.covers || flux.natural == Natural::Images;
        if matters && cluster.object(&object).is_none() && worst.0 < Health::Progressing {
            let unseen = format!("{} {name} of {} {} is not there yet", kind.name(), key.kind.name(), key.name);
            worst = (Health::Progressing, unseen);
        }
    }
    for workload in made {
        if workload.health > worst.0 {
            worst = (workload.health, format!("{} {}: {}", workload.kind, workload.name, workload.message));
        }
    }
    Ok(worst)
}

/// The tags of all images by repository; several of one repository make one value together.
fn images(made: &[Made]) -> BTreeMap<Facet, String> {
    let mut tags: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for image in made.iter().flat_map(|m| &m.images) {
        let (repository, tag) = trim::image(image);
        tags.entry(repository).or_default().insert(tag);
    }
    let joined = |tags: BTreeSet<String>| tags.into_iter().collect::<Vec<_>>().join(",");
    tags.into_iter().map(|(repository, tags)| (Facet::Image(repository), joined(tags))).collect()
}
