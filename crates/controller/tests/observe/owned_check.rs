//! A new revision counts when the watches have reported what the API server says that Flux has changed for it.

use serde_json::{Value, json};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::ClusterState;
use sluice_core::fleet::owned_check::FoundObject;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind};
use sluice_core::observed::Health;

use crate::support::{
    by_app, deployment, fact, helm_release, kustomization, list_all, listed, local, namespace, with,
};

const HUB: ClusterKey = ClusterKey::Local;

/// Returns a Kustomization that is Ready at a tag of an OCI artifact.
fn at(tag: &str) -> Value {
    let object = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let object = with(object, "spec/sourceRef", json!({"kind": "OCIRepository", "name": "podinfo"}));
    with(object, "status/lastAppliedRevision", format!("{tag}@sha256:aa").into())
}

/// Returns the healthy Deployment of the Kustomization, at a generation of its spec.
fn web(generation: i64) -> Value {
    let object = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let object = with(object, "metadata/generation", generation.into());
    with(object, "status/observedGeneration", generation.into())
}

/// Returns the Deployment at a generation that is not rolled out yet.
fn rolling_out(generation: i64) -> Value {
    with(web(generation - 1), "metadata/generation", generation.into())
}

fn apply(index: &mut Index, object: &Value) {
    let (key, fact) = fact(object);
    index.apply(&HUB, ClusterEvent::Applied(key, fact));
}

/// Applies an object, and returns the only read that follows.
fn read_after(index: &mut Index, object: &Value) -> OwnedRead {
    apply(index, object);
    let mut reads = index.take_reads(&HUB);
    assert_eq!(reads.len(), 1, "{reads:?}");
    reads.remove(0)
}

fn found(object: &Value) -> FoundObject {
    let (key, fact) = fact(object);
    (key, fact.spec_version().unwrap())
}

fn answer(index: &mut Index, read: &OwnedRead, found: Result<Vec<FoundObject>, String>) {
    index.apply(&HUB, ClusterEvent::OwnedWasRead(read.owner.clone(), read.number, found));
}

fn podinfo(index: &Index) -> (Health, String) {
    let observed = by_app("Kustomization", "apps").observe(index);
    (observed.health(), observed.members[0].message.clone())
}

fn has_check(index: &Index, read: &OwnedRead) -> bool {
    index.cluster(&HUB).unwrap().reads_of(&read.owner, read.number).is_some()
}

#[test]
fn a_new_revision_counts_when_its_deployment_has_changed_and_is_healthy() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    assert_eq!(podinfo(&index).0, Health::Ready);
    let read = read_after(&mut index, &at("1.1.0"));
    assert_eq!(read.scopes.iter().collect::<Vec<_>>(), [&(Kind::Deployment, "apps".to_string())]);
    assert_eq!(podinfo(&index).0, Health::Progressing, "its Deployment may have changed");
    answer(&mut index, &read, Ok(vec![found(&web(4))]));
    let (health, why) = podinfo(&index);
    assert_eq!(health, Health::Progressing);
    assert!(why.contains("Deployment apps/web"), "{why}");
    apply(&mut index, &rolling_out(4));
    assert_eq!(podinfo(&index).0, Health::Progressing);
    assert!(podinfo(&index).1.starts_with("Deployment web: "), "{:?}", podinfo(&index));
    apply(&mut index, &web(4));
    assert_eq!(podinfo(&index).0, Health::Ready);
    // The next read ends the check, so that nothing is missing when the Deployment is gone later.
    assert!(has_check(&index, &read));
    let again = index.cluster(&HUB).unwrap().read_of(&read.owner, read.number).unwrap();
    answer(&mut index, &again, Ok(vec![found(&web(4))]));
    assert!(!has_check(&index, &read));
}

/// Returns a Kustomization that owns a Deployment and a StatefulSet, so that the watches of three kinds report on it.
fn two_workloads() -> Value {
    kustomization("apps", "podinfo", &["apps_web_apps_Deployment", "apps_db_apps_StatefulSet"])
}

