//! Why a target cannot be read: each trouble has its own sentence, at its own target, that says what
//! to do; and no other target says a word.

use serde_json::Value;
use sluice_controller::observe::facts::{ClusterEvent, ClusterKey, Kind};
use sluice_controller::observe::index::Index;
use sluice_controller::watch::read_error::{self, ReadError};
use sluice_core::observed::Health;

use crate::support::{
    Ask, by_app, by_app_of, by_label, connect, deployment, helm_release, kustomization, local, namespace,
    remote, with,
};

/// A cluster `dev` that is in trouble and a cluster `prod` that is not, with the same objects.
fn trouble(at_dev: impl FnOnce(&mut Index, &ClusterKey), ask: fn() -> Ask) -> String {
    let objects =
        [namespace("apps"), helm_release("apps", "podinfo", "1.0.0"), kustomization("apps", "podinfo", &[])];
    let mut index = Index::default();
    for cluster in [remote("dev"), remote("prod")] {
        connect(&mut index, &cluster, &objects);
    }
    at_dev(&mut index, &remote("dev"));
    let prod = by_app("HelmRelease", "apps").on(remote("prod")).see(&index);
    assert_eq!((prod.health(), prod.complaint()), (Health::Ready, String::new()));
    let dev = ask().on(remote("dev")).see(&index);
    assert_eq!((dev.health(), dev.members.len()), (Health::Unknown, 0));
    assert_eq!(dev.revision(&[]), None);
    dev.error.expect("there is trouble")
}

fn app() -> Ask {
    by_app("HelmRelease", "apps")
}

#[test]
fn a_lost_cluster_says_why() {
    let lost = trouble(
        |index, dev| {
            index.apply(
                dev,
                ClusterEvent::Lost(read_error::cluster_message(
                    dev,
                    &ReadError::Unreachable("connection refused".into()),
                )),
            );
        },
        app,
    );
    assert_eq!(
        lost,
        "cluster fleet/dev refuses the connection (connection refused): start its API server, or correct the \
         address in the kubeconfig in its Secret"
    );
}

#[test]
fn a_missing_namespace_object_or_member_says_so() {
    let nothing = |_: &mut Index, _: &ClusterKey| {};
    assert_eq!(
        trouble(nothing, || by_app("HelmRelease", "elsewhere")),
        "there is no namespace elsewhere on cluster fleet/dev: create it, or correct the target's namespace"
    );
    assert_eq!(
        trouble(nothing, || app().and("Kustomization", "search")),
        "there is no Kustomization search in namespace apps of cluster fleet/dev: create it, or correct the name in \
         the Pipeline"
    );
    assert_eq!(
        trouble(nothing, || by_label("apps")),
        "no Kustomization or HelmRelease in namespace apps of cluster fleet/dev belongs to this pipeline: give it \
         the label pipelines.weave.works/pipeline: podinfo, or name it in spec.appRef"
    );
}

#[test]
fn an_application_of_another_kind_says_what_to_write() {
    let nothing = |_: &mut Index, _: &ClusterKey| {};
    let ends = ": write kind HelmRelease with apiVersion helm.toolkit.fluxcd.io/v2, or kind Kustomization with \
                apiVersion kustomize.toolkit.fluxcd.io/v1";
    assert_eq!(
        trouble(nothing, || by_app_of("apps/v1", "Deployment", "apps")),
        format!("spec.appRef is apps/v1 Deployment{ends}")
    );
    let wrong_group = trouble(nothing, || by_app_of("kustomize.toolkit.fluxcd.io/v1", "HelmRelease", "apps"));
    assert_eq!(wrong_group, format!("spec.appRef is kustomize.toolkit.fluxcd.io/v1 HelmRelease{ends}"));
}

#[test]
fn the_version_of_an_application_is_never_compared() {
    let index = local(&[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]);
    for version in ["v1", "v2", "v2beta1", "v9"] {
        let ask = by_app_of(&format!("helm.toolkit.fluxcd.io/{version}"), "HelmRelease", "apps");
        assert_eq!(ask.see(&index).health(), Health::Ready, "{version}");
    }
}

#[test]
fn a_missing_kind_says_so_where_it_is_needed() {
    let without = |kinds: &'static [Kind]| {
        move |index: &mut Index, dev: &ClusterKey| {
            for kind in kinds {
                index.apply(dev, ClusterEvent::Absent(*kind));
            }
        }
    };
    assert_eq!(
        trouble(without(&[Kind::HelmRelease]), app),
        "cluster fleet/dev has no kind HelmRelease (helm.toolkit.fluxcd.io): install Flux there (flux install)"
    );
    let neither = trouble(without(&[Kind::HelmRelease, Kind::Kustomization]), || by_label("apps"));
    assert!(neither.ends_with("install Flux there (flux install)"), "{neither}");
    // By label either kind will do.
    let one = trouble(without(&[Kind::HelmRelease]), || by_label("apps"));
    assert!(one.contains("give it the label"), "{one}");
}

