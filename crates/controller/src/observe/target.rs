//! What a target shows, put together from the index: its members by reference, by name and by
//! label, each with what it made; or why it cannot be told, in a sentence that says what to do.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{AppRef, Target as TargetSpec};
use sluice_core::observed::{Health, MadeWorkload, Member, ObservedTarget};
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;
use sluice_core::value;

use super::facts::{ClusterKey, Fact, FluxFact, Kind, ObjectKey, WorkloadFact};
use super::image;
use super::index::{Cluster, ClusterState, KindState, NESTING};

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
    /// The facets that make a revision of the pipeline; empty for the default of each member.
    pub tracks: &'a [Track],
}

impl Question<'_> {
    /// Whether the pipeline tracks images: then nothing is shown without the workloads that run them.
    fn tracks_images(&self) -> bool {
        self.tracks.iter().any(|t| matches!(t, Track::Images | Track::Facet(Facet::Image(_))))
    }
}

/// What the target shows.
///
/// # Errors
/// [`NotYet`] while its cluster is being asked for the first time.
pub fn observe(question: &Question<'_>, cluster: Option<&Cluster>) -> Result<ObservedTarget, NotYet> {
    let Some(cluster) = cluster else { return Err(NotYet) };
    match cluster.state() {
        ClusterState::Connecting => return Err(NotYet),
        ClusterState::Lost(why) => return Ok(ObservedTarget::unreadable(why.clone())),
        ClusterState::Up => {}
    }
    match members(question, cluster) {
        Ok(members) => Ok(ObservedTarget { error: None, members }),
        Err(Gap::Unreadable(why)) => Ok(ObservedTarget::unreadable(why)),
        Err(Gap::NotYet) => Err(NotYet),
    }
}

/// Why a target's members are not known.
enum Gap {
    NotYet,
    Unreadable(String),
}

impl From<String> for Gap {
    fn from(why: String) -> Self {
        Gap::Unreadable(why)
    }
}

fn members(question: &Question<'_>, cluster: &Cluster) -> Result<Vec<Member>, Gap> {
    let namespace = question.target.namespace.as_str();
    let named = named(question)?;
    readable(question, &named, cluster)?;
    if let Some(error) = missing_namespace(question, cluster) {
        return Err(error.into());
    }
    if let Some(key) = named.iter().find(|key| cluster.object(key).is_none()) {
        return Err(Gap::Unreadable(format!(
            "there is no {} {} in namespace {namespace} of {}: create it, or correct the name in the Pipeline",
            key.kind.name(),
            key.name,
            question.cluster
        )));
    }
    let labelled = MEMBER_KINDS.into_iter().flat_map(|kind| {
        cluster.objects_in(kind, namespace).filter(
            |(_, fact)| matches!(fact, Fact::Flux(flux) if flux.joins.iter().any(|p| p == question.pipeline)),
        )
    });
    let keys: BTreeSet<ObjectKey> = named.into_iter().chain(labelled.map(|(k, _)| k.clone())).collect();
    if keys.is_empty() {
        return Err(Gap::Unreadable(format!(
            "no Kustomization or HelmRelease in namespace {namespace} of {} belongs to this pipeline: give it \
             the label {}: {}, or name it in spec.appRef",
            question.cluster,
            sluice_api::MEMBER_LABELS[0],
            question.pipeline
        )));
    }
    if keys.len() > MOST_MEMBERS {
        return Err(Gap::Unreadable(format!(
            "namespace {namespace} of {} is too large: more than {MOST_MEMBERS} Kustomizations and HelmReleases belong \
             to this pipeline; spread them over several namespaces",
            question.cluster
        )));
    }
    keys.iter().map(|key| member(key, question, cluster)).collect()
}

/// The most members that a target may have.
const MOST_MEMBERS: usize = 256;
/// The most workloads and Flux objects that a member may own.
const MOST_OWNED: usize = 2000;
/// The most that the images of a member may take in a revision, in bytes.
const IMAGES_BYTES: usize = 16 << 10;

/// The kinds that a member may have.
const MEMBER_KINDS: [Kind; 2] = [Kind::Kustomization, Kind::HelmRelease];