/// Returns a healthy workload of the Kustomization, with a new image at each generation.
fn workload(kind: &str, name: &str, generation: i64) -> Value {
    let image = format!("{name}:{generation}");
    let object = deployment("apps", name, ("kustomize", "apps", "podinfo"), &image);
    let object = with(object, "kind", kind.into());
    let object = with(object, "metadata/generation", generation.into());
    let object = with(object, "status/currentReplicas", 1.into());
    with(object, "status/observedGeneration", generation.into())
}

/// Returns the Deployment of the Kustomization with two workloads.
fn new_web(generation: i64) -> Value {
    workload("Deployment", "web", generation)
}

/// Returns the StatefulSet of the same Kustomization.
fn new_db(generation: i64) -> Value {
    workload("StatefulSet", "db", generation)
}

/// Answers the read that follows a new image of the Deployment. The target is not Ready until the watch of StatefulSets
/// has reported the same change.
fn waits_for_the_stateful_set(index: &mut Index, read: &OwnedRead, generation: i64) {
    let both = || Ok(vec![found(&new_web(generation)), found(&new_db(generation))]);
    answer(index, read, both());
    let (health, why) = podinfo(index);
    assert!(health == Health::Progressing && why.contains("StatefulSet apps/db"), "{health:?} {why}");
    let read = read_after(index, &new_db(generation));
    answer(index, &read, both());
    assert_eq!(podinfo(index).0, Health::Ready);
}

#[test]
fn images_of_a_late_first_list_are_no_revision_while_other_watches_lag() {
    let mut index = Index::default();
    index.apply(&HUB, ClusterEvent::Connected);
    let objects = [namespace("apps"), two_workloads(), new_db(1)];
    for kind in Kind::DECIDING.into_iter().filter(|kind| *kind != Kind::Deployment) {
        index.apply(&HUB, listed(kind, &objects));
    }
    // Flux changes both workloads before the API server lists the Deployments.
    index.apply(&HUB, listed(Kind::Deployment, &[new_web(2)]));
    let read = index.take_reads(&HUB).remove(0);
    assert!(
        by_app("Kustomization", "apps").try_observe(&index).is_err(),
        "it has no state before the answer"
    );
    waits_for_the_stateful_set(&mut index, &read, 2);
}

#[test]
fn the_first_lists_of_targets_with_one_workload_and_of_other_namespaces_cost_no_read() {
    for (targets, owner) in [("apps", at("1.0.0")), ("shop", two_workloads())] {
        let mut index = Index::default();
        index.set_target_namespaces(&HUB, [targets.to_string()].into());
        list_all(&mut index, &HUB, &[namespace("apps"), owner, web(3)]);
        assert_eq!(index.take_reads(&HUB), []);
        assert!(by_app("Kustomization", "apps").try_observe(&index).is_ok());
    }
}

#[test]
fn a_first_check_that_fails_keeps_only_its_target_from_being_ready() {
    let mut index = Index::default();
    list_all(&mut index, &HUB, &[namespace("apps"), two_workloads(), web(1), new_db(1)]);
    let read = index.take_reads(&HUB).remove(0);
    assert_eq!(*index.cluster(&HUB).unwrap().state(), ClusterState::Up, "no other target waits for it");
    answer(&mut index, &read, Err("no answer".into()));
    assert_eq!(podinfo(&index).0, Health::Progressing);
}

#[test]
fn new_images_of_some_workloads_are_no_revision_while_other_watches_lag() {
    let mut index = local(&[namespace("apps"), two_workloads(), new_web(1), new_db(1)]);
    assert_eq!(podinfo(&index), (Health::Ready, String::new()));
    // The watch of Kustomizations has reported nothing yet, and that of StatefulSets lags.
    let read = read_after(&mut index, &new_web(2));
    waits_for_the_stateful_set(&mut index, &read, 2);
    // The same if Flux creates a workload again, and the watch ends before it reports that.
    let (web, _) = fact(&new_web(2));
    index.apply(&HUB, ClusterEvent::Deleted(web.clone()));
    index.apply(&HUB, listed(Kind::Deployment, &[new_web(3)]));
    let read = index.take_reads(&HUB).remove(0);
    waits_for_the_stateful_set(&mut index, &read, 3);
    index.apply(&HUB, ClusterEvent::Deleted(web));
    let read = read_after(&mut index, &new_web(4));
    waits_for_the_stateful_set(&mut index, &read, 4);
    // A change without new images, such as a scaling, costs no read.
    apply(&mut index, &with(new_web(4), "metadata/generation", 5.into()));
    assert_eq!(index.take_reads(&HUB), []);
}

