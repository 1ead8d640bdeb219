//! From an object as Kubernetes sends it to the facts that are kept of it.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use sluice_api::MEMBER_LABELS;
use sluice_api::flux::{
    FluxStatus, HELM_OWNER, HELM_RELEASE, HealthCheck, HelmRelease, InventoryEntry, KUSTOMIZE_OWNER,
    Kustomization, RECONCILE_ANNOTATION, Source,
};
use sluice_api::workload::Workload;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::value;

use super::facts::{
    AllowedNamespaces, Fact, FluxFact, Kind, ObjectKey, Owned, ReleaseName, Verdict, WorkloadFact,
};
use super::gave_up;
use super::health::{self, FluxView};

/// The key of an object.
pub fn key(kind: Kind, object: &impl ResourceExt) -> ObjectKey {
    ObjectKey { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Whether an object has the name and namespace that Kubernetes would give it: a cluster that does not keep
/// the rules may send any text, and names become parts of revisions.
pub fn is_name(key: &ObjectKey) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let named = |text: &str| text.len() <= 253 && text.bytes().all(good);
    !key.name.is_empty() && named(&key.name) && named(&key.namespace)
}

/// What is kept of a Namespace.
pub fn namespace(object: &impl ResourceExt) -> Fact {
    Fact::Namespace { allowed: AllowedNamespaces::of(object.annotations()) }
}

/// The pipelines that an object joins by label. Each label counts once.
fn joins(object: &impl ResourceExt) -> Vec<String> {
    let mut names: Vec<String> =
        MEMBER_LABELS.iter().filter_map(|label| object.labels().get(*label).cloned()).collect();
    names.sort();
    names.dedup();
    names
}

fn verdict(object: &impl ResourceExt, suspended: bool, status: &FluxStatus) -> Verdict {
    let opted_out =
        |map: &BTreeMap<String, String>| map.get(RECONCILE_ANNOTATION).is_some_and(|v| v == "disabled");
    let opted_out = opted_out(object.annotations()) || opted_out(object.labels());
    let said = health::flux(&FluxView {
        generation: object.meta().generation.unwrap_or_default(),
        terminating: object.meta().deletion_timestamp.is_some(),
        suspended: match (suspended, opted_out) {
            (true, _) => Some("flux resume, once it may go on"),
            (false, true) => Some("remove kustomize.toolkit.fluxcd.io/reconcile: disabled from it"),
            (false, false) => None,
        },
        observed_generation: status.observed_generation,
        conditions: &status.conditions,
    });
    plain(said)
}

/// The most bytes that are kept of a message.
const MESSAGE: usize = 4096;

/// A verdict in the words of a cluster, without the control characters that a terminal would obey,
/// without a time that is none, and not longer than [`MESSAGE`].
fn plain(said: Verdict) -> Verdict {
    let harmless = |c: &char| !value::is_unsafe(*c) || *c == '\n' || *c == '\t';
    let mut message: String = said.message.chars().filter(harmless).take(MESSAGE + 1).collect();
    crate::record::cut(&mut message, MESSAGE);
    let since = said.since.filter(|time| time.parse::<jiff::Timestamp>().is_ok());
    Verdict { message, since, ..said }
}

/// The objects that an inventory names, without those that Sluice does not watch.
fn inventory(status: &FluxStatus) -> Option<BTreeSet<ObjectKey>> {
    let entries = status.inventory.as_ref()?.entries.iter().filter_map(InventoryEntry::object);
    let watched = entries.filter_map(|(namespace, name, group, kind)| {
        let kind = Kind::made(group, kind)?;
        Some(ObjectKey { kind, namespace: namespace.into(), name: name.into() })
    });
    Some(watched.collect())
}

/// The longest name of a Helm release or of its namespace, in bytes: that of any object. A hostile cluster may
/// send any text.
const RELEASE_NAME: usize = 253;

/// A Helm release; `None` if it has no name or one that is too long.
fn named_release(name: &str, namespace: &str) -> Option<ReleaseName> {
    let is_name = |text: &str| !text.is_empty() && text.len() <= RELEASE_NAME;
    (is_name(name) && is_name(namespace))
        .then(|| ReleaseName { name: name.into(), namespace: namespace.into() })
}

/// The Helm release that an object belongs to, by Helm's annotations.
fn release(object: &impl ResourceExt) -> Option<Box<ReleaseName>> {
    let [name, namespace] = HELM_RELEASE.map(|key| object.annotations().get(key));
    named_release(name?, namespace?).map(Box::new)
}

/// The Helm release of a HelmRelease: the newest in its history, else the one that its spec asks for.
fn release_of(object: &HelmRelease, status: &FluxStatus) -> ReleaseName {
    let newest = status.history.iter().max_by_key(|snapshot| snapshot.version);
    if let Some(release) = newest.and_then(|snapshot| named_release(&snapshot.name, &snapshot.namespace)) {
        return release;
    }
    let target = object.spec.target_namespace.clone().filter(|namespace| !namespace.is_empty());
    let name = object.spec.release_name.clone().unwrap_or_else(|| match &target {
        Some(namespace) => format!("{namespace}-{}", object.name_any()),
        None => object.name_any(),
    });
    let namespace = target.or_else(|| object.namespace()).unwrap_or_default();
    named_release(&name, &namespace).unwrap_or_default()
}

/// Splits facets into those that may be part of a revision and those whose value cannot be one.
fn checked(facets: BTreeMap<Facet, String>) -> (BTreeMap<Facet, String>, Vec<(Facet, String)>) {
    let mut good = BTreeMap::new();
    let mut invalid = Vec::new();
    for (facet, value) in facets {
        match value::check(&facet, &value) {
            Ok(()) => drop(good.insert(facet, value)),
            Err(why) => invalid.push((facet, why)),
        }
    }
    (good, invalid)
}

/// The Kustomization or HelmRelease that made an object, by its labels. An object may carry both
/// owners when a Kustomization made the HelmRelease: the release is the nearer one. What claims to
/// have made itself, as Flux's own Kustomization does, has no owner.
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

/// What is kept of a Kustomization.
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
    let (facets, invalid) = checked(facets);
    let shown = facets.get(&Facet::Source).map(|applied| short(applied)).unwrap_or_default();
    let version = facets.get(&Facet::Tag).cloned().unwrap_or(shown);
    let namespace = source.namespace.clone().or_else(|| object.namespace()).unwrap_or_default();
    let inventory = inventory(&status).unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    Fact::Flux(Box::new(FluxFact {
        joins: joins(object),
        owner: owner(Kind::Kustomization, object),
        attempt: status.last_attempted_revision.clone().map(|revision| (generation, revision)),
        at_work: health::is_at_work(&status.conditions),
        verdict: verdict(object, object.spec.suspend, &status),
        version,
        facets,
        default_facet,
        git_source: (source.kind == "GitRepository").then(|| (namespace, source.name.clone())),
        covers: object.spec.wait || inventory.iter().all(|made| is_checked(made, &object.spec.health_checks)),
        owned: Owned::Inventory(inventory),
        release: release(object),
        invalid,
        gave_up: BTreeMap::new(),
        elsewhere: object.spec.kube_config.is_some(),
    }))
}

