//! The fold over watch events: what each concerns, and what it leaves behind.

use serde_json::{Value, json};
use sluice_controller::observe::facts::{ClusterEvent, ClusterKey, Kind};
use sluice_controller::observe::index::{AffectedTargets, Index};
use sluice_core::observed::Health::{Failed, Progressing, Ready};

use crate::support::{
    applied, by_app, by_label, condition, connect, deployment, fact, helm_release, kustomization, labelled,
    listed, local, namespace, remote, with,
};

fn only(namespaces: &[&str]) -> AffectedTargets {
    AffectedTargets::InNamespaces(namespaces.iter().map(ToString::to_string).collect())
}

fn deleted(index: &mut Index, object: &Value) -> AffectedTargets {
    index.apply(&ClusterKey::Local, ClusterEvent::Deleted(fact(object).0))
}

/// The inventory's entry of the Deployment that [`web`] makes.
const WEB: &str = "runs-here_web_apps_Deployment";

fn releasing_web(release: Value) -> Value {
    with(release, "status/inventory", json!({"entries": [{"id": WEB, "v": "v1"}]}))
}

fn web(image: &str) -> Value {
    deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), image)
}

#[test]
fn an_event_concerns_the_targets_of_what_made_the_object() {
    let source = json!({"kind": "GitRepository", "metadata": {"namespace": "flux", "name": "fleet"},
        "spec": {"url": "https://example.com/fleet.git"}});
    let member = kustomization("apps", "podinfo", &[WEB]);
    let member = with(member, "spec/sourceRef/namespace", "flux".into());
    let mut index = local(&[namespace("apps"), member]);
    assert_eq!(
        applied(&mut index, &releasing_web(helm_release("other", "podinfo", "1.0.0"))),
        only(&["other"])
    );
    assert_eq!(applied(&mut index, &web("web:1")), only(&["apps"]));
    assert_eq!(applied(&mut index, &web("web:1")), AffectedTargets::None);
    assert_eq!(applied(&mut index, &source), only(&["apps"]));
    assert_eq!(applied(&mut index, &namespace("new")), only(&["new"]));
    // A new owner concerns both.
    assert_eq!(
        applied(&mut index, &deployment("runs-here", "web", ("helm", "other", "podinfo"), "web:1")),
        only(&["apps", "other"])
    );
    assert_eq!(deleted(&mut index, &web("web:1")), only(&["other"]));
    assert_eq!(deleted(&mut index, &web("web:1")), AffectedTargets::None);
}

#[test]
fn an_event_concerns_everything_above_the_object_and_circles_end() {
    let release = labelled(
        releasing_web(helm_release("inner", "podinfo", "1.0.0")),
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
    assert_eq!(applied(&mut index, &pod), only(&["flux-system", "inner"]));
    // Two that claim to have made each other.
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
    assert_eq!(applied(&mut index, &one), only(&["a"]));
    assert_eq!(applied(&mut index, &two), only(&["a", "b"]));
    let one = labelled(one, "pipelines.weave.works/pipeline", "podinfo");
    assert_eq!(applied(&mut index, &one), only(&["a", "b"]));
    applied(&mut index, &namespace("a"));
    assert_eq!(by_label("a").see(&index).health(), Ready);
}

#[test]
fn listing_again_removes_what_is_gone_and_tells_what_that_concerns() {
    let release = |ns: &str| {
        labelled(helm_release(ns, "podinfo", "1.0.0"), "pipelines.weave.works/pipeline", "podinfo")
    };
    let mut index = local(&[namespace("a"), namespace("b"), release("a"), release("b")]);
    assert_eq!(by_label("b").members(&index), ["HelmRelease/podinfo"]);
    let again = |objects: &[Value]| listed(Kind::HelmRelease, objects);
    assert_eq!(index.apply(&ClusterKey::Local, again(&[release("a"), release("b")])), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, again(&[release("a")])), only(&["b"]));
    assert_eq!(by_label("a").members(&index), ["HelmRelease/podinfo"]);
    assert!(by_label("b").error(&index).contains("no Kustomization or HelmRelease"));
    // Of one namespace only what is there goes.
    let empty = ClusterEvent::Listed(Kind::HelmRelease, Some("b".into()), Vec::new());
    index.apply(&ClusterKey::Local, empty);
    assert_eq!(by_label("a").members(&index), ["HelmRelease/podinfo"]);
}

#[test]
fn what_made_a_workload_forgets_it_when_it_goes_by_whatever_way() {
    let member = kustomization("apps", "podinfo", &[WEB]);
    let images = |index: &Index| by_app("Kustomization", "apps").see(index).members[0].workloads.len();
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
fn a_kind_that_stays_away_is_news_once() {
    let mut index = local(&[]);
    let absent = || ClusterEvent::Absent(Kind::HelmRelease);
    assert_eq!(index.apply(&ClusterKey::Local, absent()), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, absent()), AffectedTargets::None);
    let unreadable = || ClusterEvent::Unreadable(Kind::HelmRelease, None, "why".into());
    assert_eq!(index.apply(&ClusterKey::Local, unreadable()), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, unreadable()), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("gone".into())), AffectedTargets::All);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("gone".into())), AffectedTargets::None);
    assert_eq!(index.apply(&ClusterKey::Local, ClusterEvent::Lost("burnt".into())), AffectedTargets::All);
}

