//! The parts of a status that Kustomizations and HelmReleases have in common, and the facets and messages that are safe
//! to keep.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_api::flux::{FluxStatus, InventoryEntry, RECONCILE_ANNOTATION};
use sluice_core::Time;
use sluice_core::revision::Facet;
use sluice_core::value_check;

use crate::observe::health::{self, FluxView};
use sluice_core::fleet::fact::HealthStatus;
use sluice_core::fleet::inventory::Inventory;
use sluice_core::fleet::{Kind, ObjectKey};

/// The most bytes that are kept of a message.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Returns the health of a Kustomization or HelmRelease.
pub(super) fn health_status(object: &impl ResourceExt, suspended: bool, status: &FluxStatus) -> HealthStatus {
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

/// Returns a status without the control characters that a terminal would interpret, without an invalid time, and
/// with a message of at most [`MAX_MESSAGE_BYTES`].
pub(super) fn sanitized(status: HealthStatus) -> HealthStatus {
    let message = crate::record::safe_message(&status.message, MAX_MESSAGE_BYTES);
    let since = status.since.filter(|time| *time != Time::default());
    HealthStatus { message, since, ..status }
}

/// Returns the objects of an inventory that Sluice watches.
pub(super) fn inventory(status: &FluxStatus) -> Option<Inventory> {
    let entries = status.inventory.as_ref()?.entries.iter().filter_map(InventoryEntry::object);
    let watched = entries.filter_map(|(namespace, name, group, kind)| {
        let kind = Kind::of_group(group, kind)?;
        Some(ObjectKey { kind, namespace: namespace.into(), name: name.into() })
    });
    Some(watched.collect())
}

/// Splits facets into valid ones, and invalid ones with the reason for each.
pub(super) fn split_by_validity(
    facets: BTreeMap<Facet, String>,
) -> (BTreeMap<Facet, String>, Vec<(Facet, String)>) {
    let mut valid = BTreeMap::new();
    let mut invalid = Vec::new();
    for (facet, value) in facets {
        match value_check::check(&facet, &value) {
            Ok(()) => drop(valid.insert(facet, value)),
            Err(why) => invalid.push((facet, why)),
        }
    }
    (valid, invalid)
}