#[test]
fn new_images_of_one_of_two_releases_are_no_revision_while_other_watches_lag() {
    let labels = json!({
        "kustomize.toolkit.fluxcd.io/namespace": "apps", "kustomize.toolkit.fluxcd.io/name": "podinfo",
    });
    let release = |name: &str| with(helm_release("apps", name, "1.0.0"), "metadata/labels", labels.clone());
    let changed = |name: &str| with(release(name), "metadata/generation", 3.into());
    let workload = |name: &str, image: &str| {
        let annotations =
            json!({"meta.helm.sh/release-namespace": "apps", "meta.helm.sh/release-name": name});
        let object = deployment("apps", name, ("helm", "apps", name), image);
        with(object, "metadata/annotations", annotations)
    };
    let made = ["apps_web_helm.toolkit.fluxcd.io_HelmRelease", "apps_db_helm.toolkit.fluxcd.io_HelmRelease"];
    let owner = kustomization("apps", "podinfo", &made);
    let (web, db) = (workload("web", "web:1"), workload("db", "db:1"));
    let mut index = local(&[namespace("apps"), owner, release("web"), release("db"), web, db]);
    assert_eq!(podinfo(&index), (Health::Ready, String::new()));
    // Flux has changed both releases. The watches of HelmReleases and Kustomizations lag.
    apply(&mut index, &workload("web", "web:2"));
    let reads = index.take_reads(&HUB);
    let read = reads.iter().find(|read| read.owner.kind == Kind::Kustomization).unwrap();
    assert_eq!(podinfo(&index).0, Health::Progressing);
    answer(&mut index, read, Ok(vec![found(&changed("web")), found(&changed("db"))]));
    let (health, why) = podinfo(&index);
    assert!(health == Health::Progressing && why.contains("HelmRelease apps/"), "{health:?} {why}");
}

#[test]
fn a_read_that_fails_is_no_proof() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    let read = read_after(&mut index, &at("1.1.0"));
    answer(&mut index, &read, Err("no answer".into()));
    let (health, why) = podinfo(&index);
    assert!(health == Health::Progressing && why.ends_with("no answer"), "{health:?} {why}");
    answer(&mut index, &read, Ok(vec![found(&web(3))]));
    assert_eq!(podinfo(&index).0, Health::Ready);
}

#[test]
fn an_answer_to_an_earlier_check_does_not_end_a_later_one() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    let early = read_after(&mut index, &at("1.1.0"));
    let late = read_after(&mut index, &at("1.2.0"));
    answer(&mut index, &early, Ok(vec![found(&web(3))]));
    assert_eq!(podinfo(&index).0, Health::Progressing);
    answer(&mut index, &late, Ok(vec![found(&web(3))]));
    assert_eq!(podinfo(&index).0, Health::Ready);
}

#[test]
fn a_state_that_is_known_needs_no_read() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    for same in [at("1.0.0"), with(at("1.0.0"), "metadata/resourceVersion", "9".into())] {
        apply(&mut index, &same);
        assert_eq!(index.take_reads(&HUB), [], "{same}");
    }
    for other in [
        with(at("1.1.0"), "spec/suspend", true.into()),
        with(at("1.1.0"), "status/inventory/entries", json!([])),
        with(at("1.1.0"), "spec/kubeConfig", json!({"secretRef": {"name": "prod"}})),
    ] {
        apply(&mut index, &other);
        assert_eq!(index.take_reads(&HUB), [], "{other}");
    }
}