#[test]
fn nothing_is_told_of_a_cluster_before_every_kind_is_known() {
    let mut index = Index::default();
    let dev = remote("dev");
    assert!(by_label("apps").on(dev.clone()).ask(&index).is_err());
    assert_eq!(index.apply(&dev, ClusterEvent::Connected), AffectedTargets::None);
    for kind in Kind::ALL {
        assert!(by_label("apps").on(dev.clone()).ask(&index).is_err(), "before {kind:?}");
        assert_eq!(index.clusters_up(), (0, 1));
        let touched =
            index.apply(&dev, listed(kind, &[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]));
        let last = kind == Kind::ALL[Kind::ALL.len() - 1];
        assert_eq!(touched, if last { AffectedTargets::All } else { AffectedTargets::None }, "{kind:?}");
    }
    assert_eq!(index.clusters_up(), (1, 1));
    assert_eq!(by_app("HelmRelease", "apps").on(dev.clone()).see(&index).health(), Ready);
    index.forget(&dev);
    assert_eq!(index.clusters_up(), (0, 0));
}

#[test]
fn a_lost_cluster_blanks_its_own_targets_and_comes_back_with_what_is_there_then() {
    let objects = |chart: &str| [namespace("apps"), helm_release("apps", "podinfo", chart)];
    let (dev, prod) = (remote("dev"), remote("prod"));
    let mut index = Index::default();
    connect(&mut index, &dev, &objects("1.0.0"));
    connect(&mut index, &prod, &objects("1.0.0"));
    index.apply(&dev, ClusterEvent::Lost("cluster fleet/dev refuses the connection: start it".into()));
    let at = |cluster: &ClusterKey| by_app("HelmRelease", "apps").on(cluster.clone());
    assert_eq!(at(&dev).error(&index), "cluster fleet/dev refuses the connection: start it");
    assert_eq!(at(&dev).see(&index).revision(&[]), None);
    assert_eq!(at(&prod).see(&index).health(), Ready);
    index.apply(&dev, ClusterEvent::Connected);
    assert!(at(&dev).ask(&index).is_err(), "what was known before may be old");
    connect(&mut index, &dev, &objects("1.1.0"));
    assert_eq!(at(&dev).see(&index).revision(&[]).unwrap().to_string(), "1.1.0");
}

/// Flux goes through a Kustomization every few minutes, and each time says for a moment that it is at
/// work. Nothing is written while it only repeats itself.
#[test]
fn going_through_a_kustomization_again_is_no_news() {
    let at_work = |object: Value| {
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
    let health = |index: &Index| by_app("Kustomization", "apps").see(index).health();
    let calm = kustomization("apps", "podinfo", &[]);
    let mut index = local(&[namespace("apps"), calm.clone()]);
    assert_eq!(applied(&mut index, &at_work(calm.clone())), AffectedTargets::None);
    assert_eq!(health(&index), Ready);
    // Now it builds what it has fetched, and that is something new.
    let newer = with(at_work(calm.clone()), "status/lastAttemptedRevision", "main@sha1:77".into());
    assert_eq!(applied(&mut index, &newer), only(&["apps"]));
    assert_eq!(health(&index), Progressing);
    // It fails, and goes on failing while it tries again.
    let failed = with(
        newer.clone(),
        "status/conditions",
        json!([condition("Ready", "False", "BuildFailed", "no", 2)]),
    );
    assert_eq!(applied(&mut index, &failed), only(&["apps"]));
    assert_eq!(applied(&mut index, &newer), AffectedTargets::None);
    assert_eq!(health(&index), Failed);
    // A new generation is something new too.
    let edited = with(newer, "metadata/generation", 3.into());
    assert_eq!(applied(&mut index, &edited), only(&["apps"]));
    assert_eq!(health(&index), Progressing);
    // Whoever comes to know it in the middle does not guess.
    assert_eq!(health(&local(&[namespace("apps"), at_work(calm)])), Progressing);
}

/// Where the whole cluster may not be read, a namespace that no target is in any more is not read: what was
/// known of it must not count when it is wanted again.
#[test]
fn what_was_read_of_a_dropped_namespace_is_forgotten() {
    let mut index = local(&[namespace("a"), namespace("b")]);
    let hub = ClusterKey::Local;
    let wanted = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let list = |ns: &str, chart: &str| {
        let facts = vec![fact(&helm_release(ns, "podinfo", chart))];
        ClusterEvent::Listed(Kind::HelmRelease, Some(ns.into()), facts)
    };
    index.set_target_namespaces(&hub, wanted(&["a", "b"]));
    index.apply(&hub, ClusterEvent::Narrowed(Kind::HelmRelease));
    index.apply(&hub, list("a", "1.0.0"));
    index.apply(&hub, list("b", "1.0.0"));
    assert_eq!(by_app("HelmRelease", "b").see(&index).health(), Ready);
    index.set_target_namespaces(&hub, wanted(&["a"]));
    // What the ended watch still had in the queue changes nothing.
    index.apply(&hub, list("b", "1.0.0"));
    applied(&mut index, &helm_release("b", "podinfo", "1.0.0"));
    index.set_target_namespaces(&hub, wanted(&["a", "b"]));
    assert!(by_app("HelmRelease", "b").ask(&index).is_err(), "what was known of it before may be old");
    assert_eq!(by_app("HelmRelease", "a").see(&index).health(), Ready);
    index.apply(&hub, list("b", "1.1.0"));
    assert_eq!(by_app("HelmRelease", "b").see(&index).revision(&[]).unwrap().to_string(), "1.1.0");
}

#[test]
fn a_kind_that_is_too_large_makes_its_targets_unknown_and_keeps_nothing() {
    let mut index = local(&[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]);
    let why = "helmreleases of the local cluster are too large to watch";
    index.apply(&ClusterKey::Local, ClusterEvent::TooLarge(Kind::HelmRelease, None, why.into()));
    assert_eq!(by_app("HelmRelease", "apps").error(&index), why);
    let key = fact(&helm_release("apps", "podinfo", "1.0.0")).0;
    assert!(index.cluster(&ClusterKey::Local).unwrap().object(&key).is_none());
}
