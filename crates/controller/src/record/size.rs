//! The bound on the size of a Pipeline's status. An API server refuses an object that etcd does not take, and
//! then nothing of the status is written any more. What does not fit is summarized, what matters least first,
//! and said so. What was proven is kept longest: promotions rest on it. Pure.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use sluice_api::pipeline::{Health, PipelineStatus, TargetStatus, Verified};

use super::cut;

/// The longest object that is written, in bytes of JSON. etcd takes requests of 1.5 MiB
/// (etcd.io/docs/v3.6/dev-guide/limit), and the bookkeeping of field managers comes on top.
pub(super) const OBJECT: usize = 1_300_000;
/// A status up to this size fits beside any spec. Whether a larger one does is looked at.
pub(super) const SMALL: usize = 256 << 10;
/// The room that a status has in any case.
const LEAST: usize = 200 << 10;

/// The length of a value as JSON, in bytes.
pub(super) fn length(value: &impl Serialize) -> usize {
    struct ByteCounter(usize);
    impl io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(0);
    // Counting does not fail, and what has no JSON is not written at all.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// The room for a status beside the rest of its object and beside reports, which calls write. The field
/// manager's bookkeeping of reports can be as long as they are.
pub(super) fn room(rest: usize, reports: usize) -> usize {
    OBJECT.saturating_sub(rest + 2 * reports).max(LEAST)
}

/// Shortens a status until it has at most `room` bytes, and says what was left out; `None` where it fits.
pub fn fit(status: &mut PipelineStatus, room: usize) -> Option<String> {
    if length(status) <= room {
        return None;
    }
    let mut left_out = Vec::new();
    for step in STEPS {
        if let Some(what) = step(status) {
            left_out.push(what);
        }
        if length(status) <= room {
            break;
        }
    }
    let mut shortened = 0;
    for full in [256, 64, 16, 4, 0] {
        if length(status) <= room {
            break;
        }
        shortened = shorten_failed(status, full);
    }
    if shortened > 0 {
        left_out.push(format!("details of {shortened} targets that are Failed or Unknown"));
    }
    let mut kept = targets(status).map(|t| t.verified.len()).max().unwrap_or(0).max(most_proofs(status));
    let mut forgets = false;
    while kept > 1 && length(status) > room {
        kept = kept.div_ceil(2);
        keep_proofs(status, kept);
        forgets = true;
    }
    let count = targets(status).count();
    let mut message = format!("the status of {count} targets is too large for one object: left out are ");
    message.push_str(&left_out.join(", "));
    if forgets {
        message.push_str(&format!(
            ", and all but the last {kept} revisions that each target was verified at: after a restart an older one \
             is not promoted"
        ));
    }
    message.push_str("; split the pipeline");
    Some(message)
}

type ShorteningStep = fn(&mut PipelineStatus) -> Option<String>;

/// What is done one after the other. None of it loses what was proven, and targets that fail come last.
const STEPS: [ShorteningStep; 4] = [share_proofs, shorten_promotions, summarize_healthy, summarize_others];

fn targets(status: &PipelineStatus) -> impl Iterator<Item = &TargetStatus> {
    status.environments.values().flat_map(|e| &e.targets)
}

fn targets_mut(status: &mut PipelineStatus) -> impl Iterator<Item = &mut TargetStatus> {
    status.environments.values_mut().flat_map(|e| &mut e.targets)
}

/// Writes each verified revision once for all targets. Nothing is lost.
fn share_proofs(status: &mut PipelineStatus) -> Option<String> {
    let mut known: BTreeMap<BTreeMap<String, String>, usize> = BTreeMap::new();
    let mut revisions = Vec::new();
    for target in targets_mut(status) {
        let proofs = std::mem::take(&mut target.verified);
        let one = |proof: Verified| {
            let next = known.len();
            let place = *known.entry(proof.facets.clone()).or_insert(next);
            if place == revisions.len() {
                revisions.push(proof.facets);
            }
            format!("{place}/{}/{}/{}", proof.arrival, proof.run, proof.at)
        };
        target.proofs = proofs.into_iter().map(one).collect::<Vec<_>>().join(" ");
    }
    status.revisions = revisions;
    None
}

/// The proofs of a target, oldest first, in either form.
pub fn proofs(status: &PipelineStatus, target: &TargetStatus) -> Vec<Verified> {
    let shared = target.proofs.split_whitespace().filter_map(|text| {
        let mut parts = text.splitn(4, '/');
        let mut next = || parts.next();
        let facets = status.revisions.get(next()?.parse::<usize>().ok()?)?.clone();
        let (arrival, run) = (next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Verified { facets, arrival, run, at: next()?.into() })
    });
    shared.chain(target.verified.iter().cloned()).collect()
}

/// The most proofs that a target has in the shared form.
fn most_proofs(status: &PipelineStatus) -> usize {
    targets(status).map(|t| t.proofs.split_whitespace().count()).max().unwrap_or(0)
}

/// Keeps so many of each target's proofs, the newest.
fn keep_proofs(status: &mut PipelineStatus, kept: usize) {
    let mut all: Vec<Vec<Verified>> = targets(status).map(|t| proofs(status, t)).collect();
    for (target, proofs) in targets_mut(status).zip(&mut all) {
        target.verified = proofs.split_off(proofs.len().saturating_sub(kept));
    }
    share_proofs(status);
}

/// What is in hand has its whole story in its Promotion.
fn shorten_promotions(status: &mut PipelineStatus) -> Option<String> {
    for target in targets_mut(status) {
        target.promotion.iter_mut().for_each(|promotion| cut(&mut promotion.message, 100));
    }
    for environment in status.environments.values_mut() {
        environment.promotion.iter_mut().for_each(|promotion| cut(&mut promotion.message, 500));
        cut(&mut environment.message, 500);
    }
    status.conditions.iter_mut().for_each(|condition| cut(&mut condition.message, 2000));
    status.summary.iter_mut().for_each(|summary| {
        cut(&mut summary.environments, 2000);
        cut(&mut summary.promoting, 2000);
    });
    None
}

/// Leaves out what one target shows beside its health, its revision and the beginning of its error.
fn summarize(target: &mut TargetStatus) -> bool {
    let had_workloads = !target.workloads.is_empty();
    target.workloads.clear();
    target.cluster_app_ref = None;
    cut(&mut target.error, 100);
    target.revision.iter_mut().for_each(|revision| cut(revision, 100));
    had_workloads
}

fn summarize_healthy(status: &mut PipelineStatus) -> Option<String> {
    let ready = targets_mut(status).filter(|target| target.health == Health::Ready);
    let count = ready.map(summarize).filter(|had_workloads| *had_workloads).count();
    (count > 0).then(|| format!("the workloads of {count} targets that are Ready"))
}

fn summarize_others(status: &mut PipelineStatus) -> Option<String> {
    let others = targets_mut(status).filter(|target| target.health != Health::Ready && !is_bad(target));
    let count = others.map(summarize).filter(|had_workloads| *had_workloads).count();
    (count > 0).then(|| format!("the workloads of {count} targets that are on their way or suspended"))
}

fn is_bad(target: &TargetStatus) -> bool {
    matches!(target.health, Health::Failed | Health::Unknown)
}

/// Summarizes the targets that fail, but for the first `full` of them, and counts them.
fn shorten_failed(status: &mut PipelineStatus, full: usize) -> usize {
    let failed = targets_mut(status).filter(|target| is_bad(target)).skip(full);
    failed.map(summarize).count()
}
