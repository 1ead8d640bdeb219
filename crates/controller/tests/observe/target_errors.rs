//! The errors of targets that cannot be read. Each error says what to do, and affects no other target.

use serde_json::Value;
use sluice_controller::watch::read_error::{self, ReadError};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind};
use sluice_core::observed::Health;

use crate::support::{
    QueryBuilder, by_app, by_app_ref, by_label, connect, deployment, helm_release, kustomization, local,
    namespace, remote, with,
};

/// Returns the error of a target on the cluster `dev` after a change there. The cluster `prod` has the same
/// objects and no change.
fn error_at_dev(change: impl FnOnce(&mut Index, &ClusterKey), query: fn() -> QueryBuilder) -> String {
    let objects =
        [namespace("apps"), helm_release("apps", "podinfo", "1.0.0"), kustomization("apps", "podinfo", &[])];
    let mut index = Index::default();
    for cluster in [remote("dev"), remote("prod")] {
        connect(&mut index, &cluster, &objects);
    }
    change(&mut index, &remote("dev"));
    let prod = by_app("HelmRelease", "apps").on(remote("prod")).observe(&index);
    assert_eq!((prod.health(), prod.complaint()), (Health::Ready, String::new()));
    let dev = query().on(remote("dev")).observe(&index);
    assert_eq!((dev.health(), dev.members.len()), (Health::Unknown, 0));
    assert_eq!(dev.revision(&[]), None);
    dev.error.expect("the target has an error")
}

fn app() -> QueryBuilder {
    by_app("HelmRelease", "apps")
}

