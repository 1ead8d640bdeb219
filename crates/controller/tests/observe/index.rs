//! The index: the targets that an event affects, and the state after it.

use serde_json::{Value, json};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::AffectedTargets;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind};
use sluice_core::observed::Health::{Failed, Progressing, Ready};

use crate::support::{
    answer_reads, applied, by_app, by_label, condition, connect, deployment, fact, helm_release,
    kustomization, labelled, listed, local, namespace, remote, with,
};

fn in_namespaces(namespaces: &[&str]) -> AffectedTargets {
    AffectedTargets::InNamespaces(namespaces.iter().map(ToString::to_string).collect())
}

fn deleted(index: &mut Index, object: &Value) -> AffectedTargets {
    index.apply(&ClusterKey::Local, ClusterEvent::Deleted(fact(object).0))
}

/// The inventory entry of the Deployment [`web`].
const WEB: &str = "runs-here_web_apps_Deployment";

fn with_web_inventory(release: Value) -> Value {
    with(release, "status/inventory", json!({"entries": [{"id": WEB, "v": "v1"}]}))
}

fn web(image: &str) -> Value {
    deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), image)
}

/// A hostile cluster may have a GitRepository that changes each moment, and many namespaces that refer to it.
#[test]
fn a_git_repository_affects_only_namespaces_with_targets_that_refer_to_it() {
    let source = |branch: &str| {
        json!({"kind": "GitRepository", "metadata": {"namespace": "flux", "name": "fleet"},
            "spec": {"url": "https://example.com/fleet.git", "ref": {"branch": branch}}})
    };
    let referring = |namespace: &str, name: &str| {
        with(kustomization(namespace, name, &[]), "spec/sourceRef/namespace", "flux".into())
    };
    let mut index = local(&[referring("apps", "one"), referring("apps", "two"), referring("other", "three")]);
    assert_eq!(
        applied(&mut index, &source("main")),
        in_namespaces(&["apps", "other"]),
        "targets may be anywhere"
    );
    let targets = |namespaces: &[&str]| namespaces.iter().map(ToString::to_string).collect();
    index.set_target_namespaces(&ClusterKey::Local, targets(&["apps", "without"]));
    assert_eq!(applied(&mut index, &source("next")), in_namespaces(&["apps"]));
    deleted(&mut index, &referring("apps", "one"));
    assert_eq!(applied(&mut index, &source("main")), in_namespaces(&["apps"]));
    deleted(&mut index, &referring("apps", "two"));
    assert_eq!(applied(&mut index, &source("next")), in_namespaces(&[]));
}

#[test]
fn an_event_affects_the_targets_of_the_objects_owner() {
    let source = json!({"kind": "GitRepository", "metadata": {"namespace": "flux", "name": "fleet"},
        "spec": {"url": "https://example.com/fleet.git"}});
    let member = kustomization("apps", "podinfo", &[WEB]);
    let member = with(member, "spec/sourceRef/namespace", "flux".into());
    let mut index = local(&[namespace("apps"), member]);
    assert_eq!(
        applied(&mut index, &with_web_inventory(helm_release("other", "podinfo", "1.0.0"))),
        in_namespaces(&["other"])
    );
    assert_eq!(applied(&mut index, &web("web:1")), in_namespaces(&["apps"]));
    assert_eq!(applied(&mut index, &web("web:1")), AffectedTargets::None);
    assert_eq!(applied(&mut index, &source), in_namespaces(&["apps"]));
    assert_eq!(applied(&mut index, &namespace("new")), in_namespaces(&["new"]));
    // A change of the owner affects the targets of both owners.
    assert_eq!(
        applied(&mut index, &deployment("runs-here", "web", ("helm", "other", "podinfo"), "web:1")),
        in_namespaces(&["apps", "other"])
    );
    assert_eq!(deleted(&mut index, &web("web:1")), in_namespaces(&["other"]));
    assert_eq!(deleted(&mut index, &web("web:1")), AffectedTargets::None);
}

