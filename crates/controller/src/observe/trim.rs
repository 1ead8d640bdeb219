//! Extracts the facts that Sluice keeps of an object.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use sluice_api::MEMBER_LABELS;
use sluice_api::flux::{
    FluxStatus, HELM_OWNER, HELM_RELEASE, HealthCheck, HelmRelease, InventoryEntry, KUSTOMIZE_OWNER,
    Kustomization, RECONCILE_ANNOTATION, Source,
};
use sluice_api::workload::Workload;
use sluice_core::Time;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::value;

use super::facts::{
    AllowedNamespaces, Fact, FluxFact, HealthStatus, Kind, ObjectKey, Owned, ReleaseName, WorkloadFact,
};
use super::gave_up;
use super::health::{self, FluxView};

/// Returns the key of an object.
pub fn key(kind: Kind, object: &impl ResourceExt) -> ObjectKey {
    ObjectKey { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Whether the name and namespace of an object follow the rules of Kubernetes. A hostile cluster may send any
/// text, and names become parts of revisions.
pub fn is_valid_name(key: &ObjectKey) -> bool {
    let is_valid_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let is_valid = |text: &str| text.len() <= MAX_NAME_BYTES && text.bytes().all(is_valid_byte);
    !key.name.is_empty() && is_valid(&key.name) && is_valid(&key.namespace)
}

/// Returns the facts of a Namespace.
pub fn namespace(object: &impl ResourceExt) -> Fact {
    Fact::Namespace { allowed: AllowedNamespaces::of(object.annotations()) }
}

/// Returns the pipelines that the member labels of an object name, without duplicates.
fn labelled_pipelines(object: &impl ResourceExt) -> Vec<String> {
    let mut names: Vec<String> =
        MEMBER_LABELS.iter().filter_map(|label| object.labels().get(*label).cloned()).collect();
    names.sort();
    names.dedup();
    names
}

fn health_status(object: &impl ResourceExt, suspended: bool, status: &FluxStatus) -> HealthStatus {
    let is_disabled =
        |map: &BTreeMap<String, String>| map.get(RECONCILE_ANNOTATION).is_some_and(|v| v == "disabled");
    let is_disabled = is_disabled(object.annotations()) || is_disabled(object.labels());
    sanitized(health::flux(&FluxView {
        generation: object.meta().generation.unwrap_or_default(),
        terminating: object.meta().deletion_timestamp.is_some(),
        suspended: match (suspended, is_disabled) {
            (true, _) => Some("resume it with flux resume"),
            (false, true) => Some("remove kustomize.toolkit.fluxcd.io/reconcile: disabled from it"),
            (false, false) => None,
        },
        observed_generation: status.observed_generation,
        conditions: &status.conditions,
    }))
}

/// The most bytes that are kept of a message.
const MAX_MESSAGE_BYTES: usize = 4096;
/// The most bytes of a name in Kubernetes.
const MAX_NAME_BYTES: usize = 253;

/// Returns a status without the control characters that a terminal would interpret, without an invalid time, and
/// with a message of at most [`MAX_MESSAGE_BYTES`].
fn sanitized(status: HealthStatus) -> HealthStatus {
    let is_safe = |c: &char| !value::is_unsafe(*c) || *c == '\n' || *c == '\t';
    let mut message: String = status.message.chars().filter(is_safe).take(MAX_MESSAGE_BYTES + 1).collect();
    crate::record::cut(&mut message, MAX_MESSAGE_BYTES);
    let since = status.since.filter(|time| *time != Time::default());
    HealthStatus { message, since, ..status }
}

/// Returns the objects of an inventory that Sluice watches.
fn inventory(status: &FluxStatus) -> Option<BTreeSet<ObjectKey>> {
    let entries = status.inventory.as_ref()?.entries.iter().filter_map(InventoryEntry::object);
    let watched = entries.filter_map(|(namespace, name, group, kind)| {
        let kind = Kind::of_group(group, kind)?;
        Some(ObjectKey { kind, namespace: namespace.into(), name: name.into() })
    });
    Some(watched.collect())
}

/// Returns a Helm release; `None` if the name or namespace is empty or too long. A hostile cluster may send any
/// text.
fn release_name(name: &str, namespace: &str) -> Option<ReleaseName> {
    let is_valid = |text: &str| !text.is_empty() && text.len() <= MAX_NAME_BYTES;
    (is_valid(name) && is_valid(namespace))
        .then(|| ReleaseName { name: name.into(), namespace: namespace.into() })
}

/// Returns the Helm release that contains an object, by Helm's annotations.
fn release(object: &impl ResourceExt) -> Option<Box<ReleaseName>> {
    let [name, namespace] = HELM_RELEASE.map(|key| object.annotations().get(key));
    release_name(name?, namespace?).map(Box::new)
}

/// Returns the Helm release of a HelmRelease: the newest in its history, else the one that its spec names.
fn release_of(object: &HelmRelease, status: &FluxStatus) -> ReleaseName {
    let newest = status.history.iter().max_by_key(|snapshot| snapshot.version);
    if let Some(release) = newest.and_then(|snapshot| release_name(&snapshot.name, &snapshot.namespace)) {
        return release;
    }
    let target = object.spec.target_namespace.clone().filter(|namespace| !namespace.is_empty());
    let name = object.spec.release_name.clone().unwrap_or_else(|| match &target {
        Some(namespace) => format!("{namespace}-{}", object.name_any()),
        None => object.name_any(),
    });
    let namespace = target.or_else(|| object.namespace()).unwrap_or_default();
    release_name(&name, &namespace).unwrap_or_default()
}

/// Splits facets into valid ones, and invalid ones with the reason for each.
fn split_by_validity(facets: BTreeMap<Facet, String>) -> (BTreeMap<Facet, String>, Vec<(Facet, String)>) {
    let mut valid = BTreeMap::new();
    let mut invalid = Vec::new();
    for (facet, value) in facets {
        match value::check(&facet, &value) {
            Ok(()) => drop(valid.insert(facet, value)),
            Err(why) => invalid.push((facet, why)),
        }
    }
    (valid, invalid)
}

/// Returns the Kustomization or HelmRelease that an object's labels name as owner. If the labels name both, the
/// HelmRelease is the direct owner, and the Kustomization owns the HelmRelease. An object that names itself, as
/// Flux's own Kustomization does, has no owner.
fn owner(kind: Kind, object: &impl ResourceExt) -> Option<ObjectKey> {
    let label = |kind, keys: [&str; 2]| {
        let labels = object.labels();
        Some(ObjectKey { kind, name: labels.get(keys[0])?.clone(), namespace: labels.get(keys[1])?.clone() })
    };
    let by_helm = label(Kind::HelmRelease, HELM_OWNER);
    by_helm
        .or_else(|| label(Kind::Kustomization, KUSTOMIZE_OWNER))
        .filter(|owner| *owner != key(kind, object))
}

/// Returns the facts of a Kustomization.
pub fn kustomization(object: &Kustomization) -> Fact {
    let status = object.status.clone().unwrap_or_default();
    let source = &object.spec.source_ref;
    let applied = status.last_applied_revision.clone().unwrap_or_default();
    let default_facet =
        if source.kind == "OCIRepository" { DefaultFacet::Artifact } else { DefaultFacet::Images };
    let mut facets = BTreeMap::new();
    if !applied.is_empty() {
        if default_facet == DefaultFacet::Artifact {
            let (tag, digest) = artifact(&applied);
            facets.extend(tag.map(|t| (Facet::Tag, t)));
            facets.extend(digest.map(|d| (Facet::Digest, d)));
        }
        facets.insert(Facet::Source, applied.clone());
    }
    let (facets, invalid) = split_by_validity(facets);
    let short_source = facets.get(&Facet::Source).map(|applied| short(applied)).unwrap_or_default();
    let version = facets.get(&Facet::Tag).cloned().unwrap_or(short_source);
    let namespace = source.namespace.clone().or_else(|| object.namespace()).unwrap_or_default();
    let inventory = inventory(&status).unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    Fact::Flux(Box::new(FluxFact {
        pipelines: labelled_pipelines(object),
        owner: owner(Kind::Kustomization, object),
        attempt: status.last_attempted_revision.clone().map(|revision| (generation, revision)),
        is_reconciling: health::is_reconciling(&status.conditions),
        status: health_status(object, object.spec.suspend, &status),
        version,
        facets,
        default_facet,
        git_source: (source.kind == "GitRepository").then(|| (namespace, source.name.clone())),
        covers_owned: object.spec.wait
            || inventory.iter().all(|owned| is_checked(owned, &object.spec.health_checks)),
        owned: Owned::Inventory(inventory),
        release: release(object),
        invalid,
        gave_up: BTreeMap::new(),
        on_another_cluster: object.spec.kube_config.is_some(),
    }))
}

fn is_checked(owned: &ObjectKey, checks: &[HealthCheck]) -> bool {
    checks
        .iter()
        .any(|c| c.kind == owned.kind.name() && c.name == owned.name && c.namespace == owned.namespace)
}

/// Returns the facts of a HelmRelease.
pub fn helm_release(object: &HelmRelease) -> Fact {
    let status = object.status.clone().unwrap_or_default();
    let newest = status.history.iter().filter(|s| s.status == "deployed").max_by_key(|s| s.version);
    let chart = match (&status.last_applied_revision, newest) {
        (_, Some(snapshot)) if !snapshot.chart_version.is_empty() => snapshot.chart_version.clone(),
        (Some(applied), _) => applied.clone(),
        _ => String::new(),
    };
    let chart = chart.split('+').next().unwrap_or_default().to_string();
    let mut facets = BTreeMap::new();
    if !chart.is_empty() {
        facets.insert(Facet::Chart, chart.clone());
    }
    if let Some(app) = newest.and_then(|s| s.app_version.as_deref()).map(str::trim).filter(|a| !a.is_empty())
    {
        facets.insert(Facet::App, app.to_string());
    }
    if let Some(digest) = newest.and_then(|s| s.oci_digest.clone()).filter(|d| !d.is_empty()) {
        facets.insert(Facet::Digest, digest);
    }
    let (facets, invalid) = split_by_validity(facets);
    let spec = &object.spec;
    let waits = [&spec.install, &spec.upgrade, &spec.rollback].iter().all(|action| !action.disable_wait);
    let owned = match inventory(&status) {
        Some(entries) => Owned::Inventory(entries),
        None => Owned::Release(release_of(object, &status)),
    };
    let template = object.spec.chart.as_ref().map(|c| &c.spec.source_ref);
    let git_source = template
        .filter(|s| s.kind == "GitRepository")
        .map(|s| (s.namespace.clone().or_else(|| object.namespace()).unwrap_or_default(), s.name.clone()));
    Fact::Flux(Box::new(FluxFact {
        pipelines: labelled_pipelines(object),
        owner: owner(Kind::HelmRelease, object),
        attempt: None,
        is_reconciling: health::is_reconciling(&status.conditions),
        status: health_status(object, object.spec.suspend, &status),
        version: facets.get(&Facet::Chart).cloned().unwrap_or_default(),
        facets,
        default_facet: DefaultFacet::Chart,
        git_source,
        owned,
        release: release(object),
        invalid,
        gave_up: gave_up::facets(object, &status),
        covers_owned: waits,
        on_another_cluster: object.spec.kube_config.is_some(),
    }))
}

/// Returns the facts of a Deployment, StatefulSet, DaemonSet or CronJob; `None` if its labels name no owner.
pub fn workload(kind: Kind, object: &Workload) -> Option<Fact> {
    let owner = owner(kind, object)?;
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Some(Fact::Workload(WorkloadFact {
        owner,
        release: release(object),
        status: sanitized(health::workload(kind.name(), generation, terminating, &object.spec, &state)),
        images: object.spec.images(),
    }))
}

/// Returns the facts of a GitRepository. If it names a tag, a range or a commit, Flux ignores the branch, and the
/// branch here is empty.
pub fn git_repository(object: &Source) -> Fact {
    let reference = object.spec.reference.clone().unwrap_or_default();
    let pinned = reference.tag.or(reference.semver).or(reference.commit).is_some();
    let branch = match (reference.name, reference.branch) {
        (Some(name), _) => name.strip_prefix("refs/heads/").unwrap_or_default().to_string(),
        _ if pinned => String::new(),
        (None, branch) => branch.unwrap_or_else(|| "master".into()),
    };
    Fact::Source(Repository { url: object.spec.url.clone(), branch })
}

/// Returns the tag and the digest of an OCI revision. Its forms are `6.1.8@sha256:...` and `sha256:...`, and
/// before Flux 0.40 a digest without its algorithm, alone or after a tag and a slash.
pub(super) fn artifact(revision: &str) -> (Option<String>, Option<String>) {
    let is_sum = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some((tag, digest)) = revision.rsplit_once('@') {
        return (Some(tag.into()), Some(digest.into()));
    }
    match revision.rsplit_once('/') {
        Some((tag, sum)) if is_sum(sum) => (Some(tag.into()), Some(format!("sha256:{sum}"))),
        _ if is_sum(revision) => (None, Some(format!("sha256:{revision}"))),
        _ if revision.contains(':') => (None, Some(revision.into())),
        _ => (Some(revision.into()), None),
    }
}

/// Returns a revision with its long checksums cut to eight digits, as the flux command line shows it.
pub fn short(revision: &str) -> String {
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let mut text = String::new();
    let mut rest = revision;
    while let Some(start) = rest.find(is_hex) {
        let (before, run) = rest.split_at(start);
        let (run, after) = run.split_at(run.find(|c| !is_hex(c)).unwrap_or(run.len()));
        text += before;
        text += if (40..=128).contains(&run.len()) { &run[..8] } else { run };
        rest = after;
    }
    text + rest
}
