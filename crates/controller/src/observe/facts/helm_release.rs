//! The facts of a HelmRelease.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_api::flux::{ChartSpec, FluxStatus, HelmRelease};
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;

use super::flux_status::{health_status, inventory, split_by_validity};
use super::metadata::{is_valid_name, labelled_pipelines, owner, release, release_name, spec_version};
use super::source::{source_key, text};
use crate::observe::{gave_up, health};
use sluice_core::fleet::fact::{Owned, ReleaseName};
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};

/// The range of all versions, in the syntax of Helm.
const LATEST: &str = "*";

/// Returns the facts of a HelmRelease.
pub fn facts(object: &HelmRelease) -> Fact {
    let status = object.status.clone().unwrap_or_default();
    let newest = status.deployed();
    let mut facets = BTreeMap::new();
    if let Some(chart) = status.chart_version() {
        facets.insert(Facet::Chart, chart.to_string());
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
    let template = spec.chart.as_ref().map(|chart| &chart.spec);
    let source = template.map(|template| &template.source_ref).or(spec.chart_ref.as_ref());
    Fact::Flux(Box::new(FluxFact {
        spec_version: spec_version(object),
        pipelines: labelled_pipelines(object),
        owner: owner(Kind::HelmRelease, object),
        attempt: None,
        is_reconciling: health::is_reconciling(&status.conditions),
        status: health_status(object, object.spec.suspend, &status),
        version: facets.get(&Facet::Chart).cloned().unwrap_or_default(),
        facets,
        default_facet: DefaultFacet::Chart,
        source: source.and_then(|source| source_key(source, object.namespace())),
        chart: status.helm_chart.as_deref().and_then(chart_key),
        content: template.map(|template| text(&template.chart)).unwrap_or_default(),
        desired_chart: template.and_then(desired_chart),
        origin_revision: None,
        owned,
        release: release(object),
        invalid,
        gave_up: gave_up::facets(object, &status),
        covers_owned: waits,
        on_another_cluster: object.spec.kube_config.is_some(),
        owned_check: None,
    }))
}

/// Returns the version or range of versions that a chart template asks for. The helm-controller ignores the version of a
/// chart in a git repository or bucket, and takes the latest version if there is none. Source: the CRD of HelmRelease.
fn desired_chart(template: &ChartSpec) -> Option<Box<str>> {
    let version = if template.version.trim().is_empty() { LATEST } else { template.version.trim() };
    (template.source_ref.kind == "HelmRepository").then(|| text(version).into())
}

/// Returns the key of the HelmChart that a HelmRelease names as `<namespace>/<name>`.
fn chart_key(name: &str) -> Option<ObjectKey> {
    let (namespace, name) = name.split_once('/')?;
    let key = ObjectKey { kind: Kind::HelmChart, namespace: namespace.into(), name: name.into() };
    is_valid_name(&key).then_some(key)
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
