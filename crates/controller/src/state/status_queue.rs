//! Status writes: one at a time for each object, the newest status last. A status that is replaced while another
//! one is being written is never sent. A failed write is repeated until it is stored or its object is gone.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;
use sluice_api::promotion::{Phase, PromotionStatus};
use sluice_api::{Pipeline, Promotion};
use sluice_core::promotion::GateKind;
use sluice_delivery::FencingToken;

use super::rate_limit::RateLimit;
use crate::hook::approval_rules;
use crate::pipeline_key::PipelineKey;

/// The object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatusOwner {
    /// A pipeline.
    Pipeline(PipelineKey),
    /// A promotion of a pipeline, by its name.
    Promotion(PipelineKey, String),
}

impl StatusOwner {
    /// The kind, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        match self {
            StatusOwner::Pipeline(_) => "Pipeline",
            StatusOwner::Promotion(..) => "Promotion",
        }
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &PipelineKey {
        match self {
            StatusOwner::Pipeline(key) | StatusOwner::Promotion(key, _) => key,
        }
    }

    /// The promotion's name, for logs.
    pub fn promotion(&self) -> Option<&str> {
        match self {
            StatusOwner::Pipeline(_) => None,
            StatusOwner::Promotion(_, name) => Some(name),
        }
    }
}

/// A status as it is sent.
pub type SerializedStatus = Arc<RawValue>;

/// Serializes a status.
///
/// # Errors
/// When a value has no form in JSON.
pub fn serialize_status(status: &impl Serialize) -> serde_json::Result<SerializedStatus> {
    serde_json::value::to_raw_value(status).map(SerializedStatus::from)
}

/// The stored object that a status was composed for.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// The version of the object. 0 if it is not known: then the status replaces any other.
    pub version: u64,
    /// The status that was stored at that version; `None` if there was none, not even one of hook calls.
    pub status: Option<SerializedStatus>,
    /// The object's uid. The write never changes another object that was created under the same name.
    pub uid: Option<String>,
}

/// A status write to be sent.
#[derive(Clone, Debug)]
pub struct StatusWrite {
    /// The object.
    pub owner: StatusOwner,
    /// Identifies the write in its [`WriteOutcome`].
    pub number: u64,
    /// How long to wait before it is sent.
    pub pause: Duration,
    /// The status.
    pub status: SerializedStatus,
    /// The version of the object that the status was composed for; 0 if it is not known.
    pub version: u64,
    /// The object's uid.
    pub uid: Option<String>,
    /// Statuses that may be stored. Any other one was written by someone else.
    pub may_be_stored: Vec<SerializedStatus>,
    /// The write is sent only while this fencing token is valid.
    pub fencing_token: FencingToken,
}

impl StatusWrite {
    /// Whether a person has overruled the write in the meantime. What the person has set would be lost if this process ends
    /// before its watch reports it:
    ///
    /// - The write would begin another try of a promotion whose stored try was rejected. The rejection would not count for
    ///   that try.
    /// - The write would end a promotion as succeeded, and a person has rejected it before that was stored. A rejection came too
    ///   late if the write is also the first one that has the delivery: the person could not see it.
    /// - The write would end a promotion because its change request was closed, and another try was requested before that was
    ///   known. The request would undo the close.
    /// - The write would add a gate to a promotion that was approved without it. The approval would open that gate.
    pub fn is_overruled(&self, stored: &StoredObject) -> bool {
        let StoredObject::Promotion(promotion) = stored else { return false };
        let before = promotion.status.clone().unwrap_or_default();
        let Ok(after) = serde_json::from_str::<PromotionStatus>(self.status.get()) else { return false };
        let has_rejection = promotion.spec.rejection_now(&before).is_some();
        let is_rejected = has_rejection && before.phase != Phase::Rejected;
        if has_rejection
            && after.phase == Phase::Succeeded
            && (before.times.contains_key("Delivered") || !after.times.contains_key("Delivered"))
            && !matches!(before.phase, Phase::Delivered | Phase::Succeeded)
        {
            return true;
        }
        let ends = after.phase == Phase::Rejected && before.phase != Phase::Rejected;
        let is_requested = promotion.spec.retry.is_some() && promotion.spec.retry != after.retried;
        if ends && !has_rejection && is_requested {
            return true;
        }
        let is_approved = promotion.spec.approval_now(&before).is_some()
            || approval_rules::counts(promotion, before.key_approval.as_deref());
        match after.retries.cmp(&before.retries) {
            Ordering::Less => false,
            Ordering::Equal => {
                is_approved && !after.gates.iter().all(|gate| may_be_opened(&gate.name, &before))
            }
            Ordering::Greater => is_rejected,
        }
    }
}

