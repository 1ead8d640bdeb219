//! Which objects belong to a target, and what they show together.

use serde_json::{Value, json};
use sluice_core::observed::Health::{Failed, Progressing, Ready, Suspended, Unknown};
use sluice_core::repository::Repository;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;

use crate::support::{
    Ask, by_app, by_label, condition, deployment, helm_release, kustomization, labelled, local, namespace,
    with,
};

const LABEL: &str = "pipelines.weave.works/pipeline";

/// The inventory of what made the Deployment `web` in a namespace.
fn inventory_of(namespace: &str) -> Value {
    json!({"entries": [{"id": format!("{namespace}_web_apps_Deployment"), "v": "v1"}]})
}

fn tracks(words: &[&str]) -> Vec<Track> {
    words.iter().map(|w| w.parse().unwrap()).collect()
}

fn revision(ask: &Ask, objects: &[Value], track: &[&str]) -> Option<String> {
    ask.see(&local(objects)).revision(&tracks(track)).map(|r| r.to_string())
}

#[test]
fn a_member_is_named_by_the_pipeline_by_the_target_or_by_any_of_the_labels() {
    let release = |name: &str| helm_release("apps", name, "1.0.0");
    let index = local(&[
        namespace("apps"),
        release("podinfo"),
        release("named"),
        labelled(release("new-label"), LABEL, "podinfo"),
        labelled(release("older-label"), "pipelines.wego.weave.works/pipeline", "podinfo"),
        labelled(kustomization("apps", "oldest-label", &[]), "pipelines.wego.weave.works/name", "podinfo"),
        labelled(labelled(release("twice"), LABEL, "podinfo"), "pipelines.wego.weave.works/name", "podinfo"),
        release("stranger"),
    ]);
    let ask = by_app("HelmRelease", "apps").and("HelmRelease", "named").and("HelmRelease", "podinfo");
    let expected = [
        "Kustomization/oldest-label",
        "HelmRelease/named",
        "HelmRelease/new-label",
        "HelmRelease/older-label",
        "HelmRelease/podinfo",
        "HelmRelease/twice",
    ];
    assert_eq!(ask.members(&index), expected);
}

#[test]
fn a_labelled_object_outside_the_target_is_no_member() {
    let there = labelled(helm_release("default", "podinfo", "1.0.0"), LABEL, "podinfo");
    let here = labelled(helm_release("apps", "podinfo", "1.0.0"), LABEL, "podinfo");
    let index = local(&[namespace("apps"), namespace("default"), there, here]);
    assert_eq!(by_label("apps").members(&index), ["HelmRelease/podinfo"]);
    assert_eq!(by_label("apps").see(&index).members.len(), 1);
}

#[test]
fn two_pipelines_in_one_namespace_do_not_mix() {
    let one = labelled(helm_release("apps", "one", "1.0.0"), LABEL, "podinfo");
    let two = labelled(kustomization("apps", "two", &[]), LABEL, "search");
    let nobodys = labelled(helm_release("apps", "three", "1.0.0"), LABEL, "no-such-pipeline");
    let index = local(&[namespace("apps"), one, two, nobodys]);
    assert_eq!(by_label("apps").members(&index), ["HelmRelease/one"]);
    assert_eq!(by_label("apps").of("search").members(&index), ["Kustomization/two"]);
}