#[test]
fn an_event_affects_the_targets_of_all_owners_and_circles_of_owners_end() {
    let release = labelled(
        with_web_inventory(helm_release("inner", "podinfo", "1.0.0")),
        "kustomize.toolkit.fluxcd.io/name",
        "apps",
    );
    let release = labelled(release, "kustomize.toolkit.fluxcd.io/namespace", "flux-system");
    let apps = labelled(
        kustomization("flux-system", "apps", &["inner_podinfo_helm.toolkit.fluxcd.io_HelmRelease"]),
        "kustomize.toolkit.fluxcd.io/name",
        "apps",
    );
    let apps = labelled(apps, "kustomize.toolkit.fluxcd.io/namespace", "flux-system");
    let mut index = local(&[release.clone(), apps]);
    let pod = deployment("runs-here", "web", ("helm", "inner", "podinfo"), "web:1");
    assert_eq!(applied(&mut index, &pod), in_namespaces(&["flux-system", "inner"]));
    // Two objects name each other as owner.
    let one = labelled(
        kustomization("a", "one", &["b_two_kustomize.toolkit.fluxcd.io_Kustomization"]),
        "kustomize.toolkit.fluxcd.io/name",
        "two",
    );
    let one = labelled(one, "kustomize.toolkit.fluxcd.io/namespace", "b");
    let two = labelled(
        kustomization("b", "two", &["a_one_kustomize.toolkit.fluxcd.io_Kustomization"]),
        "kustomize.toolkit.fluxcd.io/name",
        "one",
    );
    let two = labelled(two, "kustomize.toolkit.fluxcd.io/namespace", "a");
    assert_eq!(applied(&mut index, &one), in_namespaces(&["a"]));
    assert_eq!(applied(&mut index, &two), in_namespaces(&["a", "b"]));
    let one = labelled(one, "pipelines.weave.works/pipeline", "podinfo");
    assert_eq!(applied(&mut index, &one), in_namespaces(&["a", "b"]));
    applied(&mut index, &namespace("a"));
    assert_eq!(by_label("a").observe(&index).health(), Ready);
}

#[test]
fn a_new_list_removes_deleted_objects_and_returns_the_affected_targets() {
    let release = |ns: &str| {
        labelled(helm_release(ns, "podinfo", "1.0.0"), "pipelines.weave.works/pipeline", "podinfo")
    };
    let mut index = local(&[namespace("a"), namespace("b"), release("a"), release("b")]);
    assert_eq!(by_label("b").members(&index), ["HelmRelease/podinfo"]);
    let again = |objects: &[Value]| listed(Kind::HelmRelease, objects);
    assert_eq!(index.apply(&ClusterKey::Local, again(&[release("a"), release("b")])), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, again(&[release("a")])), in_namespaces(&["b"]));
    assert_eq!(by_label("a").members(&index), ["HelmRelease/podinfo"]);
    assert!(by_label("b").error(&index).contains("no Kustomization or HelmRelease"));
    // A list of one namespace removes objects of that namespace only.
    let empty = ClusterEvent::Listed(Kind::HelmRelease, Some("b".into()), Vec::new());
    index.apply(&ClusterKey::Local, empty);
    assert_eq!(by_label("a").members(&index), ["HelmRelease/podinfo"]);
}

#[test]
fn a_deleted_unlisted_or_absent_workload_is_removed_from_its_owner() {
    let member = kustomization("apps", "podinfo", &[WEB]);
    let images = |index: &Index| by_app("Kustomization", "apps").observe(index).members[0].workloads.len();
    let mut index = local(&[namespace("apps"), member.clone(), web("web:1")]);
    assert_eq!(images(&index), 1);
    deleted(&mut index, &web("web:1"));
    assert_eq!(images(&index), 0);
    for gone in
        [ClusterEvent::Listed(Kind::Deployment, None, Vec::new()), ClusterEvent::Absent(Kind::Deployment)]
    {
        let mut index = local(&[namespace("apps"), member.clone(), web("web:1")]);
        index.apply(&ClusterKey::Local, gone);
        assert_eq!(images(&index), 0);
    }
}

#[test]
fn a_repeated_absent_unreadable_or_lost_event_affects_no_target() {
    let mut index = local(&[]);
    let absent = || ClusterEvent::Absent(Kind::HelmRelease);
    assert_eq!(index.apply(&ClusterKey::Local, absent()), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, absent()), AffectedTargets::None);
    let unreadable = || ClusterEvent::Unreadable(Kind::HelmRelease, None, "why".into());
    assert_eq!(index.apply(&ClusterKey::Local, unreadable()), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, unreadable()), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("gone".into())), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("gone".into())), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("refused".into())), AffectedTargets::All);
}

