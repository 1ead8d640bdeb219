//! The members of a target, and its health and revision.

use serde_json::{Value, json};
use sluice_core::observed::Health::{Failed, Progressing, Ready, Suspended, Unknown};
use sluice_core::repository::Repository;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;

use crate::support::{
    QueryBuilder, by_app, by_label, condition, deployment, helm_release, kustomization, labelled, local,
    namespace, with,
};

const LABEL: &str = "pipelines.weave.works/pipeline";

/// Returns an inventory with the Deployment `web` of a namespace.
fn inventory_of(namespace: &str) -> Value {
    json!({"entries": [{"id": format!("{namespace}_web_apps_Deployment"), "v": "v1"}]})
}

fn tracks(tracks: &[&str]) -> Vec<Track> {
    tracks.iter().map(|track| track.parse().unwrap()).collect()
}

fn revision(query: &QueryBuilder, objects: &[Value], track: &[&str]) -> Option<String> {
    query.observe(&local(objects)).revision(&tracks(track)).map(|r| r.to_string())
}

#[test]
fn members_are_named_by_the_pipeline_by_the_target_or_by_one_of_the_labels() {
    let release = |name: &str| helm_release("apps", name, "1.0.0");
    let index = local(&[
        namespace("apps"),
        release("podinfo"),
        release("named"),
        labelled(release("new-label"), LABEL, "podinfo"),
        labelled(release("older-label"), "pipelines.wego.weave.works/pipeline", "podinfo"),
        labelled(kustomization("apps", "oldest-label", &[]), "pipelines.wego.weave.works/name", "podinfo"),
        labelled(labelled(release("twice"), LABEL, "podinfo"), "pipelines.wego.weave.works/name", "podinfo"),
        release("other"),
    ]);
    let query = by_app("HelmRelease", "apps")
        .with_member("HelmRelease", "named")
        .with_member("HelmRelease", "podinfo");
    let expected = [
        "Kustomization/oldest-label",
        "HelmRelease/named",
        "HelmRelease/new-label",
        "HelmRelease/older-label",
        "HelmRelease/podinfo",
        "HelmRelease/twice",
    ];
    assert_eq!(query.members(&index), expected);
}

#[test]
fn a_labelled_object_in_another_namespace_is_not_a_member() {
    let outside = labelled(helm_release("default", "podinfo", "1.0.0"), LABEL, "podinfo");
    let inside = labelled(helm_release("apps", "podinfo", "1.0.0"), LABEL, "podinfo");
    let index = local(&[namespace("apps"), namespace("default"), outside, inside]);
    assert_eq!(by_label("apps").members(&index), ["HelmRelease/podinfo"]);
    assert_eq!(by_label("apps").observe(&index).members.len(), 1);
}

#[test]
fn two_pipelines_in_one_namespace_have_their_own_members() {
    let one = labelled(helm_release("apps", "one", "1.0.0"), LABEL, "podinfo");
    let two = labelled(kustomization("apps", "two", &[]), LABEL, "search");
    let of_no_pipeline = labelled(helm_release("apps", "three", "1.0.0"), LABEL, "no-such-pipeline");
    let index = local(&[namespace("apps"), one, two, of_no_pipeline]);
    assert_eq!(by_label("apps").members(&index), ["HelmRelease/one"]);
    assert_eq!(by_label("apps").for_pipeline("search").members(&index), ["Kustomization/two"]);
}

