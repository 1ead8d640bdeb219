//! Which clusters and namespaces the Pipelines of a namespace may refer to. Pure. A reference within the
//! Pipeline's own namespace is always allowed; any other needs the owner of what it refers to: the annotation
//! of the GitopsCluster, or of the namespace on the hub, lists who may.

use sluice_api::ALLOWED_NAMESPACES;

use crate::observe::facts::{AllowedNamespaces, ClusterKey, Fact, Kind, ObjectKey};
use crate::observe::index::{ClusterState, KindState, ObservedCluster};
use crate::observe::target::NoAnswerYet;

/// Why Pipelines in namespace `from` may not use a cluster; `None` when they may. `locked` says that
/// references to other namespaces are forbidden unless an annotation allows them.
pub fn refuses_cluster(
    locked: bool,
    cluster: &ClusterKey,
    from: &str,
    allowed: Option<&AllowedNamespaces>,
) -> Option<String> {
    let ClusterKey::Remote { namespace, .. } = cluster else { return None };
    match allowed {
        _ if namespace == from => None,
        Some(allowed) if allowed.admits(from) => None,
        Some(_) => Some(format!(
            "{cluster} may not be used by Pipelines in namespace {from}: its annotation {ALLOWED_NAMESPACES} does not \
             list that namespace"
        )),
        None if locked => Some(format!(
            "{cluster} is in another namespace than the Pipeline, which --no-cross-namespace-refs forbids: name a \
             GitopsCluster in namespace {from}, or list {from} in the annotation {ALLOWED_NAMESPACES} of that one"
        )),
        None => None,
    }
}

/// Why Pipelines in namespace `from` may not have a target in a namespace of the hub; `None` when they may.
///
/// # Errors
/// [`NoAnswerYet`] before the hub's namespaces are known.
pub fn refuses_namespace(
    locked: bool,
    namespace: &str,
    from: &str,
    hub: Option<&ObservedCluster>,
) -> Result<Option<String>, NoAnswerYet> {
    if namespace == from {
        return Ok(None);
    }
    // Of a hub that cannot be read nothing is shown anyway.
    let Some(hub) = hub.filter(|hub| *hub.state() == ClusterState::Up) else { return Ok(None) };
    let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: namespace.into() };
    let allowed = match (hub.kind_state(Kind::Namespace, ""), hub.object(&key)) {
        (None, _) if locked => return Err(NoAnswerYet),
        (Some(KindState::Unreadable(why)), _) if locked => {
            return Ok(Some(format!(
                "namespace {namespace} is another one than the Pipeline's, and whether it allows that is not known: \
                 {why}"
            )));
        }
        (_, Some(Fact::Namespace { allowed })) => allowed.as_ref(),
        _ => None,
    };
    Ok(match allowed {
        Some(allowed) if allowed.admits(from) => None,
        Some(_) => Some(format!(
            "namespace {namespace} may not be a target of Pipelines in namespace {from}: its annotation \
             {ALLOWED_NAMESPACES} does not list that namespace"
        )),
        None if locked => Some(format!(
            "namespace {namespace} is another one than the Pipeline's, which --no-cross-namespace-refs forbids: create \
             the Pipeline in namespace {namespace}, or list {from} in the annotation {ALLOWED_NAMESPACES} of that \
             Namespace"
        )),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::observe::facts::ClusterEvent;
    use crate::observe::index::Index;

    fn allowed(text: &str) -> Option<AllowedNamespaces> {
        AllowedNamespaces::of(&BTreeMap::from([(ALLOWED_NAMESPACES.to_string(), text.to_string())]))
    }

    /// An annotation, and whether namespace `a` is admitted when references are locked and when they are not.
    fn table() -> [(Option<AllowedNamespaces>, bool, bool); 6] {
        [
            (None, false, true),
            (allowed(""), false, false),
            (allowed("b, c"), false, false),
            (allowed("b, a"), true, true),
            (allowed("aa,ab,a*"), false, false),
            (allowed("*"), true, true),
        ]
    }

    #[test]
    fn a_cluster_of_another_namespace_needs_its_annotation() {
        let fleet = ClusterKey::Remote { namespace: "fleet".into(), name: "prod".into() };
        let own = ClusterKey::Remote { namespace: "a".into(), name: "prod".into() };
        for (allowed, locked, open) in table() {
            for (is_locked, good) in [(true, locked), (false, open)] {
                let refused = refuses_cluster(is_locked, &fleet, "a", allowed.as_ref());
                assert_eq!(refused.is_none(), good, "{allowed:?} {refused:?}");
                assert!(
                    refused.is_none_or(|why| why.contains(ALLOWED_NAMESPACES) && why.contains("namespace a"))
                );
                assert_eq!(refuses_cluster(is_locked, &own, "a", allowed.as_ref()), None);
                assert_eq!(refuses_cluster(is_locked, &ClusterKey::Local, "a", allowed.as_ref()), None);
            }
        }
    }

    fn hub(namespaces: ClusterEvent) -> Index {
        let mut index = Index::default();
        index.apply(&ClusterKey::Local, ClusterEvent::Connected);
        for kind in Kind::ALL {
            index.apply(&ClusterKey::Local, ClusterEvent::Listed(kind, None, Vec::new()));
        }
        index.apply(&ClusterKey::Local, namespaces);
        index
    }

    #[test]
    fn a_target_in_another_namespace_of_the_hub_needs_its_annotation() {
        for (allowed, locked, open) in table() {
            let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: "prod".into() };
            let index = hub(ClusterEvent::Applied(key, Fact::Namespace { allowed: allowed.clone() }));
            let hub = index.cluster(&ClusterKey::Local);
            for (is_locked, good) in [(true, locked), (false, open)] {
                let refused = refuses_namespace(is_locked, "prod", "a", hub).unwrap();
                assert_eq!(refused.is_none(), good, "{allowed:?} {refused:?}");
                assert_eq!(refuses_namespace(is_locked, "prod", "prod", hub), Ok(None));
            }
        }
    }

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        let index = hub(ClusterEvent::Unreadable(Kind::Namespace, None, "grant it".into()));
        let hub = index.cluster(&ClusterKey::Local);
        let refused = refuses_namespace(true, "prod", "a", hub).unwrap().unwrap();
        assert!(refused.ends_with("grant it"), "{refused}");
        assert_eq!(refuses_namespace(false, "prod", "a", hub), Ok(None));
        assert_eq!(refuses_namespace(true, "prod", "a", None), Ok(None));
    }
}
