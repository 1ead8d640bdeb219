//! Which clusters and namespaces the Pipelines of a namespace may refer to. A reference within the Pipeline's own
//! namespace is always allowed. For any other, the annotation of the GitopsCluster, or of the namespace on the
//! hub, lists the namespaces whose Pipelines may refer to it. Pure.

use sluice_api::ALLOWED_NAMESPACES;

use crate::observe::target::NoAnswerYet;
use sluice_core::fleet::fact::AllowedNamespaces;
use sluice_core::fleet::observed_cluster::{ClusterState, KindState, ObservedCluster};
use sluice_core::fleet::{ClusterKey, Fact, Kind, ObjectKey};

/// Why Pipelines in namespace `from` may not use a cluster; `None` if they may. With `locked`, references to other
/// namespaces are forbidden unless an annotation allows them.
pub fn cluster_refusal(
    locked: bool,
    cluster: &ClusterKey,
    from: &str,
    allowed: Option<&AllowedNamespaces>,
) -> Option<String> {
    let ClusterKey::Remote { namespace, .. } = cluster else { return None };
    match allowed {
        _ if namespace == from => None,
        Some(allowed) if allowed.admits(from) => None,
        Some(_) if !locked => Some(format!(
            "{cluster} may not be used by Pipelines in namespace {from}: its annotation {ALLOWED_NAMESPACES} does not \
             list that namespace"
        )),
        // The same whether it exists or not.
        _ if locked => Some(format!(
            "{cluster} is not in the Pipeline's own namespace, which --no-cross-namespace-refs forbids: name a \
             GitopsCluster in namespace {from}, or list {from} in the annotation {ALLOWED_NAMESPACES} of {cluster}"
        )),
        _ => None,
    }
}

/// Why Pipelines in namespace `from` may not have a target in a namespace of the hub; `None` if they may. `locked`
/// as in [`cluster_refusal`].
///
/// # Errors
/// When the hub's namespaces are not known yet.
pub fn namespace_refusal(
    locked: bool,
    namespace: &str,
    from: &str,
    hub: Option<&ObservedCluster>,
) -> Result<Option<String>, NoAnswerYet> {
    if namespace == from {
        return Ok(None);
    }
    // Targets on a hub that cannot be read show an error anyway.
    let Some(hub) = hub.filter(|hub| *hub.state() == ClusterState::Up) else { return Ok(None) };
    let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: namespace.into() };
    let allowed = match (hub.kind_state(Kind::Namespace, ""), hub.object(&key)) {
        (None, _) if locked => return Err(NoAnswerYet),
        (Some(KindState::Unreadable(why)), _) if locked => {
            return Ok(Some(format!(
                "namespace {namespace} is not the Pipeline's own, and its annotation cannot be read: \
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
            "namespace {namespace} is not the Pipeline's own, which --no-cross-namespace-refs forbids: create \
             the Pipeline in namespace {namespace}, or list {from} in the annotation {ALLOWED_NAMESPACES} of that \
             Namespace"
        )),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::fleet::ClusterEvent;
    use sluice_core::fleet::index::Index;

    fn allowed(text: &str) -> Option<AllowedNamespaces> {
        Some(AllowedNamespaces::new(text))
    }

    /// Cases: an annotation, and whether it admits namespace `a` with `locked` and without.
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
        for (allowed, if_locked, if_open) in table() {
            for (locked, is_allowed) in [(true, if_locked), (false, if_open)] {
                let refused = cluster_refusal(locked, &fleet, "a", allowed.as_ref());
                assert_eq!(refused.is_none(), is_allowed, "{allowed:?} {refused:?}");
                assert!(
                    refused.is_none_or(|why| why.contains(ALLOWED_NAMESPACES) && why.contains("namespace a"))
                );
                assert_eq!(cluster_refusal(locked, &own, "a", allowed.as_ref()), None);
                assert_eq!(cluster_refusal(locked, &ClusterKey::Local, "a", allowed.as_ref()), None);
            }
        }
    }

    fn hub(namespaces: ClusterEvent) -> Index {
        let mut index = Index::default();
        index.apply(&ClusterKey::Local, ClusterEvent::Connected);
        for kind in Kind::DECIDING {
            index.apply(&ClusterKey::Local, ClusterEvent::Listed(kind, None, Vec::new()));
        }
        index.apply(&ClusterKey::Local, namespaces);
        index
    }

    #[test]
    fn a_target_in_another_namespace_of_the_hub_needs_its_annotation() {
        for (allowed, if_locked, if_open) in table() {
            let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: "prod".into() };
            let index = hub(ClusterEvent::Applied(key, Fact::Namespace { allowed: allowed.clone() }));
            let hub = index.cluster(&ClusterKey::Local);
            for (locked, is_allowed) in [(true, if_locked), (false, if_open)] {
                let refused = namespace_refusal(locked, "prod", "a", hub.as_deref()).unwrap();
                assert_eq!(refused.is_none(), is_allowed, "{allowed:?} {refused:?}");
                assert_eq!(namespace_refusal(locked, "prod", "prod", hub.as_deref()), Ok(None));
            }
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_read_allows_nothing_if_locked() {
        let index = hub(ClusterEvent::Unreadable(Kind::Namespace, None, "grant it".into()));
        let hub = index.cluster(&ClusterKey::Local);
        let refused = namespace_refusal(true, "prod", "a", hub.as_deref()).unwrap().unwrap();
        assert!(refused.ends_with("grant it"), "{refused}");
        assert_eq!(namespace_refusal(false, "prod", "a", hub.as_deref()), Ok(None));
        assert_eq!(namespace_refusal(true, "prod", "a", None), Ok(None));
    }
}
