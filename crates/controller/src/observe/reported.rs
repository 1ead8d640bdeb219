//! The state of a target on a cluster that Sluice cannot read, from the signed events of its members. This code is
//! pure, and `core` decides by the same rule as for observed targets.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::pipeline::{AppRef, Pipeline, Report, Target};
use sluice_core::Time;
use sluice_core::chart_version::without_build_metadata;
use sluice_core::fleet::Kind;
use sluice_core::observed::{Health, Member, ObservedTarget};
use sluice_core::revision::{Facet, shortened};
use sluice_core::tracks::DefaultFacet;
use sluice_core::value_check;

use super::oci_revision::tag_and_digest;

/// The last report of each member, by `<environment>/<target>/<kind>/<name>`.
pub type Reports = BTreeMap<String, Report>;

/// Returns the kinds and names of the members that the pipeline names. Sluice cannot read labels on such a
/// cluster.
pub fn members<'a>(app: Option<&'a AppRef>, target: &'a Target) -> BTreeSet<(&'a str, &'a str)> {
    let app = app.map(|a| (a.kind.as_str(), a.name.as_str()));
    app.into_iter().chain(target.workloads.iter().map(|w| (w.kind.as_str(), w.name.as_str()))).collect()
}

/// Returns the key of a member's report.
pub fn key(environment: &str, target: &str, (kind, name): (&str, &str)) -> String {
    format!("{environment}/{target}/{kind}/{name}")
}

/// Returns the size of reports as JSON, in bytes.
pub fn size(all: &Reports) -> usize {
    serde_json::to_vec(all).map_or(0, |text| text.len())
}

/// Returns the state of a target. A member without a report is Unknown.
pub fn observe(
    pipeline: &Pipeline,
    environment: &str,
    target: &Target,
    name: &str,
    all: &Reports,
) -> ObservedTarget {
    let location = location(target);
    if let Some(unknown) =
        members(pipeline.spec.app_ref.as_ref(), target).iter().find(|(kind, _)| Kind::of_flux(kind).is_none())
    {
        return ObservedTarget::unreadable(format!(
            "spec.appRef is {} {}: events report HelmReleases and Kustomizations only",
            unknown.0, unknown.1
        ));
    }
    let tracks = !pipeline.spec.tracks.is_empty();
    let member = |id: &(&str, &str)| member(id, all.get(&key(environment, name, *id)), tracks, &location);
    let members =
        members(pipeline.spec.app_ref.as_ref(), target).iter().map(|named| member(named).into()).collect();
    ObservedTarget::of(members)
}

/// Returns the time of the oldest of the members' last reports; `None` while a member has none.
pub fn time(
    pipeline: &Pipeline,
    environment: &str,
    target: &Target,
    name: &str,
    all: &Reports,
) -> Option<Time> {
    let members = members(pipeline.spec.app_ref.as_ref(), target);
    let times = members.iter().map(|id| Some(all.get(&key(environment, name, *id))?.time));
    times.collect::<Option<Vec<_>>>()?.into_iter().min()
}

fn location(target: &Target) -> String {
    let cluster = target.cluster_ref.as_ref().map_or("", |c| c.name.as_str());
    format!("in namespace {} of cluster {cluster}", target.namespace)
}

/// Returns the state of a member. `tracks` is true if the pipeline has `spec.tracks`.
fn member((kind, name): &(&str, &str), report: Option<&Report>, tracks: bool, location: &str) -> Member {
    let default_facet = match (Kind::of_flux(kind), report) {
        (Some(Kind::HelmRelease), _) => DefaultFacet::Chart,
        (_, Some(report)) if is_artifact(&report.revision) => DefaultFacet::Artifact,
        _ => DefaultFacet::Images,
    };
    let Some(report) = report else {
        let message = format!(
            "no signed event has arrived from it yet, {location}: apply the output of sluice export alert there, then \
             send an event with flux reconcile"
        );
        return unknown_member(kind, name, default_facet, message);
    };
    // The report of a member that has failed and never run has no revision.
    if default_facet == DefaultFacet::Images && !tracks && !report.revision.is_empty() {
        let message =
            "events report the revision of its source, but not its images: write spec.tracks: [source]";
        return unknown_member(kind, name, default_facet, message.into());
    }
    let (version, facets) = facets(default_facet, report);
    Member {
        kind: (*kind).into(),
        name: (*name).into(),
        health: match report.health {
            health @ (Health::Ready | Health::Progressing | Health::Failed) => health,
            Health::Suspended | Health::Pending | Health::Unknown => Health::Unknown,
        },
        message: report.message.clone(),
        not_applied: None,
        since: Some(report.time),
        version,
        gave_up: BTreeMap::new(),
        facets,
        default_facet,
        source: None,
        workloads: Vec::new(),
    }
}

fn unknown_member(kind: &str, name: &str, default_facet: DefaultFacet, message: String) -> Member {
    Member {
        kind: kind.into(),
        name: name.into(),
        health: Health::Unknown,
        message,
        not_applied: None,
        since: None,
        version: String::new(),
        gave_up: BTreeMap::new(),
        facets: BTreeMap::new(),
        default_facet,
        source: None,
        workloads: Vec::new(),
    }
}

/// Whether a revision has the form that Flux writes for an OCI artifact.
fn is_artifact(revision: &str) -> bool {
    tag_and_digest(revision).1.is_some_and(|digest| digest.starts_with("sha256:"))
}

/// Returns the version to show, and the valid facets of a report.
fn facets(default_facet: DefaultFacet, report: &Report) -> (String, BTreeMap<Facet, String>) {
    let mut facets = BTreeMap::new();
    let mut add = |facet, value: &str| {
        if value_check::check(&facet, value).is_ok() {
            facets.insert(facet, value.to_string());
        }
    };
    if default_facet == DefaultFacet::Chart {
        let chart = without_build_metadata(&report.revision);
        add(Facet::Chart, chart);
        add(Facet::App, &report.app);
        add(Facet::Digest, &report.digest);
        return (chart.into(), facets);
    }
    add(Facet::Source, &report.revision);
    if default_facet == DefaultFacet::Artifact {
        let (tag, digest) = tag_and_digest(&report.revision);
        add(Facet::Tag, tag.as_deref().unwrap_or_default());
        add(Facet::Digest, digest.as_deref().unwrap_or_default());
    }
    let version = facets.get(&Facet::Tag).cloned().unwrap_or_else(|| shortened(&report.revision));
    (version, facets)
}