#[test]
fn a_kustomization_is_as_healthy_as_what_it_made() {
    let member =
        || kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment", "apps_conf__ConfigMap"]);
    let web = || deployment("runs-here", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let unready = || with(web(), "status/readyReplicas", 0.into());
    let waiting = || with(member(), "spec/wait", true.into());
    let not_there = "Deployment web of Kustomization podinfo is not there yet, or has lost the labels that say who \
                     made it";
    let table = [
        (vec![member(), web()], Ready, ""),
        (vec![member(), unready()], Progressing, "Deployment web: 0 of 1 pods are ready"),
        (vec![member()], Progressing, not_there),
        // Waiting, it speaks for what it made; but its images are still to be seen,
        (vec![waiting()], Progressing, not_there),
        // and what is broken since is broken.
        (vec![waiting(), unready()], Progressing, "Deployment web: 0 of 1 pods are ready"),
    ];
    for (objects, health, message) in table {
        let shown = by_app("Kustomization", "apps").see(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!((shown.members[0].health, shown.members[0].message.as_str()), (health, message));
    }
}

#[test]
fn helm_speaks_for_what_it_made_until_that_breaks() {
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
        let shown = by_app("HelmRelease", "apps").see(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!(shown.health(), health);
    }
}

/// A Kustomization may make HelmReleases, and is Ready before they are.
#[test]
fn what_a_member_made_counts_through_other_flux_objects() {
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
        (vec![member()], Progressing, "HelmRelease search of Kustomization podinfo is not there yet"),
        (vec![member(), release(), web.clone()], Ready, ""),
        (vec![member(), failed, web.clone()], Failed, "HelmRelease search: broken"),
        (vec![member(), release(), unready], Progressing, "Deployment web: 0 of 1 pods are ready"),
    ];
    for (objects, health, message) in table {
        let shown = by_app("Kustomization", "apps").see(&local(&[objects, vec![namespace("apps")]].concat()));
        assert_eq!(shown.health(), health, "{message}");
        assert!(shown.members[0].message.starts_with(message), "{:?}", shown.members[0]);
    }
    let ask = by_app("Kustomization", "apps");
    let objects = [member(), release(), web, namespace("apps")];
    assert_eq!(revision(&ask, &objects, &[]).as_deref(), Some("2"));
}

#[test]
fn what_is_applied_to_another_cluster_is_healthy_only_where_flux_waited_for_it() {
    let made = ["apps_web_apps_Deployment"];
    let there = with(kustomization("apps", "podinfo", &made), "spec/kubeConfig/secretRef/name", "dev".into());
    let see = |object: Value| by_app("Kustomization", "apps").see(&local(&[namespace("apps"), object]));
    assert_eq!(see(there.clone()).health(), Unknown);
    assert!(
        see(there.clone()).complaint().contains("set spec.wait to true"),
        "{}",
        see(there.clone()).complaint()
    );
    assert_eq!(see(with(there, "spec/wait", true.into())).health(), Ready);
    let release =
        with(helm_release("apps", "podinfo", "1.0.0"), "spec/kubeConfig/secretRef/name", "dev".into());
    assert_eq!(by_app("HelmRelease", "apps").see(&local(&[namespace("apps"), release])).health(), Ready);
}

#[test]
fn a_target_is_as_healthy_as_its_worst_member_and_names_it() {
    let fine = helm_release("apps", "podinfo", "1.0.0");
    let suspended = with(helm_release("apps", "search", "1.0.0"), "spec/suspend", true.into());
    let ask = by_app("HelmRelease", "apps").and("HelmRelease", "search");
    let shown = ask.see(&local(&[namespace("apps"), fine, suspended]));
    assert_eq!(shown.health(), Suspended);
    assert!(shown.complaint().starts_with("HelmRelease/search is Suspended: "), "{}", shown.complaint());
    assert_eq!(shown.proves(&[]), None);
}

#[test]
fn the_images_of_several_workloads_make_one_revision() {
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
    let ask = by_app("Kustomization", "apps");
    let same = objects(["ghcr.io/x/podinfo:6.1.8", "ghcr.io/x/podinfo:6.1.8", "redis:7"]);
    assert_eq!(revision(&ask, &same, &[]).as_deref(), Some("podinfo:6.1.8 redis:7"));
    assert_eq!(revision(&ask, &same, &["image:ghcr.io/x/podinfo"]).as_deref(), Some("6.1.8"));
    assert_eq!(revision(&ask, &same, &["images"]).as_deref(), Some("podinfo:6.1.8 redis:7"));
    // Two tags of one repository are one value, whichever workload has which.
    let mixed = objects(["ghcr.io/x/podinfo:6.1.8", "ghcr.io/x/podinfo:6.1.7", "redis:7"]);
    let other = objects(["ghcr.io/x/podinfo:6.1.7", "ghcr.io/x/podinfo:6.1.8", "redis:7"]);
    let track = ["image:ghcr.io/x/podinfo"];
    assert_eq!(revision(&ask, &mixed, &track).as_deref(), Some("6.1.7,6.1.8"));
    assert_eq!(revision(&ask, &other, &track), revision(&ask, &mixed, &track));
    let names: Vec<_> = ask.see(&local(&same)).members[0]
        .workloads
        .iter()
        .map(|m| format!("{}/{}", m.kind, m.name))
        .collect();
    assert_eq!(names, ["Deployment/podinfo", "Deployment/podinfo-2", "CronJob/cache"]);
}

#[test]
fn a_revision_is_known_only_when_all_that_is_tracked_is() {
    let release = || {
        let object = with(helm_release("apps", "podinfo", "1.4.0"), "status/inventory", inventory_of("apps"));
        with(object, "status/history/0/appVersion", "2.7".into())
    };
    let web = || deployment("apps", "web", ("helm", "apps", "podinfo"), "ghcr.io/x/web:2.7.1");
    let ask = by_app("HelmRelease", "apps");
    let with_web = [namespace("apps"), release(), web()];
    let without = [namespace("apps"), release()];
    assert_eq!(revision(&ask, &with_web, &[]).as_deref(), Some("1.4.0"));
    assert_eq!(revision(&ask, &with_web, &["app"]).as_deref(), Some("2.7"));
    assert_eq!(revision(&ask, &with_web, &["chart", "images"]).as_deref(), Some("chart=1.4.0 web:2.7.1"));
    assert_eq!(revision(&ask, &without, &["chart", "images"]), None);
    assert_eq!(revision(&ask, &without, &["chart", "source"]), None);
    assert_eq!(revision(&ask, &with_web, &["image:ghcr.io/x/other"]), None);
    // Of several members each has its own.
    let search = helm_release("apps", "search", "3.0.0");
    let both = [namespace("apps"), release(), search];
    let two = by_app("HelmRelease", "apps").and("HelmRelease", "search");
    assert_eq!(revision(&two, &both, &[]).as_deref(), Some("podinfo/chart=1.4.0 search/chart=3.0.0"));
    let nothing_yet = with(helm_release("apps", "search", ""), "status/history", json!([]));
    assert_eq!(revision(&two, &[namespace("apps"), release(), nothing_yet], &[]), None);
}

#[test]
fn a_member_knows_its_natural_facet_and_its_source() {
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
        let shown = by_app(kind, "apps").see(&local(&[namespace("apps"), repository.clone(), object]));
        assert_eq!(
            (shown.members[0].default_facet, shown.members[0].source.clone()),
            (default_facet, source),
            "{kind}"
        );
    }
}

/// Flux says since when it says what it says; of what is worse than that only we know since when.
#[test]
fn the_time_of_a_members_health_is_flux_own_only_where_flux_said_so() {
    let since =
        |objects: &[Value]| by_app("Kustomization", "apps").see(&local(objects)).members[0].since.clone();
    let member = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let web = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let unready = with(web.clone(), "status/readyReplicas", 0.into());
    assert_eq!(since(&[namespace("apps"), member.clone(), web]).as_deref(), Some("2026-11-21T08:00:00Z"));
    assert_eq!(since(&[namespace("apps"), member.clone(), unready]), None);
    assert_eq!(since(&[namespace("apps"), with(member, "metadata/generation", 3.into())]), None);
}