#[test]
fn an_object_that_becomes_ready_needs_a_read() {
    let failed = with(at("1.1.0"), "status/conditions/0/status", "False".into());
    let changed =
        with(with(at("1.0.0"), "metadata/generation", 3.into()), "status/observedGeneration", 3.into());
    let changed = with(changed, "status/conditions/0/observedGeneration", 3.into());
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    apply(&mut index, &failed);
    assert_eq!(index.take_reads(&HUB), []);
    read_after(&mut index, &at("1.1.0"));
    read_after(&mut index, &changed);
    // An object that was not known before, and one of a later list.
    let mut index = local(&[namespace("apps"), web(3)]);
    read_after(&mut index, &at("1.0.0"));
    index.apply(&HUB, listed(Kind::Kustomization, &[at("1.1.0")]));
    assert_eq!(index.take_reads(&HUB).len(), 1);
    index.apply(&HUB, listed(Kind::Kustomization, &[at("1.1.0")]));
    assert_eq!(index.take_reads(&HUB), []);
}

#[test]
fn a_release_without_inventory_is_read_in_its_namespace() {
    let release = |chart| with(helm_release("apps", "podinfo", chart), "spec/targetNamespace", "shop".into());
    let mut index = local(&[namespace("apps"), release("1.0.0")]);
    let read = read_after(&mut index, &release("1.1.0"));
    assert_eq!(read.scopes.len(), Kind::OWNED.len());
    assert!(read.scopes.iter().all(|(_, namespace)| namespace == "shop"), "{:?}", read.scopes);
}

#[test]
fn a_kind_that_no_watch_reports_does_not_delay_the_check() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    index.apply(&HUB, ClusterEvent::Absent(Kind::Deployment));
    assert_eq!(read_after(&mut index, &at("1.1.0")).scopes.len(), 0);
    let mut index = local(&[namespace("apps"), at("1.0.0")]);
    index.set_target_namespaces(&HUB, ["shop".to_string()].into());
    index.apply(&HUB, ClusterEvent::ByNamespace(Kind::Deployment));
    assert_eq!(read_after(&mut index, &at("1.1.0")).scopes.len(), 0);
}

/// Flux has waited for the Deployment itself, so only a revision of images depends on it.
#[test]
fn a_revision_that_flux_has_waited_for_counts_immediately_unless_it_is_one_of_images() {
    let waits = |tag| with(at(tag), "spec/wait", true.into());
    let mut index = local(&[namespace("apps"), waits("1.0.0"), web(3)]);
    let read = read_after(&mut index, &waits("1.1.0"));
    let images = |index: &Index| by_app("Kustomization", "apps").with_images().observe(index).health();
    assert_eq!((podinfo(&index).0, images(&index)), (Health::Ready, Health::Progressing));
    answer(&mut index, &read, Ok(vec![found(&web(3))]));
    assert_eq!((podinfo(&index).0, images(&index)), (Health::Ready, Health::Ready));
}

#[test]
fn a_kind_that_is_listed_too_late_does_not_prove_a_revision() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web(3)]);
    index.apply(&HUB, ClusterEvent::TooLarge(Kind::Deployment, None, "too large".into()));
    let read = read_after(&mut index, &at("1.1.0"));
    answer(&mut index, &read, Ok(vec![found(&web(4))]));
    assert_eq!(by_app("Kustomization", "apps").error(&index), "too large");
    // This list was requested before Flux changed the Deployment.
    index.apply(&HUB, listed(Kind::Deployment, &[web(3)]));
    assert_eq!(podinfo(&index).0, Health::Progressing);
    let read = index.take_reads(&HUB).remove(0);
    answer(&mut index, &read, Ok(vec![found(&web(4))]));
    assert_eq!(podinfo(&index).0, Health::Progressing);
    index.apply(&HUB, listed(Kind::Deployment, &[web(4)]));
    assert_eq!(podinfo(&index).0, Health::Ready);
}

#[test]
fn a_deployment_that_was_created_again_is_another_one() {
    let of = |uid: &str| with(web(1), "metadata/uid", uid.into());
    let mut index = local(&[namespace("apps"), at("1.0.0"), of("old")]);
    let read = read_after(&mut index, &at("1.1.0"));
    answer(&mut index, &read, Ok(vec![found(&of("new"))]));
    assert_eq!(podinfo(&index).0, Health::Progressing);
    apply(&mut index, &of("new"));
    assert_eq!(podinfo(&index).0, Health::Ready);
}
