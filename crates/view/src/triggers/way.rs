//! How objects of Flux lead to each other: from a member to its sources, and from a source to what changes it.

use std::collections::BTreeSet;

use sluice_core::fleet::ObjectKey;
use sluice_core::fleet::observed_cluster::MAX_NESTING;
use sluice_core::fleet::trigger_fact::{HookName, TriggerFact};

use super::objects::TriggerObject;

/// Through what a member gets new revisions.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The member, and the Kustomization that made it.
    pub applied: Vec<ObjectKey>,
    /// The sources of these.
    pub sources: BTreeSet<ObjectKey>,
}

/// Returns the way of a member. `get` returns an object that may be shown.
pub(super) fn way(member: &ObjectKey, get: impl Fn(&ObjectKey) -> Option<TriggerObject>) -> Way {
    let mut way = Way::default();
    let mut next = Some(member.clone());
    while let Some(key) = next.take() {
        if let Some(TriggerObject::Applied(applied)) = get(&key) {
            for source in [applied.chart, applied.source].into_iter().flatten() {
                add_sources(source, &get, &mut way.sources);
            }
            next = applied.owner.filter(|owner| *owner != key && !way.applied.contains(owner));
        }
        way.applied.push(key);
    }
    way
}

/// Adds a source, the source that it is made from, and so on.
fn add_sources(
    first: ObjectKey,
    get: &impl Fn(&ObjectKey) -> Option<TriggerObject>,
    sources: &mut BTreeSet<ObjectKey>,
) {
    let mut next = Some(first);
    // A hostile cluster may have sources in a circle.
    for _ in 0..MAX_NESTING {
        let Some(key) = next.take().filter(|key| !sources.contains(key)) else { return };
        next = match get(&key) {
            Some(TriggerObject::Source(source)) => source.made_from,
            _ => None,
        };
        sources.insert(key);
    }
}

/// Whether an automation writes into the repository of one of these sources.
pub(super) fn writes_to(fact: &TriggerFact, sources: &BTreeSet<ObjectKey>) -> bool {
    match fact {
        TriggerFact::ImageUpdateAutomation { repository: Some(repository), .. } => {
            sources.contains(repository)
        }
        _ => false,
    }
}

/// Whether a Receiver has one of these objects reconciled.
pub(super) fn reconciles_any(fact: &TriggerFact, objects: &BTreeSet<ObjectKey>) -> bool {
    let TriggerFact::Receiver { objects: named, .. } = fact else { return false };
    // There may be thousands of Receivers and of objects, so no object is compared with each name.
    named.iter().any(|named| {
        let name = named.name.clone().unwrap_or_default();
        let first = ObjectKey { kind: named.kind, namespace: named.namespace.clone(), name };
        objects.range(first..).next().is_some_and(|key| named.may_contain(key))
    })
}

/// Returns those of these objects that a Receiver has reconciled.
pub(super) fn reconciled<'a>(fact: &TriggerFact, objects: &'a BTreeSet<ObjectKey>) -> Vec<&'a ObjectKey> {
    let TriggerFact::Receiver { objects: named, .. } = fact else { return Vec::new() };
    objects.iter().filter(|key| named.iter().any(|named| named.may_contain(key))).collect()
}

/// Returns the hook at a Provider's address, if it is one of this pipeline.
pub(super) fn hook_of<'a>(fact: &'a TriggerFact, (namespace, name): (&str, &str)) -> Option<&'a HookName> {
    let TriggerFact::Provider { hook: Some(hook), .. } = fact else { return None };
    (hook.namespace == namespace && hook.pipeline == name).then_some(hook)
}
