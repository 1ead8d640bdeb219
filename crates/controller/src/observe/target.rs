//! The observed state of a target, from the index: its members (by reference, by name and by label), each with the
//! objects that it owns; or an error that says what to do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::not_applied::not_applied;
use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{AppRef, Target};
use sluice_core::observed::{Health, MadeWorkload, Member, ObservedTarget};
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;
use sluice_core::value_check;

use sluice_core::fleet::fact::Owned;
use sluice_core::fleet::observed_cluster::{ClusterState, KindState, MAX_NESTING, ObservedCluster};
use sluice_core::fleet::{ClusterKey, Fact, FluxFact, Kind, ObjectKey, WorkloadFact};
use sluice_core::image;

/// The cluster has not answered yet. The caller must try again later.
#[derive(Debug, PartialEq, Eq)]
pub struct NoAnswerYet;

/// The target to observe, and its pipeline.
pub struct TargetQuery<'a> {
    /// The pipeline's name, which is the value of its label on members.
    pub pipeline: &'a str,
    /// The application, if the pipeline names one.
    pub app: Option<&'a AppRef>,
    /// The target.
    pub target: &'a Target,
    /// The target's cluster.
    pub cluster: &'a ClusterKey,
    /// The facets that identify a revision of the pipeline. If there are none, the default facet of each member
    /// does.
    pub tracks: &'a [Track],
}

impl TargetQuery<'_> {
    /// Whether the pipeline tracks images. If so, a revision needs the workloads that run them.
    fn tracks_images(&self) -> bool {
        self.tracks.iter().any(|t| matches!(t, Track::Images | Track::Facet(Facet::Image(_))))
    }
}

/// The members of one pipeline on one cluster, as they are at one moment. Thousands of targets may have the same
/// members, and each member is observed once.
#[derive(Debug, Default)]
pub struct ObservedMembers {
    members: HashMap<ObjectKey, Result<Arc<Member>, MembersError>>,
    /// The members whose labels name the pipeline, by namespace; at most one more than [`MAX_MEMBERS`].
    labelled: HashMap<String, Arc<[ObjectKey]>>,
}

impl ObservedMembers {
    /// Returns a member with the objects that it owns.
    fn member(
        &mut self,
        key: &ObjectKey,
        query: &TargetQuery<'_>,
        cluster: &ObservedCluster,
    ) -> Result<Arc<Member>, MembersError> {
        if let Some(known) = self.members.get(key) {
            return known.clone();
        }
        let observed = member(key, query, cluster).map(Arc::new);
        self.members.insert(key.clone(), observed.clone());
        observed
    }

    /// Returns the members in a namespace whose labels name the pipeline.
    fn labelled(&mut self, query: &TargetQuery<'_>, cluster: &ObservedCluster) -> Arc<[ObjectKey]> {
        let namespace = query.target.namespace.as_str();
        if let Some(known) = self.labelled.get(namespace) {
            return known.clone();
        }
        let is_labelled = |fact: &Fact| matches!(fact, Fact::Flux(flux) if flux.pipelines.iter().any(|p| p == query.pipeline));
        let objects = MEMBER_KINDS.into_iter().flat_map(|kind| cluster.objects_in(kind, namespace));
        let labelled = objects.filter(|(_, fact)| is_labelled(fact)).map(|(key, _)| key.clone());
        let labelled: Arc<[ObjectKey]> = labelled.take(MAX_MEMBERS + 1).collect();
        self.labelled.insert(namespace.into(), labelled.clone());
        labelled
    }
}

/// Returns the state of a target. `known` holds what other targets of the same pipeline and cluster have shown since
/// the cluster last changed.
///
/// # Errors
/// [`NoAnswerYet`] before the first answers of the target's cluster.
pub fn observe(
    query: &TargetQuery<'_>,
    cluster: Option<&ObservedCluster>,
    known: &mut ObservedMembers,
) -> Result<ObservedTarget, NoAnswerYet> {
    let Some(cluster) = cluster else { return Err(NoAnswerYet) };
    match cluster.state() {
        ClusterState::Connecting => return Err(NoAnswerYet),
        ClusterState::Lost(why) => return Ok(ObservedTarget::unreadable(why.clone())),
        ClusterState::Up => {}
    }
    match members(query, cluster, known) {
        Ok(members) => Ok(ObservedTarget::of(members)),
        Err(MembersError::Unreadable(why)) => Ok(ObservedTarget::unreadable(why)),
        Err(MembersError::Empty(why)) => Ok(ObservedTarget::empty(why)),
        Err(MembersError::NoAnswerYet) => Err(NoAnswerYet),
    }
}

