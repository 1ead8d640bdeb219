//! What runs on a fleet, and where it comes from.

use std::collections::BTreeMap;

use sluice_core::Facet;
use sluice_core::fleet::fact::{HealthStatus, Origin, Owned, SourceFact};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::ObservedCluster;
use sluice_core::fleet::owned_check::SpecVersion;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, FluxFact, Kind, ObjectKey, WorkloadFact};
use sluice_core::observed::Health;
use sluice_core::repository::Repository;
use sluice_core::tracks::DefaultFacet;
use sluice_view::fleet::observed_clusters::cluster_state;
use sluice_view::fleet::trace::{TraceLink, trace, visible};
use sluice_view::fleet::versions::{RunningVersion, chart, images, mark_outliers};

const COMMIT: &str = "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0";

pub fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: namespace.into(), name: name.into() }
}

fn remote(name: &str) -> ClusterKey {
    ClusterKey::Remote { namespace: "fleet".into(), name: name.into() }
}

fn ready() -> HealthStatus {
    HealthStatus { health: Health::Ready, ..HealthStatus::default() }
}

/// A HelmRelease or Kustomization that is Ready, with one facet.
fn flux(facet: Facet, value: &str, source: ObjectKey, owned: &[ObjectKey]) -> FluxFact {
    FluxFact {
        spec_version: SpecVersion::default(),
        pipelines: vec![],
        owner: None,
        attempt: None,
        is_reconciling: false,
        status: ready(),
        version: value.into(),
        facets: BTreeMap::from([(facet, value.into())]),
        default_facet: DefaultFacet::Chart,
        source: Some(source),
        chart: None,
        content: String::new(),
        desired_chart: None,
        origin_revision: None,
        owned: Owned::Inventory(owned.iter().cloned().collect()),
        release: None,
        invalid: vec![],
        gave_up: BTreeMap::new(),
        covers_owned: true,
        on_another_cluster: false,
        owned_check: None,
    }
}

fn deployment(owner: Option<ObjectKey>, images: &[&str]) -> Fact {
    let images = images.iter().map(ToString::to_string).collect();
    Fact::Workload(WorkloadFact {
        spec_version: SpecVersion::default(),
        owner,
        release: None,
        status: ready(),
        images,
    })
}

fn source(url: &str, follows: &str, revision: &str) -> SourceFact {
    SourceFact {
        repository: Repository { url: url.into(), branch: String::new() },
        follows: follows.into(),
        status: ready(),
        revision: revision.into(),
        ..SourceFact::default()
    }
}

pub fn observe(index: &mut Index, cluster: &ClusterKey, objects: Vec<(ObjectKey, Fact)>) {
    index.apply(cluster, ClusterEvent::Connected);
    for kind in Kind::DECIDING.into_iter().chain(Kind::SHOWN).chain(Kind::SHOWN_ON_HUB) {
        let of_kind = objects.iter().filter(|(key, _)| key.kind == kind).cloned().collect();
        index.apply(cluster, ClusterEvent::Listed(kind, None, of_kind));
    }
}

/// podinfo by a HelmRelease of a Kustomization, and a Deployment that somebody has made by hand.
pub fn podinfo(chart: &str) -> Vec<(ObjectKey, Fact)> {
    let web = key(Kind::Deployment, "apps", "podinfo");
    let release = key(Kind::HelmRelease, "apps", "podinfo");
    let apps = key(Kind::Kustomization, "flux-system", "apps");
    let charts = key(Kind::HelmRepository, "flux-system", "charts");
    let fleet = key(Kind::GitRepository, "flux-system", "fleet");
    let fetched = key(Kind::HelmChart, "flux-system", "apps-podinfo");
    let helm = FluxFact {
        owner: Some(apps.clone()),
        chart: Some(fetched.clone()),
        content: "podinfo".into(),
        desired_chart: Some("6.x".into()),
        ..flux(Facet::Chart, chart, charts.clone(), std::slice::from_ref(&web))
    };
    let kustomization = FluxFact {
        content: "./apps/prod".into(),
        ..flux(Facet::Source, COMMIT, fleet.clone(), std::slice::from_ref(&release))
    };
    let fetched_chart = SourceFact {
        made_from: Some((charts.clone(), "podinfo".into())),
        ..source("", "version 6.x", "6.7.1")
    };
    vec![
        (web, deployment(Some(release.clone()), &["ghcr.io/podinfo:6.7.1", "ghcr.io/proxy@sha256:ab"])),
        (key(Kind::Deployment, "apps", "by-hand"), deployment(None, &["nginx:1.27"])),
        // Its labels name a HelmRelease that does not know it.
        (key(Kind::Deployment, "apps", "liar"), deployment(Some(release.clone()), &["evil:1"])),
        (release, Fact::Flux(Box::new(helm))),
        (apps, Fact::Flux(Box::new(kustomization))),
        (fetched, Fact::Source(Box::new(fetched_chart))),
        (charts, Fact::Source(Box::new(source("https://example.com/charts", "", "sha256:1")))),
        (fleet, Fact::Source(Box::new(source("https://example.com/fleet.git", "branch main", COMMIT)))),
    ]
}