#[test]
fn a_cluster_is_not_observed_before_every_kind_is_listed() {
    let mut index = Index::default();
    let dev = remote("dev");
    assert!(by_label("apps").on(dev.clone()).try_observe(&index).is_err());
    assert_eq!(index.apply(&dev, ClusterEvent::Connected), AffectedTargets::None);
    for kind in Kind::DECIDING {
        assert!(by_label("apps").on(dev.clone()).try_observe(&index).is_err(), "before {kind:?}");
        assert_eq!(index.clusters_up(), (0, 1));
        let affected =
            index.apply(&dev, listed(kind, &[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]));
        let last = kind == Kind::DECIDING[Kind::DECIDING.len() - 1];
        assert_eq!(affected, if last { AffectedTargets::All } else { AffectedTargets::None }, "{kind:?}");
    }
    assert_eq!(index.clusters_up(), (1, 1));
    assert_eq!(by_app("HelmRelease", "apps").on(dev.clone()).observe(&index).health(), Ready);
    index.forget(&dev);
    assert_eq!(index.clusters_up(), (0, 0));
}

#[test]
fn a_lost_cluster_makes_its_targets_unreadable_and_is_read_again_when_it_is_back() {
    let objects = |chart: &str| [namespace("apps"), helm_release("apps", "podinfo", chart)];
    let (dev, prod) = (remote("dev"), remote("prod"));
    let mut index = Index::default();
    connect(&mut index, &dev, &objects("1.0.0"));
    connect(&mut index, &prod, &objects("1.0.0"));
    index.apply(&dev, ClusterEvent::Lost("cluster fleet/dev refuses the connection: start it".into()));
    let at = |cluster: &ClusterKey| by_app("HelmRelease", "apps").on(cluster.clone());
    assert_eq!(at(&dev).error(&index), "cluster fleet/dev refuses the connection: start it");
    assert_eq!(at(&dev).observe(&index).revision(&[]), None);
    assert_eq!(at(&prod).observe(&index).health(), Ready);
    index.apply(&dev, ClusterEvent::Connected);
    assert!(at(&dev).try_observe(&index).is_err(), "the earlier state may be outdated");
    connect(&mut index, &dev, &objects("1.1.0"));
    assert_eq!(at(&dev).observe(&index).revision(&[]).unwrap().to_string(), "1.1.0");
}

/// Flux reconciles a Kustomization every few minutes, and each time reports for a moment that it is reconciling.
/// While Flux only repeats an attempt, nothing must be written.
#[test]
fn a_periodic_reconciliation_of_a_kustomization_changes_nothing() {
    let reconciling = |object: Value| {
        let conditions = json!([
            condition(
                "Reconciling",
                "True",
                "Progressing",
                "Fetching manifests for revision main@sha1:77",
                2
            ),
            condition("Ready", "Unknown", "Progressing", "Reconciliation in progress", 2),
        ]);
        with(object, "status/conditions", conditions)
    };
    let health = |index: &Index| by_app("Kustomization", "apps").observe(index).health();
    let ready = kustomization("apps", "podinfo", &[]);
    let mut index = local(&[namespace("apps"), ready.clone()]);
    assert_eq!(applied(&mut index, &reconciling(ready.clone())), AffectedTargets::None);
    assert_eq!(health(&index), Ready);
    // Flux tries a new revision.
    let newer = with(reconciling(ready.clone()), "status/lastAttemptedRevision", "main@sha1:77".into());
    assert_eq!(applied(&mut index, &newer), in_namespaces(&["apps"]));
    assert_eq!(health(&index), Progressing);
    // The attempt fails, and stays failed while Flux repeats it.
    let failed = with(
        newer.clone(),
        "status/conditions",
        json!([condition("Ready", "False", "BuildFailed", "no", 2)]),
    );
    assert_eq!(applied(&mut index, &failed), in_namespaces(&["apps"]));
    assert_eq!(applied(&mut index, &newer), AffectedTargets::None);
    assert_eq!(health(&index), Failed);
    // A new generation is a new attempt.
    let edited = with(newer, "metadata/generation", 3.into());
    assert_eq!(applied(&mut index, &edited), in_namespaces(&["apps"]));
    assert_eq!(health(&index), Progressing);
    // Without a former status, the result of the attempt is unknown.
    assert_eq!(health(&local(&[namespace("apps"), reconciling(ready)])), Progressing);
}