/// Why a target's members are not known.
#[derive(Clone, Debug)]
enum MembersError {
    NoAnswerYet,
    Unreadable(String),
    /// There is nothing of the pipeline.
    Empty(String),
}

impl From<String> for MembersError {
    fn from(why: String) -> Self {
        MembersError::Unreadable(why)
    }
}

fn members(
    query: &TargetQuery<'_>,
    cluster: &ObservedCluster,
    known: &mut ObservedMembers,
) -> Result<Vec<Arc<Member>>, MembersError> {
    let namespace = query.target.namespace.as_str();
    let named = named_members(query)?;
    check_kinds(query, &named, cluster)?;
    if let Some(error) = missing_namespace(query, cluster) {
        return Err(MembersError::Empty(error));
    }
    if let Some(key) = named.iter().find(|key| cluster.object(key).is_none()) {
        let error = if named.len() == 1 { MembersError::Empty } else { MembersError::Unreadable };
        return Err(error(format!(
            "there is no {} {} in namespace {namespace} of {}: create it, or correct the name in the Pipeline",
            key.kind.name(),
            key.name,
            query.cluster
        )));
    }
    let labelled = known.labelled(query, cluster);
    let keys: BTreeSet<&ObjectKey> = named.iter().chain(labelled.iter()).collect();
    if keys.is_empty() {
        return Err(MembersError::Empty(format!(
            "no Kustomization or HelmRelease in namespace {namespace} of {} belongs to this pipeline: give it \
             the label {}: {}, or name it in spec.appRef",
            query.cluster,
            sluice_api::MEMBER_LABELS[0],
            query.pipeline
        )));
    }
    if keys.len() > MAX_MEMBERS {
        return Err(MembersError::Unreadable(format!(
            "namespace {namespace} of {} is too large: more than {MAX_MEMBERS} Kustomizations and HelmReleases belong \
             to this pipeline; spread them over several namespaces",
            query.cluster
        )));
    }
    let (mut members, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for key in keys {
        let member = known.member(key, query, cluster)?;
        bytes += member.bytes();
        if bytes > MAX_TARGET_BYTES {
            return Err(too_large(
                &format!("the target in namespace {namespace} of {}", query.cluster),
                MAX_TARGET_BYTES,
            ));
        }
        members.push(member);
    }
    Ok(members)
}

/// Returns that something has workloads of too many bytes.
fn too_large(what: &str, limit: usize) -> MembersError {
    MembersError::Unreadable(format!(
        "{what} is too large: its workloads, with the names of their images, take more than {} MiB; split it into several",
        limit >> 20
    ))
}

/// The most members that a target may have.
const MAX_MEMBERS: usize = 256;
/// The most workloads and Flux objects that a member may own.
const MAX_OWNED: usize = 2000;
/// The most bytes of the workloads of a member, and of all members of a target. Members that are nested in each other have the
/// same workloads.
const MAX_MEMBER_BYTES: usize = 4 << 20;
const MAX_TARGET_BYTES: usize = 16 << 20;
/// The most bytes of all image facets of a member.
const MAX_IMAGES_BYTES: usize = 16 << 10;

/// The kinds of members.
const MEMBER_KINDS: [Kind; 2] = [Kind::Kustomization, Kind::HelmRelease];

/// Checks that the kinds of the members are readable in the target's namespace: the kinds of all named members or,
/// if none is named, at least one of the two kinds.
fn check_kinds(
    query: &TargetQuery<'_>,
    named: &[ObjectKey],
    cluster: &ObservedCluster,
) -> Result<(), MembersError> {
    let kinds: BTreeSet<Kind> = match named {
        [] => MEMBER_KINDS.into(),
        named => named.iter().map(|k| k.kind).collect(),
    };
    check_images(query, &query.target.namespace, cluster)?;
    let mut absent = None;
    let mut any_listed = false;
    for kind in kinds {
        match cluster.kind_state(kind, &query.target.namespace) {
            None | Some(KindState::ByNamespace) => return Err(MembersError::NoAnswerYet),
            Some(KindState::Unreadable(why)) => return Err(MembersError::Unreadable(why.clone())),
            Some(KindState::Listed) => any_listed = true,
            Some(KindState::Absent) => absent = Some(kind),
        }
    }
    match absent {
        Some(kind) if !named.is_empty() || !any_listed => Err(absent_kind(kind, query.cluster).into()),
        _ => Ok(()),
    }
}

/// Checks that the workloads of a namespace can be read, if images of workloads are part of the revision.
fn check_images(
    query: &TargetQuery<'_>,
    namespace: &str,
    cluster: &ObservedCluster,
) -> Result<(), MembersError> {
    for kind in Kind::WITH_IMAGES.into_iter().filter(|_| query.tracks_images()) {
        if let Some(KindState::Unreadable(why)) = cluster.kind_state(kind, namespace) {
            return Err(MembersError::Unreadable(why.clone()));
        }
    }
    Ok(())
}

/// Returns the members that the pipeline names.
fn named_members(query: &TargetQuery<'_>) -> Result<Vec<ObjectKey>, String> {
    let namespace = query.target.namespace.clone();
    let mut named = Vec::new();
    if let Some(app) = query.app {
        let group = app.api_version.split('/').next().unwrap_or_default();
        let kind = Kind::of_flux(&app.kind).filter(|kind| kind.resource().0 == group);
        let kind = kind.ok_or_else(|| {
            format!(
                "spec.appRef is {} {}: write kind HelmRelease with apiVersion {HELM_GROUP}/v2, or kind \
                 Kustomization with apiVersion {KUSTOMIZE_GROUP}/v1",
                app.api_version, app.kind
            )
        })?;
        named.push(ObjectKey { kind, namespace: namespace.clone(), name: app.name.clone() });
    }
    for workload in &query.target.workloads {
        let kind = Kind::of_flux(&workload.kind).unwrap_or(Kind::Kustomization);
        named.push(ObjectKey { kind, namespace: namespace.clone(), name: workload.name.clone() });
    }
    Ok(named)
}

fn absent_kind(kind: Kind, cluster: &ClusterKey) -> String {
    let (group, _) = kind.resource();
    format!("{cluster} has no kind {} ({group}): install Flux there (flux install)", kind.name())
}

fn missing_namespace(query: &TargetQuery<'_>, cluster: &ObservedCluster) -> Option<String> {
    let namespace = &query.target.namespace;
    let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: namespace.clone() };
    let is_listed = cluster.kind_state(Kind::Namespace, "") == Some(&KindState::Listed);
    (is_listed && cluster.object(&key).is_none()).then(|| {
        format!(
            "there is no namespace {namespace} on {}: create it, or correct the target's namespace",
            query.cluster
        )
    })
}

