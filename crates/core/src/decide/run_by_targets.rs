//! What the targets of an environment run, as far as a promotion has to know it.

use std::collections::BTreeSet;

use super::{Decision, Lane};
use crate::observed::{Health, ObservedTarget};
use crate::promotion::{Phase, Promotion};
use crate::revision::Revision;

/// What to do if no workload fits.
pub(super) const ADD_WORKLOAD: &str =
    "create it, label it pipelines.weave.works/pipeline, or name it in appRef or workloads of the Pipeline";

/// Returns true if all targets run the revision, healthily or not. For a target that cannot be read, the revision that it
/// has run last counts.
pub(super) fn runs(lane: Lane<'_>, revision: &Revision) -> bool {
    lane.environment.targets.iter().all(|name| {
        let shown = lane.observed(name).filter(|t| t.error.is_none());
        match shown {
            Some(_) => lane.running(name).is_some_and(|running| revision.is_run_by(&running)),
            None => lane.ran_last(name).is_some_and(|last| revision.is_run_by(&last)),
        }
    })
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
