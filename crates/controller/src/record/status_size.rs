//! The bound on the size of a Pipeline's status. An API server rejects an object that is too large for etcd, and
//! then no part of the status is written. A status that is too large is shortened, the least important details
//! first, and a condition says so. Verified revisions are kept longest: promotions depend on them. Pure.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use sluice_api::pipeline::{Health, PipelineStatus, TargetStatus, Verified};

use super::cut;
use super::shared_revisions::{SharedRevisions, proof_text};

/// The largest object that is written, in bytes of JSON. etcd accepts requests of 1.5 MiB
/// (etcd.io/docs/v3.6/dev-guide/limit), and `managedFields` come on top.
pub(super) const MAX_OBJECT_BYTES: usize = 1_300_000;
/// A status up to this size fits beside any spec. A larger one is checked.
pub(super) const SMALL_STATUS_BYTES: usize = 256 << 10;
/// The least room for a status, in bytes.
const MIN_STATUS_BYTES: usize = 200 << 10;

/// Counts bytes, and fails beyond a number of them.
struct ByteCounter {
    count: usize,
    most: usize,
}

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count += bytes.len();
        if self.count > self.most { Err(io::ErrorKind::WriteZero.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The length of a value as JSON, in bytes.
pub(super) fn length(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter { count: 0, most: usize::MAX };
    // Counting does not fail, and a value without JSON is not written at all.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.count
}

/// Whether a value has at most this many bytes as JSON. It stops where the value has more: a status that is not shortened yet
/// can have fifty times as much.
pub(super) fn has_at_most(value: &impl Serialize, bytes: usize) -> bool {
    serde_json::to_writer(&mut ByteCounter { count: 0, most: bytes }, value).is_ok()
}

/// The room for a status, in bytes, beside the rest of its object and the reports, which hook calls write. The
/// `managedFields` of reports can be as long as the reports.
pub(super) fn room(rest: usize, reports: usize) -> usize {
    MAX_OBJECT_BYTES.saturating_sub(rest + 2 * reports).max(MIN_STATUS_BYTES)
}

/// Shortens a status until it has at most `room` bytes. Returns a message with what was left out, or `None` if it
/// fits.
pub fn fit(status: &mut PipelineStatus, room: usize) -> Option<String> {
    if has_at_most(status, room) {
        return None;
    }
    let mut left_out = Vec::new();
    for step in SHORTENING_STEPS {
        if let Some(what) = step(status) {
            left_out.push(what);
        }
        if has_at_most(status, room) {
            break;
        }
    }
    let mut shortened = 0;
    for full in [256, 64, 16, 4, 0] {
        if has_at_most(status, room) {
            break;
        }
        shortened = shorten_failed(status, full);
    }
    if shortened > 0 {
        left_out.push(format!("details of {shortened} targets that are Failed or Unknown"));
    }
    if !has_at_most(status, room) {
        leave_out_places(status);
        left_out.push("the namespaces and clusters of the targets, which are in the spec".into());
    }
    let mut kept = targets(status).map(|t| t.verified.len()).max().unwrap_or(0).max(most_proofs(status));
    let mut drops_proofs = false;
    while kept > 1 && !has_at_most(status, room) {
        kept = kept.div_ceil(2);
        keep_proofs(status, kept);
        drops_proofs = true;
    }
    let count = targets(status).count();
    for full in [256, 64, 16, 4, 0] {
        if has_at_most(status, room) {
            break;
        }
        drop_targets(status, full);
    }
    let dropped = count - targets(status).count();
    if dropped > 0 {
        left_out.push(format!("{dropped} targets: after a restart, nothing that ran there counts as proven"));
    }
    if left_out.is_empty() && !drops_proofs {
        return None;
    }
    let mut message = format!("the status of {count} targets is too large for one object: left out are ");
    message.push_str(&left_out.join(", "));
    if drops_proofs {
        message.push_str(&format!(
            ", and all but the last {kept} proven revisions of each target: after a restart an older one is not \
             promoted"
        ));
    }
    message.push_str("; split the pipeline");
    Some(message)
}

type ShorteningStep = fn(&mut PipelineStatus) -> Option<String>;

/// The steps, one after the other. No step loses a verified revision, and failing targets come last.
const SHORTENING_STEPS: [ShorteningStep; 4] =
    [share_proofs, shorten_promotions, summarize_healthy, summarize_others];

fn targets(status: &PipelineStatus) -> impl Iterator<Item = &TargetStatus> {
    status.environments.values().flat_map(|e| &e.targets)
}

fn targets_mut(status: &mut PipelineStatus) -> impl Iterator<Item = &mut TargetStatus> {
    status.environments.values_mut().flat_map(|e| &mut e.targets)
}

/// Writes each verified revision once for all targets. Nothing is lost.
fn share_proofs(status: &mut PipelineStatus) -> Option<String> {
    if !status.revisions.is_empty() {
        return None;
    }
    let mut shared = SharedRevisions::default();
    let mut place = |facets: BTreeMap<String, String>| shared.place(facets.clone(), || facets);
    for target in targets_mut(status) {
        let one = |proof: Verified| proof_text(place(proof.facets), proof.arrival, proof.run, proof.at);
        let mut all: Vec<String> = target.verified.drain(..).map(one).collect();
        all.extend(target.unverified.take().map(|facets| place(facets).to_string()));
        target.proofs = all.join(" ");
    }
    status.revisions = shared.into_revisions();
    None
}

/// The highest number of proofs that a target has in the shared form.
fn most_proofs(status: &PipelineStatus) -> usize {
    targets(status)
        .map(|t| t.proofs.split(' ').filter(|proof| proof.contains('/')).count())
        .max()
        .unwrap_or(0)
}

/// Keeps this many of each target's proofs, the newest ones, in a status that has them in the short form.
fn keep_proofs(status: &mut PipelineStatus, kept: usize) {
    let (former, mut shared) = (std::mem::take(&mut status.revisions), SharedRevisions::default());
    for target in targets_mut(status) {
        let (proven, unproven): (Vec<&str>, Vec<&str>) =
            target.proofs.split_whitespace().partition(|proof| proof.contains('/'));
        let newest = &proven[proven.len().saturating_sub(kept)..];
        let moved = |proof: &&str| {
            let (place, rest) = proof.split_at(proof.find('/').unwrap_or(proof.len()));
            let place: usize = place.parse().ok()?;
            let facets = former.get(place)?;
            Some(format!("{}{rest}", shared.place(place, || facets.clone())))
        };
        target.proofs = newest.iter().chain(&unproven).filter_map(moved).collect::<Vec<_>>().join(" ");
    }
    status.revisions = shared.into_revisions();
}

/// Shortens the messages of promotions. The Promotions have them in full.
fn shorten_promotions(status: &mut PipelineStatus) -> Option<String> {
    let mut is_cut = false;
    let mut cut_to = |text: &mut String, most: usize| {
        is_cut |= text.len() > most;
        cut(text, most);
    };
    for target in targets_mut(status) {
        target.promotion.iter_mut().for_each(|promotion| cut_to(&mut promotion.message, 100));
    }
    for environment in status.environments.values_mut() {
        environment.promotion.iter_mut().for_each(|promotion| cut_to(&mut promotion.message, 500));
        cut_to(&mut environment.message, 500);
    }
    status.conditions.iter_mut().for_each(|condition| cut_to(&mut condition.message, 2000));
    status.summary.iter_mut().for_each(|summary| {
        cut_to(&mut summary.environments, 2000);
        cut_to(&mut summary.promoting, 2000);
    });
    is_cut.then(|| "the ends of long messages".into())
}

/// Leaves out where the targets are. The spec says it, and a target is found by its name.
fn leave_out_places(status: &mut PipelineStatus) {
    for target in targets_mut(status) {
        target.namespace.clear();
        target.cluster_app_ref = None;
    }
}

/// Leaves out all targets except the first `full` failing ones.
fn drop_targets(status: &mut PipelineStatus, full: usize) {
    let mut kept = 0;
    for environment in status.environments.values_mut() {
        environment.targets.retain(|target| {
            let keep = is_failing(target) && kept < full;
            kept += usize::from(keep);
            keep
        });
    }
    keep_proofs(status, usize::MAX);
}

/// Leaves out the details of a target except its health, its revision and the beginning of its error. Returns true
/// if it had workloads.
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
    let others = targets_mut(status).filter(|target| target.health != Health::Ready && !is_failing(target));
    let count = others.map(summarize).filter(|had_workloads| *had_workloads).count();
    (count > 0)
        .then(|| format!("the workloads of {count} targets that are progressing, pending or suspended"))
}

fn is_failing(target: &TargetStatus) -> bool {
    matches!(target.health, Health::Failed | Health::Unknown)
}

/// Summarizes the failing targets except the first `full` of them. Returns their number.
fn shorten_failed(status: &mut PipelineStatus, full: usize) -> usize {
    let failed = targets_mut(status).filter(|target| is_failing(target)).skip(full);
    failed.map(summarize).count()
}
