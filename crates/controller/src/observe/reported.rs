//! What a target shows that cannot be read: what its members have reported by signed events. Pure, as
//! what is observed is: what follows from it is decided in `core`, by the same rule.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::pipeline::{AppRef, Health as ApiHealth, Pipeline, Report, Target as TargetSpec};
use sluice_core::observed::{Health, Member, ObservedTarget};
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::value;

use super::trim;

/// What has been reported, by `<environment>/<target>/<kind>/<name>`.
pub type Reports = BTreeMap<String, Report>;

/// The kinds and names of the members of a target, as the pipeline names them: nobody sees labels there.
pub fn members<'a>(app: Option<&'a AppRef>, target: &'a TargetSpec) -> BTreeSet<(&'a str, &'a str)> {
    let app = app.map(|a| (a.kind.as_str(), a.name.as_str()));
    app.into_iter().chain(target.workloads.iter().map(|w| (w.kind.as_str(), w.name.as_str()))).collect()
}

/// The name under which a member's report is kept.
pub fn key(environment: &str, target: &str, (kind, name): (&str, &str)) -> String {
    format!("{environment}/{target}/{kind}/{name}")
}

/// How much reports take, in bytes of JSON.
pub fn size(all: &Reports) -> usize {
    serde_json::to_vec(all).map_or(0, |text| text.len())
}

/// What the target shows. A member that has said nothing yet is Unknown, and a member all the same:
/// the pipeline names it.
pub fn observe(
    pipeline: &Pipeline,
    environment: &str,
    target: &TargetSpec,
    name: &str,
    all: &Reports,
) -> ObservedTarget {
    let place = place(target);
    if let Some(unknown) = members(pipeline.spec.app_ref.as_ref(), target)
        .iter()
        .find(|(kind, _)| !matches!(*kind, "HelmRelease" | "Kustomization"))
    {
        return ObservedTarget::unreadable(format!(
            "spec.appRef is {} {}: events tell of HelmReleases and Kustomizations only",
            unknown.0, unknown.1
        ));
    }
    let tracks = !pipeline.spec.tracks.is_empty();
    let member = |of: &(&str, &str)| member(of, all.get(&key(environment, name, *of)), tracks, &place);
    let members = members(pipeline.spec.app_ref.as_ref(), target).iter().map(member).collect();
    ObservedTarget { error: None, members }
}

/// When the members of a target last said something: the oldest of these times, once all have.
pub fn time(
    pipeline: &Pipeline,
    environment: &str,
    target: &TargetSpec,
    name: &str,
    all: &Reports,
) -> Option<String> {
    let members = members(pipeline.spec.app_ref.as_ref(), target);
    let times = members.iter().map(|of| Some(all.get(&key(environment, name, *of))?.time.clone()));
    times.collect::<Option<Vec<_>>>()?.into_iter().min()
}

fn place(target: &TargetSpec) -> String {
    let cluster = target.cluster_ref.as_ref().map_or("", |c| c.name.as_str());
    format!("in namespace {} of cluster {cluster}", target.namespace)
}

fn member((kind, name): &(&str, &str), report: Option<&Report>, tracks: bool, place: &str) -> Member {
    let default_facet = match (*kind, report) {
        ("HelmRelease", _) => DefaultFacet::Chart,
        (_, Some(report)) if is_artifact(&report.revision) => DefaultFacet::Artifact,
        _ => DefaultFacet::Images,
    };
    let Some(report) = report else {
        let message = format!(
            "no signed event has come from it yet, {place}: sluice export alert prints what sends them, and \
             flux reconcile has it say how it is"
        );
        return unsaid(kind, name, default_facet, message);
    };
    // One that has failed and has never run tells nothing of where it comes from.
    if default_facet == DefaultFacet::Images && !tracks && !report.revision.is_empty() {
        let message =
            "events tell the revision of its source and nothing of its images: write spec.tracks: [source]";
        return unsaid(kind, name, default_facet, message.into());
    }
    let (version, facets) = facets(default_facet, report);
    Member {
        kind: (*kind).into(),
        name: (*name).into(),
        health: match report.health {
            ApiHealth::Ready => Health::Ready,
            ApiHealth::Progressing => Health::Progressing,
            ApiHealth::Failed => Health::Failed,
            ApiHealth::Suspended | ApiHealth::Pending | ApiHealth::Unknown => Health::Unknown,
        },
        message: report.message.clone(),
        since: Some(report.time.clone()),
        version,
        gave_up: BTreeMap::new(),
        facets,
        default_facet,
        source: None,
        workloads: Vec::new(),
    }
}

fn unsaid(kind: &str, name: &str, default_facet: DefaultFacet, message: String) -> Member {
    Member {
        kind: kind.into(),
        name: name.into(),
        health: Health::Unknown,
        message,
        since: None,
        version: String::new(),
        gave_up: BTreeMap::new(),
        facets: BTreeMap::new(),
        default_facet,
        source: None,
        workloads: Vec::new(),
    }
}

/// Whether Flux writes the revision of an OCI artifact so.
fn is_artifact(revision: &str) -> bool {
    trim::artifact(revision).1.is_some_and(|digest| digest.starts_with("sha256:"))
}

/// The version to show, and the facets that an event tells.
fn facets(default_facet: DefaultFacet, report: &Report) -> (String, BTreeMap<Facet, String>) {
    let mut facets = BTreeMap::new();
    let mut add = |facet, value: &str| {
        if value::check(&facet, value).is_ok() {
            facets.insert(facet, value.to_string());
        }
    };
    if default_facet == DefaultFacet::Chart {
        let chart = report.revision.split('+').next().unwrap_or_default();
        add(Facet::Chart, chart);
        add(Facet::App, &report.app);
        add(Facet::Digest, &report.digest);
        return (chart.into(), facets);
    }
    add(Facet::Source, &report.revision);
    if default_facet == DefaultFacet::Artifact {
        let (tag, digest) = trim::artifact(&report.revision);
        add(Facet::Tag, tag.as_deref().unwrap_or_default());
        add(Facet::Digest, digest.as_deref().unwrap_or_default());
    }
    let version = facets.get(&Facet::Tag).cloned().unwrap_or_else(|| trim::short(&report.revision));
    (version, facets)
}