/// If a kind is read by namespace, a namespace without targets is not watched. Its earlier state must not count
/// when it has targets again.
#[test]
fn the_objects_of_a_namespace_without_targets_are_removed() {
    let mut index = local(&[namespace("a"), namespace("b")]);
    let hub = ClusterKey::Local;
    let namespaces = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let list = |ns: &str, chart: &str| {
        let facts = vec![fact(&helm_release(ns, "podinfo", chart))];
        ClusterEvent::Listed(Kind::HelmRelease, Some(ns.into()), facts)
    };
    index.set_target_namespaces(&hub, namespaces(&["a", "b"]));
    index.apply(&hub, ClusterEvent::ByNamespace(Kind::HelmRelease));
    index.apply(&hub, list("a", "1.0.0"));
    index.apply(&hub, list("b", "1.0.0"));
    answer_reads(&mut index, &ClusterKey::Local);
    assert_eq!(by_app("HelmRelease", "b").observe(&index).health(), Ready);
    index.set_target_namespaces(&hub, namespaces(&["a"]));
    // Late events of the ended watch change nothing.
    index.apply(&hub, list("b", "1.0.0"));
    applied(&mut index, &helm_release("b", "podinfo", "1.0.0"));
    index.set_target_namespaces(&hub, namespaces(&["a", "b"]));
    assert!(by_app("HelmRelease", "b").try_observe(&index).is_err(), "the earlier state may be outdated");
    assert_eq!(by_app("HelmRelease", "a").observe(&index).health(), Ready);
    index.apply(&hub, list("b", "1.1.0"));
    assert_eq!(by_app("HelmRelease", "b").observe(&index).revision(&[]).unwrap().to_string(), "1.1.0");
}

#[test]
fn a_kind_that_is_too_large_makes_its_targets_unreadable_and_its_objects_are_removed() {
    let mut index = local(&[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]);
    let why = "helmreleases of the local cluster are too large to watch";
    index.apply(&ClusterKey::Local, ClusterEvent::TooLarge(Kind::HelmRelease, None, why.into()));
    assert_eq!(by_app("HelmRelease", "apps").error(&index), why);
    let key = fact(&helm_release("apps", "podinfo", "1.0.0")).0;
    assert!(index.cluster(&ClusterKey::Local).unwrap().object(&key).is_none());
}

#[test]
fn the_objects_of_one_namespace_are_left_out_until_the_next_list() {
    let releases = [helm_release("apps", "podinfo", "1.0.0"), helm_release("shop", "podinfo", "1.0.0")];
    let mut index = local(&[namespace("apps"), namespace("shop"), releases[0].clone(), releases[1].clone()]);
    let why = "helmreleases in namespace apps of the local cluster are too large to watch";
    let kept = vec![fact(&releases[1])];
    let left_out = [("apps".to_string(), why.to_string())].into();
    index.apply(&ClusterKey::Local, ClusterEvent::PartlyListed(Kind::HelmRelease, kept, left_out));
    answer_reads(&mut index, &ClusterKey::Local);
    assert_eq!(by_app("HelmRelease", "apps").error(&index), why);
    assert_eq!(by_app("HelmRelease", "shop").observe(&index).health(), Ready);
    index.apply(&ClusterKey::Local, listed(Kind::HelmRelease, &releases));
    answer_reads(&mut index, &ClusterKey::Local);
    assert_eq!(by_app("HelmRelease", "apps").observe(&index).health(), Ready);
}

/// The rest of the objects would make a revision that nobody has intended.
#[test]
fn a_namespace_that_is_left_out_makes_targets_with_objects_there_unreadable() {
    let waits =
        |inventory: &[&str]| with(kustomization("apps", "podinfo", inventory), "spec/wait", true.into());
    for (kind, ids) in [
        (Kind::Deployment, ["apps_web_apps_Deployment", "eve_web_apps_Deployment"]),
        (Kind::HelmRelease, ["apps_web_apps_Deployment", "eve_a_helm.toolkit.fluxcd.io_HelmRelease"]),
    ] {
        let web = |namespace: &str| {
            deployment(namespace, "web", ("kustomize", "apps", "podinfo"), "example.com/web:1")
        };
        let nested =
            labelled(helm_release("eve", "a", "1.0.0"), "kustomize.toolkit.fluxcd.io/name", "podinfo");
        let nested = labelled(nested, "kustomize.toolkit.fluxcd.io/namespace", "apps");
        let all = [namespace("apps"), namespace("eve"), waits(&ids), web("apps"), web("eve"), nested];
        let mut index = local(&all);
        answer_reads(&mut index, &ClusterKey::Local);
        assert!(by_app("Kustomization", "apps").try_observe(&index).is_ok(), "{kind:?}");
        let why = "objects in namespace eve of the local cluster are too large to watch";
        index.apply(&ClusterKey::Local, ClusterEvent::TooLarge(kind, Some("eve".into()), why.into()));
        answer_reads(&mut index, &ClusterKey::Local);
        assert_eq!(by_app("Kustomization", "apps").error(&index), why, "{kind:?}");
    }
}