/// Whether an approval that was given when this status was stored may open a gate: its approver could see the gate, or the
/// gate waits for an approval of the revision itself.
pub fn may_be_opened(gate: &str, stored: &PromotionStatus) -> bool {
    gate == GateKind::Approval.name() || stored.gates.iter().any(|known| known.name == gate)
}

/// An object as it is stored.
#[allow(clippy::large_enum_variant, reason = "most of them are Promotions, and they are moved, not kept")]
#[derive(Clone, Debug)]
pub enum StoredObject {
    /// A pipeline.
    Pipeline(Pipeline),
    /// A promotion.
    Promotion(Promotion),
}

/// The object that a status write has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Its version.
    pub version: u64,
    /// Whether someone may have edited the object since the version that the status was composed for. The watch may not have
    /// reported that yet.
    pub is_over_edit: bool,
}

/// How a status write ended.
#[derive(Debug)]
pub enum WriteOutcome {
    /// It is stored.
    Stored(StoredVersion),
    /// The object does not exist any more.
    Gone,
    /// Someone else has written the status since the version that it was composed for, or has overruled it.
    Conflict(Box<StoredObject>),
    /// It was not sent: its fencing token was revoked.
    Withheld,
    /// It failed, and is repeated.
    Failed(kube::Error),
}

/// How many statuses with an unknown outcome are remembered for an object. If a forgotten one turns out to be
/// stored, it counts as written by someone else: the stored status is loaded, as after a restart.
const MAX_UNKNOWN: usize = 8;
/// The pause after the first failed write; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after a failed write.
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// The time between two events that say that a status cannot be written.
const REPORT_PAUSE: Duration = Duration::from_secs(3600);

/// How many writes of an object are sent without a pause. A rollout over many targets takes fewer, with one write for each target.
/// Another program may answer each write with a write of its own, so there is a limit.
const BURST: u32 = 100;
/// The time between two writes of an object in the long run.
const PERIOD: Duration = Duration::from_secs(3);

/// How many KiB of statuses are sent for a namespace without a pause: two thousand pipelines write less than that in a rollout.
/// Hundreds of pipelines whose targets change all the time would keep the API server from answering others.
const BURST_KIB_OF_NAMESPACE: u32 = 64 << 10;
/// The largest status that does not wait for others of its namespace, in KiB.
const SMALL_KIB: u32 = 16;
/// The time for one KiB in the long run: half a MiB each second.
const PERIOD_OF_KIB: Duration = Duration::from_micros(1953);

/// The status writes that are pending, one for each object.
#[derive(Debug)]
pub struct StatusQueue {
    pending: HashMap<StatusOwner, Pending>,
    rates: RateLimit<StatusOwner>,
    rates_of_namespaces: RateLimit<String>,
    begun: u64,
}

impl Default for StatusQueue {
    fn default() -> Self {
        Self {
            pending: HashMap::new(),
            rates: RateLimit::new(BURST, PERIOD),
            rates_of_namespaces: RateLimit::new(BURST_KIB_OF_NAMESPACE, PERIOD_OF_KIB),
            begun: 0,
        }
    }
}