#[test]
fn a_kustomization_is_only_as_healthy_as_its_workloads() {
    let member =
        || kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment", "apps_conf__ConfigMap"]);
    let web = || deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let unready = || with(web(), "status/readyReplicas", 0.into());
    let waiting = || with(member(), "spec/wait", true.into());
    let missing = "Deployment web of Kustomization podinfo does not exist yet, or has lost the labels that name its \
                   owner";
    let table = [
        (vec![member(), web()], Ready, ""),
        (vec![member(), unready()], Progressing, "Deployment web: 0 of 1 pods are ready"),
        (vec![member()], Progressing, missing),
        // Its health covers the workloads if it waits, but the images are needed for the revision.
        (vec![waiting()], Progressing, missing),
        // A workload that became unhealthy later counts.
        (vec![waiting(), unready()], Progressing, "Deployment web: 0 of 1 pods are ready"),
    ];
    for (objects, health, message) in table {
        let observed =
            by_app("Kustomization", "apps").observe(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!((observed.members[0].health, observed.members[0].message.as_str()), (health, message));
    }
}

#[test]
fn a_helm_release_covers_its_workloads_until_one_becomes_unhealthy() {
    let inventory = json!({"entries": [{"id": "apps_web_apps_Deployment", "v": "v1"}]});
    let release = || with(helm_release("apps", "podinfo", "1.0.0"), "status/inventory", inventory.clone());
    let web = || deployment("apps", "web", ("helm", "apps", "podinfo"), "web:1");
    let unavailable = with(web(), "status/availableReplicas", 0.into());
    let table = [
        (vec![release()], Ready),
        (vec![release(), web()], Ready),
        (vec![release(), unavailable], Progressing),
    ];
    for (objects, health) in table {
        let observed =
            by_app("HelmRelease", "apps").observe(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!(observed.health(), health);
    }
}

/// A Kustomization may own HelmReleases, and be Ready before they are.
#[test]
fn objects_that_a_member_owns_through_other_flux_objects_count() {
    let inventory = ["inner_search_helm.toolkit.fluxcd.io_HelmRelease"];
    let member = || kustomization("apps", "podinfo", &inventory);
    let by = |object| {
        let object = labelled(object, "kustomize.toolkit.fluxcd.io/name", "podinfo");
        labelled(object, "kustomize.toolkit.fluxcd.io/namespace", "apps")
    };
    let release =
        || by(with(helm_release("inner", "search", "1.0.0"), "status/inventory", inventory_of("inner")));
    let failed = with(
        release(),
        "status/conditions",
        json!([condition("Ready", "False", "UpgradeFailed", "broken", 2)]),
    );
    let web = deployment("inner", "web", ("helm", "inner", "search"), "web:2");
    let unready = with(web.clone(), "status/readyReplicas", 0.into());
    let table = [
        (vec![member()], Progressing, "HelmRelease search of Kustomization podinfo does not exist yet"),
        (vec![member(), release(), web.clone()], Ready, ""),
        (vec![member(), failed, web.clone()], Failed, "HelmRelease search: broken"),
        (vec![member(), release(), unready], Progressing, "Deployment web: 0 of 1 pods are ready"),
    ];
    for (objects, health, message) in table {
        let observed =
            by_app("Kustomization", "apps").observe(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!(observed.health(), health, "{message}");
        assert!(observed.members[0].message.starts_with(message), "{:?}", observed.members[0]);
    }
    let query = by_app("Kustomization", "apps");
    let objects = [member(), release(), web, namespace("apps")];
    assert_eq!(revision(&query, &objects, &[]).as_deref(), Some("2"));
}

#[test]
fn a_member_that_applies_to_another_cluster_is_healthy_only_if_flux_waits() {
    let made = ["apps_web_apps_Deployment"];
    let remote =
        with(kustomization("apps", "podinfo", &made), "spec/kubeConfig/secretRef/name", "dev".into());
    let see = |object: Value| by_app("Kustomization", "apps").observe(&local(&[namespace("apps"), object]));
    assert_eq!(see(remote.clone()).health(), Unknown);
    assert!(
        see(remote.clone()).complaint().contains("set spec.wait to true"),
        "{}",
        see(remote.clone()).complaint()
    );
    assert_eq!(see(with(remote, "spec/wait", true.into())).health(), Ready);
    let release =
        with(helm_release("apps", "podinfo", "1.0.0"), "spec/kubeConfig/secretRef/name", "dev".into());
    assert_eq!(by_app("HelmRelease", "apps").observe(&local(&[namespace("apps"), release])).health(), Ready);
}

#[test]
fn a_target_is_as_healthy_as_its_worst_member_and_names_it() {
    let fine = helm_release("apps", "podinfo", "1.0.0");
    let suspended = with(helm_release("apps", "search", "1.0.0"), "spec/suspend", true.into());
    let query = by_app("HelmRelease", "apps").with_member("HelmRelease", "search");
    let observed = query.observe(&local(&[namespace("apps"), fine, suspended]));
    assert_eq!(observed.health(), Suspended);
    assert!(
        observed.complaint().starts_with("HelmRelease/search is Suspended: "),
        "{}",
        observed.complaint()
    );
    assert_eq!(observed.proves(&[]), None);
}

#[test]
fn the_images_of_all_workloads_are_one_revision() {
    let by = ("kustomize", "apps", "podinfo");
    let made = ["apps_podinfo_apps_Deployment", "apps_podinfo-2_apps_Deployment", "apps_cache_batch_CronJob"];
    let member = kustomization("apps", "podinfo", &made);
    let objects = |images: [&str; 3]| {
        let [a, b, c] = images;
        vec![
            namespace("apps"),
            member.clone(),
            deployment("apps", "podinfo", by, a),
            deployment("apps", "podinfo-2", by, b),
            with(deployment("apps", "cache", by, c), "kind", "CronJob".into()),
        ]
    };
    let query = by_app("Kustomization", "apps");
    let same = objects(["ghcr.io/x/podinfo:6.1.8", "ghcr.io/x/podinfo:6.1.8", "redis:7"]);
    assert_eq!(revision(&query, &same, &[]).as_deref(), Some("podinfo:6.1.8 redis:7"));
    assert_eq!(revision(&query, &same, &["image:ghcr.io/x/podinfo"]).as_deref(), Some("6.1.8"));
    assert_eq!(revision(&query, &same, &["images"]).as_deref(), Some("podinfo:6.1.8 redis:7"));
    // Two tags of one repository are joined, in any order of the workloads.
    let mixed = objects(["ghcr.io/x/podinfo:6.1.8", "ghcr.io/x/podinfo:6.1.7", "redis:7"]);
    let other = objects(["ghcr.io/x/podinfo:6.1.7", "ghcr.io/x/podinfo:6.1.8", "redis:7"]);
    let track = ["image:ghcr.io/x/podinfo"];
    assert_eq!(revision(&query, &mixed, &track).as_deref(), Some("6.1.7,6.1.8"));
    assert_eq!(revision(&query, &other, &track), revision(&query, &mixed, &track));
    let names: Vec<_> = query.observe(&local(&same)).members[0]
        .workloads
        .iter()
        .map(|m| format!("{}/{}", m.kind, m.name))
        .collect();
    assert_eq!(names, ["Deployment/podinfo", "Deployment/podinfo-2", "CronJob/cache"]);
}

#[test]
fn a_target_has_a_revision_only_if_all_tracked_facets_are_known() {
    let release = || {
        let object = with(helm_release("apps", "podinfo", "1.4.0"), "status/inventory", inventory_of("apps"));
        with(object, "status/history/0/appVersion", "2.7".into())
    };
    let web = || deployment("apps", "web", ("helm", "apps", "podinfo"), "ghcr.io/x/web:2.7.1");
    let query = by_app("HelmRelease", "apps");
    let with_web = [namespace("apps"), release(), web()];
    let without = [namespace("apps"), release()];
    assert_eq!(revision(&query, &with_web, &[]).as_deref(), Some("1.4.0"));
    assert_eq!(revision(&query, &with_web, &["app"]).as_deref(), Some("2.7"));
    assert_eq!(revision(&query, &with_web, &["chart", "images"]).as_deref(), Some("chart=1.4.0 web:2.7.1"));
    assert_eq!(revision(&query, &without, &["chart", "images"]), None);
    assert_eq!(revision(&query, &without, &["chart", "source"]), None);
    assert_eq!(revision(&query, &with_web, &["image:ghcr.io/x/other"]), None);
    // Each member has facets of its own.
    let search = helm_release("apps", "search", "3.0.0");
    let both = [namespace("apps"), release(), search];
    let two = by_app("HelmRelease", "apps").with_member("HelmRelease", "search");
    assert_eq!(revision(&two, &both, &[]).as_deref(), Some("podinfo/chart=1.4.0 search/chart=3.0.0"));
    let not_deployed = with(helm_release("apps", "search", ""), "status/history", json!([]));
    assert_eq!(revision(&two, &[namespace("apps"), release(), not_deployed], &[]), None);
}

#[test]
fn a_member_has_a_default_facet_and_a_git_source() {
    let repository = json!({"kind": "GitRepository", "metadata": {"namespace": "flux", "name": "fleet"},
        "spec": {"url": "https://example.com/fleet.git", "ref": {"branch": "main"}}});
    let from_git = with(kustomization("apps", "podinfo", &[]), "spec/sourceRef/namespace", "flux".into());
    let from_oci = with(from_git.clone(), "spec/sourceRef/kind", "OCIRepository".into());
    let chart_in_git = with(
        helm_release("apps", "podinfo", "1.0.0"),
        "spec/chart/spec/sourceRef",
        json!({"kind": "GitRepository", "name": "fleet", "namespace": "flux"}),
    );
    let main = Repository { url: "https://example.com/fleet.git".into(), branch: "main".into() };
    let table = [
        (from_git, "Kustomization", DefaultFacet::Images, Some(main.clone())),
        (from_oci, "Kustomization", DefaultFacet::Artifact, None),
        (chart_in_git, "HelmRelease", DefaultFacet::Chart, Some(main)),
        (helm_release("apps", "podinfo", "1.0.0"), "HelmRelease", DefaultFacet::Chart, None),
    ];
    for (object, kind, default_facet, source) in table {
        let observed = by_app(kind, "apps").observe(&local(&[namespace("apps"), repository.clone(), object]));
        assert_eq!(
            (observed.members[0].default_facet, observed.members[0].source.clone()),
            (default_facet, source),
            "{kind}"
        );
    }
}

/// The time in Flux's condition is the time of the member's health only if no owned object makes the health worse.
#[test]
fn a_member_has_the_time_of_its_condition_only_if_the_health_is_that_of_the_condition() {
    let since = |objects: &[Value]| by_app("Kustomization", "apps").observe(&local(objects)).members[0].since;
    let member = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let web = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let unready = with(web.clone(), "status/readyReplicas", 0.into());
    assert_eq!(
        since(&[namespace("apps"), member.clone(), web]),
        Some("2026-11-21T08:00:00Z".parse().unwrap())
    );
    assert_eq!(since(&[namespace("apps"), member.clone(), unready]), None);
    assert_eq!(since(&[namespace("apps"), with(member, "metadata/generation", 3.into())]), None);
}