/// Returns a member with the objects that it owns.
fn member(
    key: &ObjectKey,
    query: &TargetQuery<'_>,
    cluster: &ObservedCluster,
) -> Result<Member, MembersError> {
    let Some(Fact::Flux(flux)) = cluster.object(key) else {
        return Err(MembersError::Unreadable(format!("{} {} is gone", key.kind.name(), key.name)));
    };
    let mut tree = OwnedTree {
        query,
        cluster,
        worst: (flux.status.health, flux.status.message.clone()),
        workloads: Vec::new(),
        bytes: 0,
        complete: true,
    };
    tree.add_owned(key, flux, &mut BTreeSet::from([key.clone()]), MAX_NESTING)?;
    let has_images = tree.workloads.iter().any(|workload| !workload.images.is_empty());
    // A Kustomization without images is identified by the revision of its source.
    let has_source_revision =
        flux.default_facet == DefaultFacet::Images && !has_images && query.tracks.is_empty();
    let is_part = |facet: &Facet| {
        value_check::is_part(facet, flux.default_facet, query.tracks)
            || (has_source_revision && *facet == Facet::Source)
    };
    if let Some((facet, why)) = flux.invalid.iter().find(|(facet, _)| is_part(facet)) {
        let (kind, name, on) = (key.kind.name(), &key.name, query.cluster);
        let says = format!("the {facet} that {kind} {name} reports on {on} is not valid: {why}");
        return Err(MembersError::Unreadable(says));
    }
    let mut facets = flux.facets.clone();
    facets.extend(images(&tree.workloads, flux.default_facet, query)?);
    let (health, message) = tree.worst;
    if flux.default_facet == DefaultFacet::Images && !tree.complete {
        // The revision is unknown: a revision with only some of the images would be another one.
        facets.clear();
    }
    Ok(Member {
        kind: key.kind.name().into(),
        name: key.name.clone(),
        health,
        message,
        not_applied: if health == Health::Ready { not_applied(key, flux, cluster) } else { None },
        // The time in the member's status is valid only for the health in that status.
        since: flux.status.since.filter(|_| health == flux.status.health),
        version: flux.version.clone(),
        gave_up: flux.gave_up.clone(),
        facets,
        default_facet: flux.default_facet,
        source: flux.git_source().and_then(|source| match cluster.object(source) {
            Some(Fact::Source(source)) => Some(source.repository.clone()),
            _ => None,
        }),
        workloads: tree.workloads,
    })
}