#[derive(Debug)]
struct Pending {
    /// Distinguishes this write from an earlier one of the same object that was forgotten.
    number: u64,
    next: Option<SerializedStatus>,
    writing: SerializedStatus,
    failures: u32,
    /// When an event last said that these writes fail.
    reported: Option<Instant>,
    version: u64,
    uid: Option<String>,
    /// The statuses that may be stored: the last one that is known to be stored, and at most [`MAX_UNKNOWN`] later
    /// ones whose write failed without a definite answer.
    may_be_stored: Vec<SerializedStatus>,
    fencing_token: FencingToken,
}

impl StatusQueue {
    /// Adds a status, in place of an earlier one of the object that has not been sent yet. Returns the write to be
    /// sent now; `None` while an earlier write of the object has not ended.
    pub fn push(
        &mut self,
        owner: StatusOwner,
        status: SerializedStatus,
        basis: Basis,
        fencing_token: FencingToken,
        now: Instant,
    ) -> Option<StatusWrite> {
        if let Some(pending) = self.pending.get_mut(&owner) {
            pending.next = Some(status);
            return None;
        }
        self.begun += 1;
        let pending = Pending {
            number: self.begun,
            next: None,
            writing: status,
            failures: 0,
            reported: None,
            version: basis.version,
            uid: basis.uid,
            may_be_stored: basis.status.into_iter().collect(),
            fencing_token,
        };
        let write = pending.write(&owner, self.pause(&owner, &pending.writing, now));
        self.pending.insert(owner, pending);
        Some(write)
    }

    /// Counts a write, and returns the pause before it. A small status does not wait for large ones of its namespace.
    fn pause(&mut self, owner: &StatusOwner, status: &SerializedStatus, now: Instant) -> Duration {
        let kib = u32::try_from(status.get().len().div_ceil(1024)).unwrap_or(u32::MAX);
        let of_namespace = self.rates_of_namespaces.count_times(&owner.pipeline().namespace, kib, now);
        let own = self.rates.count(owner, now);
        if kib <= SMALL_KIB { own } else { own.max(of_namespace) }
    }

    /// The objects whose status is being written.
    pub fn owners(&self) -> impl Iterator<Item = &StatusOwner> {
        self.pending.keys()
    }

    /// Drops what is still to be written of an object.
    pub fn forget(&mut self, owner: &StatusOwner) {
        self.pending.remove(owner);
    }

    /// Whether the status of an object is being written.
    pub fn is_writing(&self, owner: &StatusOwner) -> bool {
        self.pending.contains_key(owner)
    }

    /// Whether an event should say now that the status of an object cannot be written. Kubernetes forgets events after an hour.
    pub fn begins_report(&mut self, owner: &StatusOwner, now: Instant) -> bool {
        let Some(pending) = self.pending.get_mut(owner) else { return false };
        let is_due = pending.reported.is_none_or(|at| now >= at + REPORT_PAUSE);
        if is_due {
            pending.reported = Some(now);
        }
        is_due
    }

    /// Handles the end of a write. Returns `None` if the write does not count, because its object was forgotten
    /// since; else the next write of the object, if there is one.
    pub fn ended(
        &mut self,
        owner: &StatusOwner,
        number: u64,
        outcome: &WriteOutcome,
        now: Instant,
    ) -> Option<Option<StatusWrite>> {
        self.pending.get(owner).filter(|pending| pending.number == number)?;
        let mut pending = self.pending.remove(owner)?;
        let pause = match outcome {
            WriteOutcome::Gone | WriteOutcome::Conflict(_) | WriteOutcome::Withheld => return Some(None),
            WriteOutcome::Stored(stored) => {
                let Some(next) = pending.next.take() else { return Some(None) };
                (pending.failures, pending.reported) = (0, None);
                // After an edit the next write names the version from before it, and so is compared with the edit.
                if !stored.is_over_edit {
                    pending.version = stored.version;
                }
                pending.may_be_stored = vec![std::mem::replace(&mut pending.writing, next)];
                self.pause(owner, &pending.writing, now)
            }
            WriteOutcome::Failed(error) => {
                let pause = (FIRST_PAUSE * 2u32.pow(pending.failures.min(8))).min(MAX_PAUSE);
                pending.failures += 1;
                if let Some(next) = pending.next.take() {
                    let sent = std::mem::replace(&mut pending.writing, next);
                    if may_be_stored(error) {
                        pending.remember(sent);
                    }
                }
                pause
            }
        };
        let write = pending.write(owner, pause);
        self.pending.insert(owner.clone(), pending);
        Some(Some(write))
    }
}

