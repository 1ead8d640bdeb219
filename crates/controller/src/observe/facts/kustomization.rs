//! The facts of a Kustomization.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use sluice_api::flux::{HealthCheck, Kustomization};
use sluice_core::revision::{Facet, shortened};
use sluice_core::tracks::DefaultFacet;

use super::flux_status::{health_status, inventory, split_by_validity};
use super::metadata::{labelled_pipelines, owner, release, spec_version};
use super::source::{source_key, text};
use crate::observe::health;
use crate::observe::oci_revision::tag_and_digest;
use sluice_core::fleet::fact::Owned;
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};

/// Returns the facts of a Kustomization.
pub fn facts(object: &Kustomization) -> Fact {
    let status = object.status.clone().unwrap_or_default();
    let source = &object.spec.source_ref;
    let applied = status.last_applied_revision.clone().unwrap_or_default();
    let default_facet =
        if source.kind == "OCIRepository" { DefaultFacet::Artifact } else { DefaultFacet::Images };
    let mut facets = BTreeMap::new();
    if !applied.is_empty() {
        if default_facet == DefaultFacet::Artifact {
            let (tag, digest) = tag_and_digest(&applied);
            facets.extend(tag.map(|t| (Facet::Tag, t)));
            facets.extend(digest.map(|d| (Facet::Digest, d)));
        }
        facets.insert(Facet::Source, applied.clone());
    }
    let (facets, invalid) = split_by_validity(facets);
    let short_source = facets.get(&Facet::Source).map(|applied| shortened(applied)).unwrap_or_default();
    let version = facets.get(&Facet::Tag).cloned().unwrap_or(short_source);
    let inventory = inventory(&status).unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    Fact::Flux(Box::new(FluxFact {
        spec_version: spec_version(object),
        pipelines: labelled_pipelines(object),
        owner: owner(Kind::Kustomization, object),
        attempt: status.last_attempted_revision.clone().map(|revision| (generation, revision)),
        is_reconciling: health::is_reconciling(&status.conditions),
        status: health_status(object, object.spec.suspend, &status),
        version,
        facets,
        default_facet,
        source: source_key(source, object.namespace()),
        chart: None,
        content: text(&object.spec.path),
        desired_chart: None,
        origin_revision: status.last_applied_origin_revision.map(String::into_boxed_str),
        covers_owned: object.spec.wait || are_checked(inventory.iter(), &object.spec.health_checks),
        owned: Owned::Inventory(inventory),
        release: release(object),
        invalid,
        gave_up: BTreeMap::new(),
        on_another_cluster: object.spec.kube_config.is_some(),
        owned_check: None,
    }))
}

/// Returns true if Flux checks the health of all objects. Both lists can have thousands of entries.
fn are_checked<'a>(mut inventory: impl Iterator<Item = &'a ObjectKey>, checks: &[HealthCheck]) -> bool {
    let checked: BTreeSet<(&str, &str, &str)> =
        checks.iter().map(|c| (c.kind.as_str(), c.namespace.as_str(), c.name.as_str())).collect();
    inventory
        .all(|owned| checked.contains(&(owned.kind.name(), owned.namespace.as_str(), owned.name.as_str())))
}
