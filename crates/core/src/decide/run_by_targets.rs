//! What the targets of an environment run, as far as a promotion has to know it.

use std::collections::BTreeSet;

use super::{Decision, Lane};
use crate::chart_version::without_build_metadata;
use crate::observed::{Health, Member, ObservedTarget};
use crate::promotion::{Phase, Promotion};
use crate::revision::{Facet, FacetKey, Revision};

/// What to do if no workload fits.
pub(super) const ADD_WORKLOAD: &str =
    "create it, label it pipelines.weave.works/pipeline, or name it in appRef or workloads of the Pipeline";

/// Returns true if all targets run the revision, healthily or not. For a target that cannot be read, the last
/// revision that it has proven counts.
pub(super) fn runs(lane: Lane<'_>, revision: &Revision) -> bool {
    lane.environment.targets.iter().all(|name| {
        let shown = lane.observed(name).filter(|t| t.error.is_none());
        match shown {
            Some(_) => lane.running(name).is_some_and(|running| revision.is_run_by(&running)),
            None => {
                let last = lane.proofs(name).last();
                last.is_some_and(|p| revision.is_run_by(&p.revision))
            }
        }
    })
}

/// Returns true if what a receiver was asked for has arrived: all targets run the revision, or Flux has tried a part of it on one
/// of them that differs from what that has proven last.
pub(super) fn has_arrived(lane: Lane<'_>, revision: &Revision) -> bool {
    let has_new_part = |name: &String| {
        let running = lane.running(name);
        let last = lane.proofs(name).last().map(|proof| &proof.revision);
        let shown = lane.observed(name).filter(|target| target.error.is_none());
        let is_tried = |key: &FacetKey, value: &str| {
            let mut members = shown.iter().flat_map(|target| &target.members);
            members.any(|member| has_tried(member, key, value))
        };
        let mut new = revision.facets().filter(|(key, v)| last.and_then(|last| last.value(key)) != Some(*v));
        new.any(|(key, value)| {
            running.as_ref().and_then(|r| r.value(key)) == Some(value) || is_tried(key, value)
        })
    };
    runs(lane, revision) || lane.environment.targets.iter().any(has_new_part)
}

/// Returns true if Flux has tried a version of a member last, successfully or not.
fn has_tried(member: &Member, key: &FacetKey, value: &str) -> bool {
    let attempted = match key.facet {
        Facet::Chart => without_build_metadata(&member.attempted),
        // Of an OCIRepository, Flux writes the tag and the digest.
        Facet::Tag => member.attempted.split('@').next().unwrap_or_default(),
        _ => &member.attempted,
    };
    (&member.kind, &member.name) == (&key.kind, &key.name) && attempted == value
}

/// Returns the first target of an environment that cannot be read.
pub(super) fn unread(lane: Lane<'_>) -> Option<&str> {
    let mut targets = lane.environment.targets.iter();
    targets.find(|name| lane.observed(name).is_none_or(|target| target.error.is_some())).map(String::as_str)
}

/// Returns the kinds and names of an environment's workloads. If there are none, notes why the revision waits.
pub(super) fn workloads<'a>(
    lane: Lane<'a>,
    revision: &Revision,
    decision: &mut Decision,
) -> Option<BTreeSet<(&'a str, &'a str)>> {
    let shown: Vec<&'a ObservedTarget> =
        lane.environment.targets.iter().filter_map(|t| lane.observed(t)).collect();
    let readable: Vec<&'a ObservedTarget> = shown.iter().copied().filter(|t| t.error.is_none()).collect();
    if readable.is_empty() {
        let why = shown.first().and_then(|t| t.error.clone()).unwrap_or_default();
        let message = format!("{revision} waits: no target can be read: {why}");
        decision.note(lane.environment, "TargetNotReadable", message);
        return None;
    }
    let workloads: BTreeSet<(&'a str, &'a str)> = readable.iter().flat_map(|t| t.workloads()).collect();
    if workloads.is_empty() {
        let message =
            format!("{revision} waits: no target has a workload of this pipeline yet; {ADD_WORKLOAD}");
        decision.note(lane.environment, "NoWorkloads", message);
        return None;
    }
    Some(workloads)
}

/// Returns why a revision has to wait for a target that is progressing towards an unknown revision, which may be this
/// one. A failed target is not waited for.
pub(super) fn unsettled(lane: Lane<'_>, revision: &Revision) -> Option<String> {
    let unknown = lane.environment.targets.iter().find(|name| {
        lane.observed(name).is_some_and(|t| {
            matches!(t.health(), Health::Pending | Health::Progressing)
                && t.revision(&lane.facts.pipeline.tracks).is_none()
        })
    })?;
    Some(format!(
        "{revision} waits until it is known what {unknown} runs: it is still progressing; if this takes long, look at \
         Flux on its cluster"
    ))
}

/// Notes why a delivered promotion does not arrive, if Flux applies nothing to one of its targets.
pub(super) fn note_not_applied(lane: Lane<'_>, promotions: &[&Promotion], decision: &mut Decision) {
    let Some(delivered) = promotions.iter().rev().find(|promotion| promotion.phase == Phase::Delivered)
    else {
        return;
    };
    let (revision, here) = (&delivered.revision, &lane.environment.name);
    for name in &lane.environment.targets {
        let Some(target) = lane.observed(name).filter(|target| target.error.is_none()) else { continue };
        let has_arrived = lane.running(name).is_some_and(|running| revision.is_run_by(&running));
        if let Some(why) = target.not_applied().filter(|_| !has_arrived) {
            let at = if name == here { here.clone() } else { format!("{here}/{name}") };
            let message = format!("{revision} does not arrive in {at}: {why}");
            return decision.note(lane.environment, "NotApplied", message);
        }
    }
}

/// Returns the targets that keep a promotion from success, each with the message of its worst workload.
pub(super) fn complaint(lane: Lane<'_>, promotion: &Promotion) -> String {
    let look = match lane.writes_to_branch() {
        true => "whether its source has the new commit",
        false => "at the receiver of the call or event",
    };
    let of_target = |name: &String| {
        let message = match lane.observed(name) {
            Some(target) if !target.complaint().is_empty() => target.complaint(),
            Some(target) => match target.revision(&lane.facts.pipeline.tracks) {
                Some(r) if !promotion.revision.is_run_by(&r) => match target.not_applied() {
                    Some(why) => format!("it still runs {r}: {why}"),
                    None => format!("it still runs {r}; look {look}"),
                },
                _ => return None,
            },
            None => "it was not observed yet".into(),
        };
        Some(format!("{name}: {message}"))
    };
    lane.environment.targets.iter().filter_map(of_target).collect::<Vec<_>>().join("; ")
}