/// Whether all kinds of which members are sought can be read here: those that are named, or where
/// none is, at least one of the two.
fn readable(question: &Question<'_>, named: &[ObjectKey], cluster: &Cluster) -> Result<(), Gap> {
    let kinds: BTreeSet<Kind> = match named {
        [] => MEMBER_KINDS.into(),
        named => named.iter().map(|k| k.kind).collect(),
    };
    for kind in Kind::WITH_IMAGES.into_iter().filter(|_| question.tracks_images()) {
        if let Some(KindState::Unreadable(why)) = cluster.kind_state(kind, &question.target.namespace) {
            return Err(Gap::Unreadable(why.clone()));
        }
    }
    let mut absent = None;
    let mut there = false;
    for kind in kinds {
        match cluster.kind_state(kind, &question.target.namespace) {
            None | Some(KindState::Narrowed) => return Err(Gap::NotYet),
            Some(KindState::Unreadable(why)) => return Err(Gap::Unreadable(why.clone())),
            Some(KindState::Listed) => there = true,
            Some(KindState::Absent) => absent = Some(kind),
        }
    }
    match absent {
        Some(kind) if !named.is_empty() || !there => Err(no_kind(kind, question.cluster).into()),
        _ => Ok(()),
    }
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
    let known = cluster.kind_state(Kind::Namespace, "") == Some(&KindState::Listed);
    (known && cluster.object(&key).is_none()).then(|| {
        format!(
            "there is no namespace {namespace} on {}: create it, or correct the target's namespace",
            question.cluster
        )
    })
}

/// A member with what it made.
fn member(key: &ObjectKey, question: &Question<'_>, cluster: &Cluster) -> Result<Member, Gap> {
    let Some(Fact::Flux(flux)) = cluster.object(key) else {
        return Err(Gap::Unreadable(format!("{} {} is gone", key.kind.name(), key.name)));
    };
    let mut tree = Tree {
        question,
        cluster,
        worst: (flux.verdict.health, flux.verdict.message.clone()),
        workloads: Vec::new(),
        whole: true,
    };
    tree.grow(key, flux, &mut BTreeSet::from([key.clone()]), NESTING)?;
    let has_images = tree.workloads.iter().any(|made| !made.images.is_empty());
    let is_part = |facet: &Facet| {
        // Without images, the source's revision stands for a Kustomization from git.
        let by_source =
            flux.default_facet == DefaultFacet::Images && !has_images && question.tracks.is_empty();
        value::is_part(facet, flux.default_facet, question.tracks) || (by_source && *facet == Facet::Source)
    };
    if let Some((facet, why)) = flux.invalid.iter().find(|(facet, _)| is_part(facet)) {
        return Err(Gap::Unreadable(format!(
            "the {facet} that {} {} reports on {} cannot be one: {why}",
            key.kind.name(),
            key.name,
            question.cluster
        )));
    }
    let mut facets = flux.facets.clone();
    facets.extend(images(&tree.workloads, flux.default_facet, question)?);
    let (health, message) = tree.worst;
    if flux.default_facet == DefaultFacet::Images && !tree.whole {
        // Some of its images would make another revision than all of them.
        facets.clear();
    }
    let source = flux.git_source.as_ref().and_then(|(namespace, name)| {
        let source =
            ObjectKey { kind: Kind::GitRepository, namespace: namespace.clone(), name: name.clone() };
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
        // Flux's time is that of its own word.
        since: flux.verdict.since.clone().filter(|_| health == flux.verdict.health),
        version: flux.version.clone(),
        gave_up: flux.gave_up.clone(),
        facets,
        default_facet: flux.default_facet,
        source,
        workloads: tree.workloads,
    })
}

/// All that a member made: its workloads, and those of the Flux objects that it made in their turn.
struct Tree<'a> {
    question: &'a Question<'a>,
    cluster: &'a Cluster,
    /// The worst of what they all say of themselves. What is said to be made and not to be seen yet
    /// is on its way.
    worst: (Health, String),
    workloads: Vec<MadeWorkload>,
    /// Everything that is said to be made has been seen.
    whole: bool,
}