#[test]
fn a_lost_cluster_has_the_error_of_the_connection() {
    let lost = error_at_dev(
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
fn a_missing_namespace_object_or_member_is_an_error() {
    let nothing = |_: &mut Index, _: &ClusterKey| {};
    assert_eq!(
        error_at_dev(nothing, || by_app("HelmRelease", "elsewhere")),
        "there is no namespace elsewhere on cluster fleet/dev: create it, or correct the target's namespace"
    );
    assert_eq!(
        error_at_dev(nothing, || app().with_member("Kustomization", "search")),
        "there is no Kustomization search in namespace apps of cluster fleet/dev: create it, or correct the name in \
         the Pipeline"
    );
    assert_eq!(
        error_at_dev(nothing, || by_label("apps")),
        "no Kustomization or HelmRelease in namespace apps of cluster fleet/dev belongs to this pipeline: give it \
         the label pipelines.weave.works/pipeline: podinfo, or name it in spec.appRef"
    );
}

#[test]
fn the_error_about_an_application_of_another_kind_says_what_to_write() {
    let nothing = |_: &mut Index, _: &ClusterKey| {};
    let ends = ": write kind HelmRelease with apiVersion helm.toolkit.fluxcd.io/v2, or kind Kustomization with \
                apiVersion kustomize.toolkit.fluxcd.io/v1";
    assert_eq!(
        error_at_dev(nothing, || by_app_ref("apps/v1", "Deployment", "apps")),
        format!("spec.appRef is apps/v1 Deployment{ends}")
    );
    let wrong_group =
        error_at_dev(nothing, || by_app_ref("kustomize.toolkit.fluxcd.io/v1", "HelmRelease", "apps"));
    assert_eq!(wrong_group, format!("spec.appRef is kustomize.toolkit.fluxcd.io/v1 HelmRelease{ends}"));
}

#[test]
fn the_api_version_of_an_application_is_ignored() {
    let index = local(&[namespace("apps"), helm_release("apps", "podinfo", "1.0.0")]);
    for version in ["v1", "v2", "v2beta1", "v9"] {
        let query = by_app_ref(&format!("helm.toolkit.fluxcd.io/{version}"), "HelmRelease", "apps");
        assert_eq!(query.observe(&index).health(), Health::Ready, "{version}");
    }
}

#[test]
fn a_missing_kind_is_an_error_if_it_is_needed() {
    let without = |kinds: &'static [Kind]| {
        move |index: &mut Index, dev: &ClusterKey| {
            for kind in kinds {
                index.apply(dev, ClusterEvent::Absent(*kind));
            }
        }
    };
    assert_eq!(
        error_at_dev(without(&[Kind::HelmRelease]), app),
        "cluster fleet/dev has no kind HelmRelease (helm.toolkit.fluxcd.io): install Flux there (flux install)"
    );
    let neither = error_at_dev(without(&[Kind::HelmRelease, Kind::Kustomization]), || by_label("apps"));
    assert!(neither.ends_with("install Flux there (flux install)"), "{neither}");
    // By label, one of the two kinds is enough.
    let one = error_at_dev(without(&[Kind::HelmRelease]), || by_label("apps"));
    assert!(one.contains("give it the label"), "{one}");
}

#[test]
fn the_error_about_a_forbidden_kind_says_what_to_grant() {
    let why = |namespace: Option<&str>| {
        read_error::kind_message(
            &remote("dev"),
            Kind::HelmRelease,
            namespace,
            &ReadError::Forbidden("no".into()),
        )
    };
    let forbidden = error_at_dev(
        |index, dev| {
            index.apply(dev, ClusterEvent::ByNamespace(Kind::HelmRelease));
            let here = Some("apps".to_string());
            index.apply(dev, ClusterEvent::Unreadable(Kind::HelmRelease, here.clone(), why(here.as_deref())));
        },
        app,
    );
    assert_eq!(
        forbidden,
        "cluster fleet/dev forbids Sluice to read helmreleases in namespace apps: grant the verbs get, list and watch \
         on helmreleases (API group \"helm.toolkit.fluxcd.io\") to the user of its kubeconfig"
    );
}

#[test]
fn the_error_about_an_unreadable_kind_has_the_message_of_the_server() {
    let broken = error_at_dev(
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
fn permission_to_read_the_targets_namespace_is_enough() {
    let mut index = local(&[namespace("apps")]);
    let here = || Some("apps".to_string());
    index.apply(&ClusterKey::Local, ClusterEvent::ByNamespace(Kind::HelmRelease));
    assert!(app().try_observe(&index).is_err(), "the namespace has not answered yet");
    let release = crate::support::fact(&helm_release("apps", "podinfo", "1.0.0"));
    index.apply(&ClusterKey::Local, ClusterEvent::Listed(Kind::HelmRelease, here(), vec![release]));
    crate::support::answer_reads(&mut index, &ClusterKey::Local);
    assert_eq!(app().observe(&index).health(), Health::Ready);
    assert!(by_app("HelmRelease", "other").try_observe(&index).is_err(), "that namespace is not watched");
    // If namespaces may not be read, the target's namespace counts as existing.
    index.apply(&ClusterKey::Local, ClusterEvent::Unreadable(Kind::Namespace, None, "forbidden".into()));
    assert_eq!(app().observe(&index).health(), Health::Ready);
}

#[test]
fn unreadable_workloads_are_an_error_unless_flux_waits_for_them() {
    let member = kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment"]);
    let web = deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let observe = |object: &Value, events: Vec<ClusterEvent>| {
        let mut index = local(&[namespace("apps"), object.clone(), web.clone()]);
        for event in events {
            index.apply(&ClusterKey::Local, event);
        }
        by_app("Kustomization", "apps").observe(&index)
    };
    let unreadable = || vec![ClusterEvent::Unreadable(Kind::Deployment, None, "grant it".into())];
    assert_eq!(observe(&member, unreadable()).error.as_deref(), Some("grant it"));
    let by_namespace = || {
        let here = ClusterEvent::Listed(Kind::Deployment, Some("apps".into()), Vec::new());
        vec![ClusterEvent::ByNamespace(Kind::Deployment), here]
    };
    assert_eq!(
        observe(&member, by_namespace()).error.as_deref(),
        Some(
            "Deployment web is in namespace runs-here of the local cluster, where only the targets' own namespaces \
             can be read: grant the verbs get, list and watch on deployments in the whole cluster, or set spec.wait \
             of the Kustomization to true"
        )
    );
    let waiting = with(member, "spec/wait", true.into());
    assert_eq!(observe(&waiting, by_namespace()).error, None);
    // The known images are outdated.
    assert_eq!(observe(&waiting, unreadable()).error.as_deref(), Some("grant it"));
}

#[test]
fn unreadable_images_are_an_error_only_if_the_pipeline_tracks_images() {
    let release = helm_release("apps", "podinfo", "1.0.0");
    let web = deployment("apps", "web", ("helm", "apps", "podinfo"), "web:1");
    let mut index = local(&[namespace("apps"), release, web]);
    let unreadable = ClusterEvent::Unreadable(Kind::Deployment, None, "grant it".into());
    index.apply(&ClusterKey::Local, unreadable);
    assert_eq!(app().with_images().error(&index), "grant it");
    assert_eq!(
        app().observe(&index).health(),
        Health::Ready,
        "a pipeline that tracks charts needs no images"
    );
}

#[test]
fn an_object_without_a_status_is_pending() {
    let release = with(helm_release("apps", "podinfo", "1.0.0"), "status", Value::Null);
    let observed = app().observe(&local(&[namespace("apps"), release]));
    assert_eq!(observed.health(), Health::Pending);
    assert_eq!(observed.complaint(), "HelmRelease/podinfo is Pending: Flux has not reconciled it yet");
    assert_eq!(observed.revision(&[]), None);
}
