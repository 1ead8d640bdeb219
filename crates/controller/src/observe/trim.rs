//! From an object as Kubernetes sends it to the facts that are kept of it.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_api::MEMBER_LABELS;
use sluice_api::flux::{
    FluxStatus, HELM_OWNER, HelmRelease, InventoryEntry, KUSTOMIZE_OWNER, Kustomization, RECONCILE_ANNOTATION,
    Source,
};
use sluice_api::workload::Workload;
use sluice_core::model::Repository;
use sluice_core::revision::Facet;
use sluice_core::world::Natural;

use super::facts::{Fact, FluxFact, Kind, ObjectKey, Verdict, WorkloadFact};
use super::health::{self, FluxView};

/// The key of an object.
pub fn key(kind: Kind, object: &impl ResourceExt) -> ObjectKey {
    ObjectKey { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
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
    let opted_out = |map: &BTreeMap<String, String>| map.get(RECONCILE_ANNOTATION).is_some_and(|v| v == "disabled");
    health::flux(&FluxView {
        generation: object.meta().generation.unwrap_or_default(),
        terminating: object.meta().deletion_timestamp.is_some(),
        suspended: suspended || opted_out(object.annotations()) || opted_out(object.labels()),
        observed_generation: status.observed_generation,
        conditions: &status.conditions,
    })
}

fn inventory(status: &FluxStatus) -> Vec<(String, String, Kind)> {
    let entries = status.inventory.iter().flat_map(|i| &i.entries).filter_map(InventoryEntry::object);
    entries
        .filter_map(|(namespace, name, kind)| Some((namespace.into(), name.into(), Kind::workload(kind)?)))
        .collect()
}

/// What is kept of a Kustomization.
pub fn kustomization(object: &Kustomization) -> Fact {
    let status = object.status.clone().unwrap_or_default();
    let source = &object.spec.source_ref;
    let applied = status.last_applied_revision.clone().unwrap_or_default();
    let natural = if source.kind == "OCIRepository" { Natural::Artifact } else { Natural::Images };
    let mut facets = BTreeMap::new();
    if !applied.is_empty() {
        if natural == Natural::Artifact {
            let (tag, digest) = artifact(&applied);
            facets.extend(tag.map(|t| (Facet::Tag, t)));
            facets.extend(digest.map(|d| (Facet::Digest, d)));
        }
        facets.insert(Facet::Source, applied.clone());
    }
    let version = facets.get(&Facet::Tag).cloned().unwrap_or_else(|| short(&applied));
    let namespace = source.namespace.clone().or_else(|| object.namespace()).unwrap_or_default();
    Fact::Flux(FluxFact {
        joins: joins(object),
        verdict: verdict(object, object.spec.suspend, &status),
        version,
        facets,
        natural,
        git_source: (source.kind == "GitRepository").then(|| (namespace, source.name.clone())),
        inventory: inventory(&status),
        covers: object.spec.wait,
        elsewhere: object.spec.kube_config.is_some(),
    })
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
    if let Some(app) = newest.and_then(|s| s.app_version.clone()).filter(|a| !a.is_empty()) {
        facets.insert(Facet::App, app);
    }
    let template = object.spec.chart.as_ref().map(|c| &c.spec.source_ref);
    let git_source = template.filter(|s| s.kind == "GitRepository").map(|s| {
        (s.namespace.clone().or_else(|| object.namespace()).unwrap_or_default(), s.name.clone())
    });
    Fact::Flux(FluxFact {
        joins: joins(object),
        verdict: verdict(object, object.spec.suspend, &status),
        version: chart,
        facets,
        natural: Natural::Chart,
        git_source,
        inventory: inventory(&status),
        covers: true,
        elsewhere: object.spec.kube_config.is_some(),
    })
}

/// What is kept of a Deployment or its kin; nothing of one that Flux did not make.
pub fn workload(kind: Kind, object: &Workload) -> Option<Fact> {
    let label = |keys: [&str; 2]| {
        let labels = object.labels();
        Some((labels.get(keys[0])?.clone(), labels.get(keys[1])?.clone()))
    };
    // A chart's objects carry both owners when a Kustomization made the HelmRelease: the release is
    // the nearer one.
    let (kind_of_owner, (name, namespace)) = label(HELM_OWNER)
        .map(|l| (Kind::HelmRelease, l))
        .or_else(|| label(KUSTOMIZE_OWNER).map(|l| (Kind::Kustomization, l)))?;
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Some(Fact::Workload(WorkloadFact {
        owner: ObjectKey { kind: kind_of_owner, namespace, name },
        verdict: health::workload(kind.name(), generation, terminating, &object.spec, &state),
        images: object.spec.images(),
    }))
}

/// What is kept of a GitRepository.
pub fn git_repository(object: &Source) -> Fact {
    let reference = object.spec.reference.clone().unwrap_or_default();
    let branch = reference
        .branch
        .or_else(|| reference.name.map(|n| n.trim_start_matches("refs/heads/").to_string()))
        .unwrap_or_else(|| if reference.tag.or(reference.semver).is_some() { String::new() } else { "master".into() });
    Fact::Source(Repository { url: object.spec.url.clone(), branch })
}

/// Tag and digest of an OCI revision: `6.1.8@sha256:...`, `sha256:...`, or only a tag.
fn artifact(revision: &str) -> (Option<String>, Option<String>) {
    match revision.rsplit_once('@') {
        Some((tag, digest)) => (Some(tag.into()), Some(digest.into())),
        None if revision.contains(':') => (None, Some(revision.into())),
        None => (Some(revision.into()), None),
    }
}

/// A revision with its long checksums cut, as the flux command line shows it.
pub fn short(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((head, sum)) if sum.len() >= 40 && sum.bytes().all(|b| b.is_ascii_hexdigit()) => {
            format!("{head}:{}", &sum[..8])
        }
        _ => revision.into(),
    }
}

/// Repository and tag (else digest) of an image; a registry's port is no tag.
pub fn image(reference: &str) -> (String, String) {
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    match rest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository.into(), tag.into()),
        _ => (rest.into(), digest.unwrap_or("latest").into()),
    }
}