impl Pending {
    fn write(&self, owner: &StatusOwner, pause: Duration) -> StatusWrite {
        StatusWrite {
            owner: owner.clone(),
            number: self.number,
            pause,
            status: self.writing.clone(),
            version: self.version,
            uid: self.uid.clone(),
            may_be_stored: self.may_be_stored.clone(),
            fencing_token: self.fencing_token.clone(),
        }
    }

    /// Remembers a status whose write has no known outcome. If there are too many, it forgets the oldest of them.
    /// It keeps the first entry, which is known to have been stored.
    fn remember(&mut self, sent: SerializedStatus) {
        if self.may_be_stored.len() > MAX_UNKNOWN {
            self.may_be_stored.remove(1);
        }
        self.may_be_stored.push(sent);
    }
}

/// Whether a failed write may have been stored all the same: a 4xx answer says that it was not.
fn may_be_stored(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeout::{API_CALL_TIMEOUT, timed_out};

    fn owner(name: &str) -> StatusOwner {
        let key = PipelineKey { namespace: "apps".into(), name: "podinfo".into() };
        StatusOwner::Promotion(key, name.into())
    }

    #[test]
    fn the_statuses_of_one_namespace_share_a_rate_and_delay_no_other() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        let of = |namespace: &str, number: u32| {
            let name = format!("podinfo-{}", number % 60);
            StatusOwner::Pipeline(PipelineKey { namespace: namespace.into(), name })
        };
        let status = serialize_status(&serde_json::json!({"message": "x".repeat(160 << 10)})).unwrap();
        let pauses: Vec<Duration> = (0..500).map(|n| queue.pause(&of("apps", n), &status, now)).collect();
        assert_eq!(pauses[300], Duration::ZERO);
        assert!((25..35).contains(&pauses[499].as_secs()), "{} s after 78 MiB", pauses[499].as_secs());
        assert_eq!(queue.pause(&of("other", 0), &status, now), Duration::ZERO);
        let small = serialize_status(&serde_json::json!({"message": "waits for approval"})).unwrap();
        assert_eq!(queue.pause(&of("apps", 51), &small, now), Duration::ZERO);
    }

    #[test]
    fn few_statuses_are_remembered_however_long_writes_fail() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        let owner = owner("podinfo-1");
        let status = |n: usize| serialize_status(&serde_json::json!({"message": n.to_string()})).unwrap();
        let basis = Basis { version: 1, status: Some(status(0)), uid: None };
        assert!(queue.push(owner.clone(), status(1), basis, FencingToken::default(), now).is_some());
        let mut last = None;
        let mut fail = |n: usize, error: kube::Error| {
            let pushed = queue.push(owner.clone(), status(n), Basis::default(), FencingToken::default(), now);
            assert!(pushed.is_none(), "one write at a time");
            last = queue.ended(&owner, 1, &WriteOutcome::Failed(error), now).unwrap();
            last.clone().unwrap()
        };
        for n in 2..200 {
            fail(n, timed_out(API_CALL_TIMEOUT));
        }
        let write = fail(200, timed_out(API_CALL_TIMEOUT));
        assert_eq!(write.may_be_stored.len(), MAX_UNKNOWN + 1);
        assert_eq!(write.may_be_stored[0].get(), status(0).get(), "the stored one");
        assert_eq!((write.status.get(), write.pause), (status(200).get(), MAX_PAUSE));
        // A status that the server has rejected is not stored.
        let refused = kube::core::Status::failure("no", "Forbidden").with_code(403);
        let after = fail(500, kube::Error::Api(refused.boxed()));
        assert_eq!(after.may_be_stored.last().unwrap().get(), write.may_be_stored.last().unwrap().get());
    }
}