fn is_checked(made: &ObjectKey, checks: &[HealthCheck]) -> bool {
    checks.iter().any(|c| c.kind == made.kind.name() && c.name == made.name && c.namespace == made.namespace)
}

/// What is kept of a HelmRelease.
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
    let (facets, invalid) = checked(facets);
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
        joins: joins(object),
        owner: owner(Kind::HelmRelease, object),
        attempt: None,
        at_work: health::is_at_work(&status.conditions),
        verdict: verdict(object, object.spec.suspend, &status),
        version: facets.get(&Facet::Chart).cloned().unwrap_or_default(),
        facets,
        default_facet: DefaultFacet::Chart,
        git_source,
        owned,
        release: release(object),
        invalid,
        gave_up: gave_up::facets(object, &status),
        covers: waits,
        elsewhere: object.spec.kube_config.is_some(),
    }))
}

/// What is kept of a Deployment or its kin; nothing of one that Flux did not make.
pub fn workload(kind: Kind, object: &Workload) -> Option<Fact> {
    let owner = owner(kind, object)?;
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Some(Fact::Workload(WorkloadFact {
        owner,
        release: release(object),
        verdict: plain(health::workload(kind.name(), generation, terminating, &object.spec, &state)),
        images: object.spec.images(),
    }))
}

/// What is kept of a GitRepository. Where it follows a tag, a range or one commit it follows no
/// branch, whatever else it names.
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

/// Tag and digest of an OCI revision: `6.1.8@sha256:...`, `sha256:...`, and what Flux wrote before
/// 0.40: a digest without its algorithm, alone or after a tag and a slash.
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

/// A revision with its long checksums cut to eight digits, as the flux command line shows it.
pub fn short(revision: &str) -> String {
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let mut shown = String::new();
    let mut rest = revision;
    while let Some(start) = rest.find(is_hex) {
        let (before, run) = rest.split_at(start);
        let (run, after) = run.split_at(run.find(|c| !is_hex(c)).unwrap_or(run.len()));
        shown += before;
        shown += if (40..=128).contains(&run.len()) { &run[..8] } else { run };
        rest = after;
    }
    shown + rest
}