fn rows(
    index: &Index,
    of: fn(&ClusterKey, &ObservedCluster, (&ObjectKey, &Fact)) -> Vec<RunningVersion>,
) -> Vec<String> {
    let fleet = index.fleet();
    let mut rows: Vec<RunningVersion> = Vec::new();
    for key in fleet.clusters() {
        fleet.read(&key, |cluster| {
            for kind in Kind::OWNED {
                rows.extend(cluster.objects_of(kind).flat_map(|object| of(&key, cluster, object)));
            }
        });
    }
    mark_outliers(&mut rows);
    let text = |row: &RunningVersion| {
        let mark = if row.outlier { " OUTLIER" } else { "" };
        let made_by = if row.made_by.is_empty() { "nobody" } else { &row.made_by };
        format!(
            "{} {} on [{}] {}/{} by {made_by}{mark}",
            row.name, row.version, row.cluster, row.namespace, row.object
        )
    };
    rows.iter().map(text).collect()
}

fn charts(key: &ClusterKey, cluster: &ObservedCluster, object: (&ObjectKey, &Fact)) -> Vec<RunningVersion> {
    chart(key, cluster, object).into_iter().collect()
}

#[test]
fn charts_are_shown_by_cluster_with_the_one_that_differs() {
    let mut index = Index::default();
    for (cluster, chart) in [("asia", "6.7.1"), ("eu", "6.7.1"), ("us", "6.6.0")] {
        observe(&mut index, &remote(cluster), podinfo(chart));
    }
    insta::assert_snapshot!(rows(&index, charts).join("\n"), @"
    podinfo 6.7.1 on [fleet/asia] apps/HelmRelease/podinfo by Kustomization/apps
    podinfo 6.7.1 on [fleet/eu] apps/HelmRelease/podinfo by Kustomization/apps
    podinfo 6.6.0 on [fleet/us] apps/HelmRelease/podinfo by Kustomization/apps OUTLIER
    ");
    // Of two that differ, neither is the odd one.
    index.forget(&remote("asia"));
    assert!(rows(&index, charts).iter().all(|row| !row.contains("OUTLIER")));
}

#[test]
fn images_are_shown_also_of_workloads_that_flux_did_not_make() {
    let mut index = Index::default();
    observe(&mut index, &ClusterKey::Local, podinfo("6.7.1"));
    insta::assert_snapshot!(rows(&index, images).join("\n"), @"
    evil 1 on [] apps/Deployment/liar by nobody
    ghcr.io/podinfo 6.7.1 on [] apps/Deployment/podinfo by HelmRelease/podinfo
    ghcr.io/proxy sha256:ab on [] apps/Deployment/podinfo by HelmRelease/podinfo
    nginx 1.27 on [] apps/Deployment/by-hand by nobody
    ");
}

fn traced(objects: Vec<(ObjectKey, Fact)>, from: &ObjectKey) -> Option<Vec<TraceLink>> {
    traced_for(objects, from, |_| true)
}

/// Traces for a caller who may get some of the objects.
fn traced_for(
    objects: Vec<(ObjectKey, Fact)>,
    from: &ObjectKey,
    may_get: impl Fn(&ObjectKey) -> bool,
) -> Option<Vec<TraceLink>> {
    let mut index = Index::default();
    observe(&mut index, &ClusterKey::Local, objects);
    let steps = index.fleet().read(&ClusterKey::Local, |cluster| trace(cluster, from)).unwrap();
    steps.map(|steps| visible(steps, may_get))
}

fn lines(links: &[TraceLink]) -> String {
    let line = |link: &TraceLink| {
        let parts = [
            ("", &link.object),
            ("of ", &link.of),
            ("should run ", &link.desired),
            (if link.differs { "differs: at " } else { "at " }, &link.revision),
            ("wants ", &link.wanted),
            ("takes ", &link.content),
            ("from ", &link.address),
            ("follows ", &link.follows),
            ("built from ", &link.origin),
            ("built at ", &link.origin_revision),
            ("missing: ", &link.missing),
        ];
        let shown =
            parts.iter().filter(|(_, text)| !text.is_empty()).map(|(what, text)| format!("{what}{text}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    links.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_workload_is_traced_to_the_commit_that_set_its_version() {
    let links = traced(podinfo("6.7.1"), &key(Kind::Deployment, "apps", "podinfo")).unwrap();
    insta::assert_snapshot!(lines(&links), @"
    Deployment/podinfo
    HelmRelease/podinfo, of Deployment/podinfo, should run 6.x, at 6.7.1, takes podinfo
    HelmChart/apps-podinfo, of HelmRelease/podinfo, at 6.7.1, takes podinfo, follows version 6.x
    HelmRepository/charts, of HelmChart/apps-podinfo, at sha256:1, from https://example.com/charts
    Kustomization/apps, of HelmRelease/podinfo, should run main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, at main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, takes ./apps/prod
    GitRepository/fleet, of Kustomization/apps, at main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, from https://example.com/fleet.git, follows branch main
    ");
}

#[test]
fn the_offered_version_is_shown_beside_the_running_one() {
    let links = traced(podinfo("6.6.0"), &key(Kind::HelmRelease, "apps", "podinfo")).unwrap();
    assert_eq!((links[0].revision.as_str(), links[0].wanted.as_str()), ("6.6.0", "6.7.1"));
}

#[test]
fn the_desired_version_is_shown_beside_the_actual_one() {
    let row = |spec: Option<&str>, actual: &str, offered: &str| {
        let from = key(Kind::HelmRelease, "apps", "podinfo");
        let objects = podinfo(actual).into_iter().map(|(key, fact)| match fact {
            Fact::Flux(flux) if key == from => {
                (key, Fact::Flux(Box::new(FluxFact { desired_chart: spec.map(Into::into), ..*flux })))
            }
            Fact::Source(source) if key.kind == Kind::HelmChart => {
                (key, Fact::Source(Box::new(SourceFact { revision: offered.into(), ..*source })))
            }
            fact => (key, fact),
        });
        let link = traced(objects.collect(), &from).unwrap().remove(0);
        let differs = if link.differs { ", differs" } else { "" };
        format!("desired {}, actual {}, offered [{}]{differs}", link.desired, link.revision, link.wanted)
    };
    let rows = [
        (Some("6.7.1"), "6.7.1", "6.7.1"),
        (Some("6.7.1"), "6.7.0", "6.7.1"),
        // Flux has not fetched the new chart, or could not.
        (Some("6.7.1"), "6.7.0", "6.7.0"),
        (Some("6.7.1"), "6.7.0", ""),
        (Some("6.x"), "6.7.0", "6.7.0"),
        (Some("6.x"), "6.7.0", "6.7.1"),
        (Some("*"), "", "6.7.1"),
        // Its source says which version it should run.
        (None, "6.7.1", "6.7.1"),
        (None, "6.7.0", "6.7.1"),
    ];
    let rows: Vec<String> =
        rows.into_iter().map(|(spec, actual, offered)| row(spec, actual, offered)).collect();
    insta::assert_snapshot!(rows.join("\n"), @"
    desired 6.7.1, actual 6.7.1, offered []
    desired 6.7.1, actual 6.7.0, offered [6.7.1], differs
    desired 6.7.1, actual 6.7.0, offered [], differs
    desired 6.7.1, actual 6.7.0, offered [], differs
    desired 6.x, actual 6.7.0, offered []
    desired 6.x, actual 6.7.0, offered [6.7.1], differs
    desired *, actual , offered [6.7.1], differs
    desired 6.7.1, actual 6.7.1, offered []
    desired 6.7.1, actual 6.7.0, offered [6.7.1], differs
    ");
}

#[test]
fn an_object_that_the_caller_may_not_get_is_only_named() {
    let from = key(Kind::Deployment, "apps", "podinfo");
    let without =
        |hidden: Kind| lines(&traced_for(podinfo("6.6.0"), &from, |key| key.kind != hidden).unwrap());
    // The version that the chart offers is the chart's, and the repository is named by the chart.
    insta::assert_snapshot!(without(Kind::HelmChart), @"
    Deployment/podinfo
    HelmRelease/podinfo, of Deployment/podinfo, should run 6.x, at 6.6.0, takes podinfo
    HelmChart/apps-podinfo, of HelmRelease/podinfo, missing: you may not get helmcharts in namespace flux-system
    Kustomization/apps, of HelmRelease/podinfo, should run main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, at main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, takes ./apps/prod
    GitRepository/fleet, of Kustomization/apps, at main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0, from https://example.com/fleet.git, follows branch main
    ");
    insta::assert_snapshot!(without(Kind::HelmRelease), @"
    Deployment/podinfo
    HelmRelease/podinfo, of Deployment/podinfo, missing: you may not get helmreleases in namespace apps
    ");
}

#[test]
fn a_chart_from_an_oci_artifact_is_compared_by_its_digest() {
    let release = key(Kind::HelmRelease, "apps", "podinfo");
    let oci = key(Kind::OciRepository, "apps", "podinfo");
    let wanted = |offered: &str, applied_digest: &str| {
        let mut fact = flux(Facet::Chart, "6.7.1", oci.clone(), &[]);
        if !applied_digest.is_empty() {
            fact.facets.insert(Facet::Digest, applied_digest.into());
        }
        let artifact = source("oci://ghcr.io/a/podinfo", "tag 6.7.1", offered);
        let objects = vec![
            (release.clone(), Fact::Flux(Box::new(fact))),
            (oci.clone(), Fact::Source(Box::new(artifact))),
        ];
        traced(objects, &release).unwrap()[0].wanted.clone()
    };
    assert_eq!(wanted("6.7.1@sha256:ab", "sha256:ab"), "");
    assert_eq!(wanted("6.7.1@sha256:cd", "sha256:ab"), "6.7.1@sha256:cd", "the tag was moved");
    assert_eq!(wanted("latest@sha256:ab", "sha256:ab"), "");
    assert_eq!(wanted("6.7.1@sha256:ab", ""), "");
    assert_eq!(wanted("6.8.0@sha256:cd", ""), "6.8.0@sha256:cd");
    // The revision of a HelmRepository is that of its index.
    let mut objects = podinfo("6.7.1");
    objects.retain(|(key, _)| key.kind != Kind::HelmChart);
    let links = traced(objects, &release).unwrap();
    assert_eq!(links[0].wanted, "", "{links:?}");
}

#[test]
fn an_oci_artifact_is_traced_to_the_repository_and_the_commits_that_its_maker_names() {
    let oci = key(Kind::OciRepository, "apps", "podinfo");
    let app = key(Kind::Kustomization, "apps", "podinfo");
    let (applied, offered) = ("6.7.1@sha256:3b6cdcc7", "6.7.2@sha256:4c7dedd8");
    let origin =
        Origin { repository: "https://github.com/a/podinfo".into(), revision: "6.7.2@sha1:46".into() };
    let artifact = SourceFact {
        origin: Some(Box::new(origin)),
        verified: Some(true),
        ..source("oci://ghcr.io/a/podinfo", "version 6.x", offered)
    };
    let fact = FluxFact {
        origin_revision: Some("6.7.1@sha1:45".into()),
        ..flux(Facet::Source, applied, oci.clone(), &[])
    };
    let links = traced(
        vec![(app.clone(), Fact::Flux(Box::new(fact))), (oci, Fact::Source(Box::new(artifact)))],
        &app,
    );
    let links = links.unwrap();
    assert_eq!(links[1].verified, Some(true));
    insta::assert_snapshot!(lines(&links), @"
    Kustomization/podinfo, should run 6.7.2@sha256:4c7dedd8, differs: at 6.7.1@sha256:3b6cdcc7, wants 6.7.2@sha256:4c7dedd8, built at 6.7.1@sha1:45
    OCIRepository/podinfo, of Kustomization/podinfo, at 6.7.2@sha256:4c7dedd8, from oci://ghcr.io/a/podinfo, follows version 6.x, built from https://github.com/a/podinfo, built at 6.7.2@sha1:46
    ");
}

#[test]
fn missing_objects_are_named_and_a_circle_of_owners_ends() {
    assert_eq!(traced(vec![], &key(Kind::Deployment, "apps", "podinfo")), None);
    let mut objects = podinfo("6.7.1");
    objects.retain(|(key, _)| key.kind != Kind::GitRepository);
    let links = traced(objects, &key(Kind::Kustomization, "flux-system", "apps")).unwrap();
    assert_eq!(links[1].missing, "there is no such object");

    let deployment = key(Kind::Deployment, "apps", "podinfo");
    let mut objects = podinfo("6.7.1");
    objects.retain(|(key, _)| key.kind != Kind::HelmRelease);
    insta::assert_snapshot!(lines(&traced(objects, &deployment).unwrap()), @"
    Deployment/podinfo
    HelmRelease/podinfo, of Deployment/podinfo, missing: there is no such object
    ");
    let liar = key(Kind::Deployment, "apps", "liar");
    insta::assert_snapshot!(lines(&traced(podinfo("6.7.1"), &liar).unwrap()), @"
    Deployment/liar
    HelmRelease/podinfo, of Deployment/liar, missing: labels name it, but its inventory does not have the object
    ");

    let (a, b) = (key(Kind::Kustomization, "apps", "a"), key(Kind::Kustomization, "apps", "b"));
    let of = |owner: &ObjectKey, owned: &ObjectKey| {
        let fleet = key(Kind::GitRepository, "apps", "fleet");
        let flux = flux(Facet::Source, COMMIT, fleet, std::slice::from_ref(owned));
        Fact::Flux(Box::new(FluxFact { owner: Some(owner.clone()), ..flux }))
    };
    let circle = vec![(a.clone(), of(&b, &b)), (b.clone(), of(&a, &a))];
    assert!(traced(circle, &a).unwrap().len() <= 20);
}

#[test]
fn a_connected_cluster_says_what_of_it_cannot_be_read() {
    let eu = remote("eu");
    let row = |events: Vec<ClusterEvent>| {
        let mut index = Index::default();
        observe(&mut index, &eu, vec![]);
        events.into_iter().for_each(|event| drop(index.apply(&eu, event)));
        let row = index.fleet().read(&eu, |cluster| cluster_state(&eu, cluster)).unwrap();
        format!("{}: {}", row.state.word(), row.message)
    };
    let unreadable = |kind, namespace: Option<&str>, why: &str| {
        ClusterEvent::Unreadable(kind, namespace.map(Into::into), why.into())
    };
    let by_namespace =
        || vec![ClusterEvent::ByNamespace(Kind::HelmRelease), ClusterEvent::ByNamespace(Kind::CronJob)];
    assert_eq!(row(vec![]), "Up: ");
    assert_eq!(row(vec![unreadable(Kind::CronJob, None, "forbidden")]), "Partial: forbidden");
    let two = vec![
        unreadable(Kind::CronJob, None, "forbidden"),
        unreadable(Kind::Deployment, Some("apps"), "too large"),
    ];
    assert!(row(two).ends_with("; and 1 more kinds or namespaces cannot be read"));
    // The user of a kubeconfig without credentials may list nothing.
    let nothing = row(by_namespace());
    assert!(nothing.starts_with("Partial: its kubeconfig may not list 2 kinds of objects"), "{nothing}");
    // A user who may read the namespaces of the targets only.
    let listed = [Kind::HelmRelease, Kind::CronJob]
        .map(|kind| ClusterEvent::Listed(kind, Some("apps".into()), vec![]));
    assert_eq!(row(by_namespace().into_iter().chain(listed).collect()), "Up: ");
}