impl Tree<'_> {
    /// Adds what a member owns; `depth` says how many more Flux objects may be nested in it.
    fn grow(
        &mut self,
        key: &ObjectKey,
        flux: &FluxFact,
        seen: &mut BTreeSet<ObjectKey>,
        depth: usize,
    ) -> Result<(), Gap> {
        if depth == 0 {
            let (kind, name) = (key.kind.name(), &key.name);
            return Err(Gap::Unreadable(format!(
                "{kind} {name} is nested in more than {NESTING} Flux objects, of which each made the next: name one \
                 that is nearer to its workloads in the Pipeline"
            )));
        }
        if flux.elsewhere {
            if !flux.covers {
                let remedy = match key.kind {
                    Kind::HelmRelease => "remove disableWait from it",
                    _ => "set spec.wait to true",
                };
                self.note(Health::Unknown, || {
                    format!(
                        "it applies to another cluster and does not say how it does there: {remedy}, or have the \
                         pipeline's target name that cluster's own Flux objects"
                    )
                });
            }
            return Ok(());
        }
        self.missing(key, flux)?;
        let cluster = self.cluster;
        for (made, fact) in cluster.owned_by(key, flux) {
            if !seen.insert(made.clone()) {
                continue;
            }
            if seen.len() > MOST_OWNED {
                return Err(self.too_many(key));
            }
            match fact {
                Fact::Workload(workload) => {
                    // What it ran when it was last seen, beside what others run now, is no revision.
                    if let (DefaultFacet::Images, Some(KindState::Unreadable(why))) =
                        (flux.default_facet, cluster.kind_state(made.kind, &made.namespace))
                    {
                        return Err(Gap::Unreadable(why.clone()));
                    }
                    let (kind, name) = (made.kind.name().to_string(), made.name.clone());
                    let WorkloadFact { verdict, images, .. } = workload;
                    self.note(verdict.health, || format!("{kind} {name}: {}", verdict.message));
                    let (health, message) = (verdict.health, verdict.message.clone());
                    self.workloads.push(MadeWorkload { kind, name, health, message, images: images.clone() });
                }
                Fact::Flux(nested) => {
                    let say = || format!("{} {}: {}", made.kind.name(), made.name, nested.verdict.message);
                    self.note(nested.verdict.health, say);
                    self.grow(made, nested, seen, depth - 1)?;
                }
                Fact::Source(_) | Fact::Namespace { .. } => {}
            }
        }
        Ok(())
    }

    fn too_many(&self, key: &ObjectKey) -> Gap {
        Gap::Unreadable(format!(
            "{} {} on {} is too large: it owns more than {MOST_OWNED} workloads and Flux objects; make several of it",
            key.kind.name(),
            key.name,
            self.question.cluster
        ))
    }

    /// Notes what the inventory names and nobody has seen, or nobody can see.
    fn missing(&mut self, key: &ObjectKey, flux: &FluxFact) -> Result<(), Gap> {
        // A word that covers what was made needs no second look, unless images make the revision.
        let needed = !flux.covers || flux.default_facet == DefaultFacet::Images;
        for made in flux.owned.inventory() {
            match self.cluster.kind_state(made.kind, &made.namespace) {
                Some(KindState::Unreadable(why)) if !flux.covers => return Err(Gap::Unreadable(why.clone())),
                None if !flux.covers && made.namespace == self.question.target.namespace => {
                    return Err(Gap::NotYet);
                }
                None if !flux.covers => return Err(self.out_of_sight(made).into()),
                Some(KindState::Listed) => {}
                _ => continue,
            }
            if needed && self.cluster.object(made).is_none() {
                self.whole = false;
                let (what, maker) = (made.kind.name(), key.kind.name());
                let (name, by) = (&made.name, &key.name);
                self.note(Health::Progressing, || {
                    format!("{what} {name} of {maker} {by} is not there yet, or has lost the labels that say who made it")
                });
            }
        }
        Ok(())
    }

    fn out_of_sight(&self, made: &ObjectKey) -> String {
        let (_, plural) = made.kind.resource();
        format!(
            "{} {} is in namespace {} of {}, where only the targets' own namespaces can be read: grant the verbs \
             get, list and watch on {plural} in the whole cluster, or set spec.wait of the Kustomization to true",
            made.kind.name(),
            made.name,
            made.namespace,
            self.question.cluster
        )
    }

    fn note(&mut self, health: Health, say: impl FnOnce() -> String) {
        if health > self.worst.0 {
            self.worst = (health, say());
        }
    }
}

/// The tags of all images by repository; several of one repository make one value together.
///
/// # Errors
/// When an image that is part of the pipeline's revision cannot be one, or there are too many.
fn images(
    made: &[MadeWorkload],
    default_facet: DefaultFacet,
    question: &Question<'_>,
) -> Result<BTreeMap<Facet, String>, Gap> {
    let mut tags: BTreeMap<Facet, BTreeSet<String>> = BTreeMap::new();
    for (workload, image) in made.iter().flat_map(|m| m.images.iter().map(move |image| (m, image))) {
        let (repository, tag) = image::parts(image);
        let facet = Facet::Image(repository);
        match value::check(&facet, &tag) {
            Ok(()) => drop(tags.entry(facet).or_default().insert(tag)),
            Err(why) if value::is_part(&facet, default_facet, question.tracks) => {
                return Err(Gap::Unreadable(format!(
                    "an image of {} {} on {} cannot be one: {why}",
                    workload.kind, workload.name, question.cluster
                )));
            }
            Err(_) => {}
        }
    }
    let joined = |tags: BTreeSet<String>| tags.into_iter().collect::<Vec<_>>().join(",");
    let mut joined: BTreeMap<_, _> = tags.into_iter().map(|(facet, tags)| (facet, joined(tags))).collect();
    let size =
        |all: &BTreeMap<Facet, String>| all.iter().map(|(f, v)| f.to_string().len() + v.len()).sum::<usize>();
    if size(&joined) > IMAGES_BYTES {
        joined.retain(|facet, _| value::is_part(facet, default_facet, question.tracks));
    }
    if size(&joined) > IMAGES_BYTES {
        let cluster = question.cluster;
        return Err(Gap::Unreadable(format!(
            "the images of one member on {cluster} are too large for a revision: more than {} KiB together; make \
             several members of it, or have spec.tracks name what makes its revision",
            IMAGES_BYTES >> 10
        )));
    }
    Ok(joined)
}
