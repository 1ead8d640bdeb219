//! What the facts of all kinds have in common: the key, the labels and the annotations of an object.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube::ResourceExt;
use sluice_api::flux::{HELM_OWNER, HELM_RELEASE, KUSTOMIZE_OWNER};
use sluice_api::{ALLOWED_NAMESPACES, MEMBER_LABELS};

use sluice_core::fleet::fact::{AllowedNamespaces, ReleaseName};
use sluice_core::fleet::owned_check::SpecVersion;
use sluice_core::fleet::{Fact, Kind, ObjectKey};

/// The most bytes of a name in Kubernetes.
const MAX_NAME_BYTES: usize = 253;

/// Returns the key of an object.
pub fn key(kind: Kind, object: &impl ResourceExt) -> ObjectKey {
    ObjectKey { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Returns the version of an object's spec.
pub fn spec_version(object: &impl ResourceExt) -> SpecVersion {
    let mut hasher = DefaultHasher::new();
    object.meta().uid.hash(&mut hasher);
    SpecVersion { uid: hasher.finish(), generation: object.meta().generation.unwrap_or_default() }
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
    Fact::Namespace { allowed: allowed_namespaces(object) }
}

/// Returns the namespaces whose Pipelines may have targets in a namespace or on a cluster; `None` without the
/// annotation.
pub fn allowed_namespaces(object: &impl ResourceExt) -> Option<AllowedNamespaces> {
    object.annotations().get(ALLOWED_NAMESPACES).map(|text| AllowedNamespaces::new(text))
}

/// Returns the pipelines that the member labels of an object name, without duplicates.
pub(super) fn labelled_pipelines(object: &impl ResourceExt) -> Vec<String> {
    let mut names: Vec<String> =
        MEMBER_LABELS.iter().filter_map(|label| object.labels().get(*label).cloned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the Kustomization or HelmRelease that an object's labels name as owner. If the labels name both, the
/// HelmRelease is the direct owner, and the Kustomization owns the HelmRelease. An object that names itself, as
/// Flux's own Kustomization does, has no owner.
pub fn owner(kind: Kind, object: &impl ResourceExt) -> Option<ObjectKey> {
    let label = |kind, keys: [&str; 2]| {
        let labels = object.labels();
        Some(ObjectKey { kind, name: labels.get(keys[0])?.clone(), namespace: labels.get(keys[1])?.clone() })
    };
    let by_helm = label(Kind::HelmRelease, HELM_OWNER);
    by_helm
        .or_else(|| label(Kind::Kustomization, KUSTOMIZE_OWNER))
        .filter(|owner| *owner != key(kind, object))
}

/// Returns a Helm release; `None` if the name or namespace is empty or too long. A hostile cluster may send any
/// text.
pub(super) fn release_name(name: &str, namespace: &str) -> Option<ReleaseName> {
    let is_valid = |text: &str| !text.is_empty() && text.len() <= MAX_NAME_BYTES;
    (is_valid(name) && is_valid(namespace))
        .then(|| ReleaseName { name: name.into(), namespace: namespace.into() })
}

/// Returns the Helm release that contains an object, by Helm's annotations.
pub fn release(object: &impl ResourceExt) -> Option<Box<ReleaseName>> {
    let [name, namespace] = HELM_RELEASE.map(|key| object.annotations().get(key));
    release_name(name?, namespace?).map(Box::new)
}