#[test]
fn a_kind_that_may_not_be_read_says_what_to_grant() {
    let why = |namespace: Option<&str>| {
        read_error::kind_message(
            &remote("dev"),
            Kind::HelmRelease,
            namespace,
            &ReadError::Forbidden("no".into()),
        )
    };
    let forbidden = trouble(
        |index, dev| {
            index.apply(dev, ClusterEvent::ByNamespace(Kind::HelmRelease));
            let here = Some("apps".to_string());
            index.apply(dev, ClusterEvent::Unreadable(Kind::HelmRelease, here.clone(), why(here.as_deref())));
        },
        app,
    );
    assert_eq!(
        forbidden,
        "cluster fleet/dev does not let us read helmreleases in namespace apps: grant the verbs get, list and watch \
         on helmreleases (API group \"helm.toolkit.fluxcd.io\") to the user of its kubeconfig"
    );
}

#[test]
fn a_kind_that_cannot_be_read_for_another_reason_says_that_reason() {
    let broken = trouble(
        |index, dev| {
            let cause = ReadError::Other("conversion webhook failed (500)".into());
            let why = read_error::kind_message(dev, Kind::HelmRelease, None, &cause);
            index.apply(dev, ClusterEvent::Unreadable(Kind::HelmRelease, None, why));
        },
        app,
    );
    assert_eq!(
        broken,
        "helmreleases cannot be read: cluster fleet/dev answers with an error: conversion webhook failed (500)"
    );
}

#[test]
fn what_may_be_read_in_the_targets_namespace_is_enough() {
    let mut index = local(&[namespace("apps")]);
    let here = || Some("apps".to_string());
    index.apply(&ClusterKey::Local, ClusterEvent::ByNamespace(Kind::HelmRelease));
    assert!(app().ask(&index).is_err(), "the namespace has not answered yet");
    let release = crate::support::fact(&helm_release("apps", "podinfo", "1.0.0"));
    index.apply(&ClusterKey::Local, ClusterEvent::Listed(Kind::HelmRelease, here(), vec![release]));
    assert_eq!(app().see(&index).health(), Health::Ready);
    assert!(by_app("HelmRelease", "other").ask(&index).is_err(), "nobody has asked there");
    // Namespaces that may not be read are taken to be there.
    index.apply(&ClusterKey::Local, ClusterEvent::Unreadable(Kind::Namespace, None, "forbidden".into()));
    assert_eq!(app().see(&index).health(), Health::Ready);
}

#[test]
fn workloads_that_cannot_be_seen_prove_nothing_unless_flux_waited_for_them() {
    let member = kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment"]);
    let web = deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let see = |object: &Value, events: Vec<ClusterEvent>| {
        let mut index = local(&[namespace("apps"), object.clone(), web.clone()]);
        for event in events {
            index.apply(&ClusterKey::Local, event);
        }
        by_app("Kustomization", "apps").see(&index)
    };
    let unreadable = || vec![ClusterEvent::Unreadable(Kind::Deployment, None, "grant it".into())];
    assert_eq!(see(&member, unreadable()).error.as_deref(), Some("grant it"));
    let narrowed = || {
        let here = ClusterEvent::Listed(Kind::Deployment, Some("apps".into()), Vec::new());
        vec![ClusterEvent::ByNamespace(Kind::Deployment), here]
    };
    assert_eq!(
        see(&member, narrowed()).error.as_deref(),
        Some(
            "Deployment web is in namespace runs-here of the local cluster, where only the targets' own namespaces \
             can be read: grant the verbs get, list and watch on deployments in the whole cluster, or set spec.wait \
             of the Kustomization to true"
        )
    );
    let waiting = with(member, "spec/wait", true.into());
    assert_eq!(see(&waiting, narrowed()).error, None);
    // Its images were seen before, and nobody knows which they are now.
    assert_eq!(see(&waiting, unreadable()).error.as_deref(), Some("grant it"));
}

#[test]
fn images_that_cannot_be_seen_make_no_revision_together_with_a_chart() {
    let release = helm_release("apps", "podinfo", "1.0.0");
    let web = deployment("apps", "web", ("helm", "apps", "podinfo"), "web:1");
    let mut index = local(&[namespace("apps"), release, web]);
    let unreadable = ClusterEvent::Unreadable(Kind::Deployment, None, "grant it".into());
    index.apply(&ClusterKey::Local, unreadable);
    assert_eq!(app().with_images().error(&index), "grant it");
    assert_eq!(app().see(&index).health(), Health::Ready, "a pipeline that tracks charts needs no images");
}

#[test]
fn an_object_without_a_status_is_there_and_waits() {
    let release = with(helm_release("apps", "podinfo", "1.0.0"), "status", Value::Null);
    let shown = app().see(&local(&[namespace("apps"), release]));
    assert_eq!(shown.health(), Health::Pending);
    assert_eq!(shown.complaint(), "HelmRelease/podinfo is Pending: waiting to be reconciled");
    assert_eq!(shown.revision(&[]), None);
}
