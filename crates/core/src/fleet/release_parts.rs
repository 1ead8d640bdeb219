//! The objects of Helm releases, so that looking for those of one release does not look at all objects of its namespace.

use std::collections::BTreeSet;

use super::fact::{Fact, ReleaseName};
use super::object_key::ObjectKey;
use super::watched_kind::Kind;

/// The kinds and names of objects that Helm annotated with a release of their own namespace, by `namespace/name` of the
/// release. An object takes about 150 bytes here.
#[derive(Debug, Default)]
pub(super) struct ReleaseParts(BTreeSet<(Box<str>, Kind, Box<str>)>);

impl ReleaseParts {
    /// Adds an object if it is part of a release.
    pub(super) fn add(&mut self, key: &ObjectKey, fact: &Fact) {
        self.0.extend(part(key, fact));
    }

    /// Removes an object that had this fact.
    pub(super) fn remove(&mut self, key: &ObjectKey, former: &Fact) {
        if let Some(part) = part(key, former) {
            self.0.remove(&part);
        }
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the objects of a release, ordered by kind and name.
    pub(super) fn of(&self, release: &ReleaseName) -> impl Iterator<Item = ObjectKey> {
        let (wanted, namespace) = (release_id(release), release.namespace.clone());
        let parts = self.0.range((wanted.clone(), Kind::Kustomization, Box::default())..);
        parts.take_while(move |(id, ..)| *id == wanted).map(move |(_, kind, name)| ObjectKey {
            kind: *kind,
            namespace: namespace.clone(),
            name: name.to_string(),
        })
    }
}

fn release_id(release: &ReleaseName) -> Box<str> {
    format!("{}/{}", release.namespace, release.name).into()
}

/// Returns the entry of an object; `None` if it is part of no release in its own namespace.
fn part(key: &ObjectKey, fact: &Fact) -> Option<(Box<str>, Kind, Box<str>)> {
    Some((release_id(fact.release_here(key)?), key.kind, key.name.as_str().into()))
}

#[cfg(test)]
mod tests {
    use super::super::cluster_event::ClusterEvent;
    use super::super::fact::{HealthStatus, Owned, WorkloadFact};
    use super::super::observed_cluster::ObservedCluster;
    use super::super::owned_check::SpecVersion;
    use super::*;

    fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.into(), name: name.into() }
    }

    fn release(namespace: &str, name: &str) -> ReleaseName {
        ReleaseName { namespace: namespace.into(), name: name.into() }
    }

    /// Returns a workload of the HelmRelease `apps/podinfo`, with these annotations of Helm.
    fn workload(release: Option<ReleaseName>) -> Fact {
        let (spec_version, status) = (SpecVersion::default(), HealthStatus::default());
        let owner = Some(key(Kind::HelmRelease, "apps", "podinfo"));
        let release = release.map(Box::new);
        Fact::Workload(WorkloadFact { spec_version, owner, release, status, images: Vec::new() })
    }

    fn apply(cluster: &mut ObservedCluster, key: ObjectKey, release: Option<ReleaseName>) {
        cluster.apply(ClusterEvent::Applied(key, workload(release)));
    }

    /// Returns the objects that are looked at for the release `apps/podinfo`.
    fn looked_at(cluster: &ObservedCluster) -> Vec<ObjectKey> {
        let owned = Owned::Release(release("apps", "podinfo"));
        cluster.may_own(&owned).map(|key| key.into_owned()).collect()
    }

    #[test]
    fn for_a_release_only_its_own_objects_are_looked_at() {
        let mut cluster = ObservedCluster::default();
        for n in 0..1_000 {
            let name = format!("d{n}");
            apply(&mut cluster, key(Kind::Deployment, "apps", &name), None);
            let other = Some(release("apps", &format!("other{n}")));
            apply(&mut cluster, key(Kind::StatefulSet, "apps", &name), other);
            let namespace = format!("n{n}");
            apply(
                &mut cluster,
                key(Kind::Deployment, &namespace, &name),
                Some(release(&namespace, "podinfo")),
            );
            apply(&mut cluster, key(Kind::CronJob, &namespace, &name), Some(release("apps", "podinfo")));
        }
        let own = [Kind::Deployment, Kind::CronJob].map(|kind| key(kind, "apps", "web"));
        for key in &own {
            apply(&mut cluster, key.clone(), Some(release("apps", "podinfo")));
        }
        assert_eq!(looked_at(&cluster), own);
    }

    #[test]
    fn an_object_is_part_of_the_release_that_its_newest_annotations_name() {
        let mut cluster = ObservedCluster::default();
        let web = key(Kind::Deployment, "apps", "web");
        let (own, other) = (release("apps", "podinfo"), release("apps", "other"));
        for (annotations, is_part) in
            [(None, false), (Some(own.clone()), true), (Some(other), false), (Some(own.clone()), true)]
        {
            apply(&mut cluster, web.clone(), annotations.clone());
            assert_eq!(looked_at(&cluster).len(), usize::from(is_part), "{annotations:?}");
        }
        cluster.apply(ClusterEvent::Deleted(web.clone()));
        assert_eq!(looked_at(&cluster), []);
        apply(&mut cluster, web, Some(own));
        cluster.apply(ClusterEvent::Connected);
        assert_eq!(looked_at(&cluster), [], "a new connection starts without objects");
    }
}