/// All objects that a member owns, directly and through other Flux objects.
struct OwnedTree<'a> {
    query: &'a TargetQuery<'a>,
    cluster: &'a ObservedCluster,
    /// The worst health of the member and of all objects, with its message. An object that is in an inventory but
    /// was not observed is Progressing.
    worst: (Health, String),
    workloads: Vec<MadeWorkload>,
    /// The bytes of the workloads.
    bytes: usize,
    /// Whether all objects of the inventories were observed.
    complete: bool,
}

impl OwnedTree<'_> {
    /// Adds the objects that a member owns. `depth` is the number of Flux objects that may still be nested in it.
    fn add_owned(
        &mut self,
        key: &ObjectKey,
        flux: &FluxFact,
        visited: &mut BTreeSet<ObjectKey>,
        depth: usize,
    ) -> Result<(), MembersError> {
        if depth == 0 {
            let (kind, name) = (key.kind.name(), &key.name);
            return Err(MembersError::Unreadable(format!(
                "{kind} {name} is nested in more than {MAX_NESTING} Flux objects, each owned by the one before: in the \
                 Pipeline, name one that is nearer to the workloads"
            )));
        }
        if flux.on_another_cluster {
            self.add_unreported_health(key.kind, flux);
            return Ok(());
        }
        self.check_inventory(key, flux)?;
        let cluster = self.cluster;
        if let Owned::Release(release) = &flux.owned {
            check_images(self.query, &release.namespace, cluster)?;
        }
        if self.needs_owned(flux) {
            if cluster.awaits_first_check(flux) {
                return Err(MembersError::NoAnswerYet);
            }
            if let Some(why) = cluster.why_not_yet(flux) {
                let message = || format!("{key} is Ready, but does not count yet: {why}");
                self.add_health(Health::Progressing, message);
            }
        }
        for (owned, fact) in cluster.owned_by(key, flux) {
            if !visited.insert(owned.clone()) {
                continue;
            }
            if visited.len() > MAX_OWNED {
                return Err(self.too_many(key));
            }
            match fact {
                Fact::Workload(workload) => self.add_workload(owned, workload, flux.default_facet)?,
                Fact::Flux(nested) => {
                    let message =
                        || format!("{} {}: {}", owned.kind.name(), owned.name, nested.status.message);
                    self.add_health(nested.status.health, message);
                    self.add_owned(owned, nested, visited, depth - 1)?;
                }
                Fact::Source(_) | Fact::Trigger(_) | Fact::Namespace { .. } => {}
            }
        }
        Ok(())
    }

    /// Adds a workload that a Flux object with this default facet owns.
    fn add_workload(
        &mut self,
        key: &ObjectKey,
        workload: &WorkloadFact,
        default_facet: DefaultFacet,
    ) -> Result<(), MembersError> {
        // An outdated image, together with current images of other workloads, would make a wrong revision.
        if let (DefaultFacet::Images, Some(KindState::Unreadable(why))) =
            (default_facet, self.cluster.kind_state(key.kind, &key.namespace))
        {
            return Err(MembersError::Unreadable(why.clone()));
        }
        let (kind, name) = (key.kind.name().to_string(), key.name.clone());
        let WorkloadFact { status, images, .. } = workload;
        self.add_health(status.health, || format!("{kind} {name}: {}", status.message));
        let (health, message) = (status.health, status.message.clone());
        let made = MadeWorkload { kind, name, health, message, images: images.clone() };
        self.bytes += made.bytes();
        if self.bytes > MAX_MEMBER_BYTES {
            let what = format!("what owns {} {} on {}", made.kind, made.name, self.query.cluster);
            return Err(too_large(&what, MAX_MEMBER_BYTES));
        }
        self.workloads.push(made);
        Ok(())
    }

    /// Adds the health Unknown for a Flux object that applies to another cluster, and whose own health does not include
    /// the objects that it owns there.
    fn add_unreported_health(&mut self, kind: Kind, flux: &FluxFact) {
        if flux.covers_owned {
            return;
        }
        let remedy = match kind {
            Kind::HelmRelease => "remove disableWait from it",
            _ => "set spec.wait to true",
        };
        self.add_health(Health::Unknown, || {
            format!(
                "it applies to another cluster and does not report its health there: {remedy}, or name Flux objects \
                 of that cluster in the pipeline's target"
            )
        });
    }

    /// Whether the revision or the health of the target depends on the objects that a Flux object owns. If the health
    /// of the Flux object includes these objects, they are needed only for their images.
    fn needs_owned(&self, flux: &FluxFact) -> bool {
        !flux.covers_owned || flux.default_facet == DefaultFacet::Images || self.query.tracks_images()
    }

    fn too_many(&self, key: &ObjectKey) -> MembersError {
        MembersError::Unreadable(format!(
            "{} {} on {} is too large: it owns more than {MAX_OWNED} workloads and Flux objects; split it into several",
            key.kind.name(),
            key.name,
            self.query.cluster
        ))
    }

    /// Checks that all objects of the inventory were observed.
    fn check_inventory(&mut self, key: &ObjectKey, flux: &FluxFact) -> Result<(), MembersError> {
        let needed = self.needs_owned(flux);
        for owned in flux.owned.inventory() {
            match self.cluster.kind_state(owned.kind, &owned.namespace) {
                // Without these objects, the others would make a revision that nobody has intended.
                Some(KindState::Unreadable(why)) if needed || MEMBER_KINDS.contains(&owned.kind) => {
                    return Err(MembersError::Unreadable(why.clone()));
                }
                None if !flux.covers_owned && owned.namespace == self.query.target.namespace => {
                    return Err(MembersError::NoAnswerYet);
                }
                None if !flux.covers_owned => return Err(self.unreadable_namespace(owned).into()),
                Some(KindState::Listed) => {}
                _ => continue,
            }
            if needed && self.cluster.object(owned).is_none() {
                self.complete = false;
                let (kind, owner_kind) = (owned.kind.name(), key.kind.name());
                let (name, owner) = (&owned.name, &key.name);
                self.add_health(Health::Progressing, || {
                    format!(
                        "{kind} {name} of {owner_kind} {owner} does not exist yet, or has lost the labels that name its \
                         owner"
                    )
                });
            }
        }
        Ok(())
    }

    fn unreadable_namespace(&self, owned: &ObjectKey) -> String {
        let (_, plural) = owned.kind.resource();
        format!(
            "{} {} is in namespace {} of {}, where only the targets' own namespaces can be read: grant the verbs \
             get, list and watch on {plural} in the whole cluster, or set spec.wait of the Kustomization to true",
            owned.kind.name(),
            owned.name,
            owned.namespace,
            self.query.cluster
        )
    }

    /// Keeps a health and its message if the health is worse than the worst one so far.
    fn add_health(&mut self, health: Health, message: impl FnOnce() -> String) {
        if health > self.worst.0 {
            self.worst = (health, message());
        }
    }
}

/// Returns the images of workloads as facets, with the tags by repository. Several tags of one repository are
/// joined.
///
/// # Errors
/// When an image that is part of the pipeline's revision is not valid, or the facets exceed [`MAX_IMAGES_BYTES`].
fn images(
    workloads: &[MadeWorkload],
    default_facet: DefaultFacet,
    query: &TargetQuery<'_>,
) -> Result<BTreeMap<Facet, String>, MembersError> {
    let mut tags: BTreeMap<Facet, BTreeSet<String>> = BTreeMap::new();
    for (workload, image) in workloads.iter().flat_map(|m| m.images.iter().map(move |image| (m, image))) {
        let (repository, tag) = image::parts(image);
        let facet = Facet::Image(repository);
        match value_check::check(&facet, &tag) {
            Ok(()) => drop(tags.entry(facet).or_default().insert(tag)),
            Err(why) if value_check::is_part(&facet, default_facet, query.tracks) => {
                return Err(MembersError::Unreadable(format!(
                    "an image of {} {} on {} is not valid: {why}",
                    workload.kind, workload.name, query.cluster
                )));
            }
            Err(_) => {}
        }
    }
    let joined = |tags: BTreeSet<String>| tags.into_iter().collect::<Vec<_>>().join(",");
    let mut joined: BTreeMap<_, _> = tags.into_iter().map(|(facet, tags)| (facet, joined(tags))).collect();
    let size =
        |all: &BTreeMap<Facet, String>| all.iter().map(|(f, v)| f.to_string().len() + v.len()).sum::<usize>();
    if size(&joined) > MAX_IMAGES_BYTES {
        joined.retain(|facet, _| value_check::is_part(facet, default_facet, query.tracks));
    }
    if size(&joined) > MAX_IMAGES_BYTES {
        let cluster = query.cluster;
        return Err(MembersError::Unreadable(format!(
            "the images of one member on {cluster} are too large for a revision: more than {} KiB together; split it \
             into several members, or list the facets of its revision in spec.tracks",
            MAX_IMAGES_BYTES >> 10
        )));
    }
    Ok(joined)
}
