//! The actions of a decision, and what follows from the end of each side effect.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::{Phase, Promotion as ApiPromotion, PromotionStatus};
use sluice_core::decide::{Action, Decision};
use sluice_delivery::{ChangeRequest, ChangeRequestStatus, DeliveryError, Order};

use super::effect::{Effect, Job, MetricUpdate, Work};
use super::status_queue::{Basis, StatusOwner, serialize_status};
use super::{InFlight, State, slow_delivery};
use crate::act::outcome::{self, left_open};
use crate::act::{ActError, EndedJob, JobOutcome, order, strategy};
use crate::metrics;
use crate::pipeline_key::PipelineKey;
use crate::record::pending_event::PendingEvent;
use crate::record::promotion::{self, RecordChange};
use crate::secret::SecretVersion;

/// Which strategy a side effect uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum StrategySource {
    /// The one that the pipeline names for the environment now.
    Environment,
    /// The one that opened the change request.
    Request,
}

/// A side effect that may be started.
pub(super) struct Prepared {
    pub(super) order: Order,
    pub(super) secret: Option<String>,
    pub(super) strategy: Strategy,
    pub(super) promotion: Arc<ApiPromotion>,
}

impl Prepared {
    /// The change request of the promotion.
    pub(super) fn request(&self) -> Option<ChangeRequest> {
        self.promotion.status.as_ref()?.change_request.as_ref().map(order::change_request)
    }
}

impl State {
    /// ACT: records what was decided, and starts side effects.
    pub(super) fn act(&mut self, key: &PipelineKey, decision: &Decision) {
        for action in &decision.actions {
            match action {
                Action::Start(intent) => match self.may_record(key, intent) {
                    Ok(()) => self.start(key, intent),
                    Err(later) => self.requeue_at(key, later),
                },
                Action::Deliver { promotion } => self.deliver(key, promotion),
                Action::Follow { promotion, may_merge } => self.follow(key, promotion, *may_merge),
                Action::Withdraw { promotion } => self.withdraw(key, promotion),
                Action::CheckDelivered { promotion, is_last: false } => self.check_delivered(key, promotion),
                Action::CheckDelivered { promotion, is_last: true } => self.check_last(key, promotion),
                Action::FindDelivery { promotion } => self.find_delivery(key, promotion),
                Action::Pass { promotion, gates } => {
                    self.change(key, promotion, &RecordChange::Passed(gates.clone()));
                }
                Action::Move(to) => self.change(key, &to.promotion, &RecordChange::Moved(to.clone())),
                Action::Wait { promotion, gates, message } => {
                    let change = RecordChange::Waits { gates: gates.clone(), message: message.clone() };
                    self.change(key, promotion, &change);
                }
            }
        }
    }

    /// Changes the status of a record, in memory immediately and on the server as soon as possible.
    pub(super) fn change(&mut self, key: &PipelineKey, name: &str, change: &RecordChange) {
        let now = self.now.wall;
        let Some(fencing_token) = self.fencing_token(key) else { return };
        let Some(record) = self.record_mut(key, name) else { return };
        let before = record.status();
        let mut status = promotion::apply(&before, &record.object().spec, change, now);
        if let RecordChange::Moved(to) = change
            && let Some(approval) =
                record.cached.hook_fields.key_approval.as_ref().filter(|_| to.spends_approval)
        {
            status.spent_key_approval = Some(approval.signed_at);
        }
        if !record.is_stored || (status == before && record.object().status.is_some()) {
            return;
        }
        let basis = Basis {
            version: record.cached.basis_version(),
            status: record.object().status.as_ref().and_then(|stored| serialize_status(stored).ok()),
            uid: record.object().uid(),
        };
        let object =
            Arc::new(ApiPromotion { status: Some(status.clone()), ..record.object().as_ref().clone() });
        record.cached.parts.0 = object.clone();
        match serialize_status(&status) {
            Ok(serialized) => {
                let owner = StatusOwner::Promotion(key.clone(), name.into());
                self.write_status(owner, serialized, basis, fencing_token);
            }
            Err(error) => {
                tracing::error!(pipeline = %key, promotion = name, %error, "cannot serialize a status");
            }
        }
        self.count_change(key, &object, change, &before);
        if stops_delivery(change) {
            self.revoke_in_flight_of(key, &object);
        }
        if let Some(entry) = self.pipelines.get(key) {
            let event = PendingEvent::changed(entry.object(), &object, &before, change);
            self.effects.extend(event.map(Effect::SendEvent));
        }
        self.enqueue(key);
    }

    /// Revokes the fencing token of the side effect in flight for a promotion.
    pub(super) fn revoke_in_flight_of(&mut self, key: &PipelineKey, promotion: &ApiPromotion) {
        let in_flight = self.in_flight.get(&(key.clone(), promotion.spec.place()));
        let own = in_flight.filter(|in_flight| in_flight.promotion == promotion.name_any());
        self.effects.extend(own.map(|in_flight| Effect::Revoke(in_flight.fencing_token.clone())));
    }

    /// Counts and logs a change of a record.
    fn count_change(
        &mut self,
        key: &PipelineKey,
        object: &ApiPromotion,
        change: &RecordChange,
        before: &PromotionStatus,
    ) {
        let Some(status) = &object.status else { return };
        let steps = metrics::completed(&object.spec, before, status, self.now.wall);
        if !steps.is_empty() {
            let spec = Box::new(object.spec.clone());
            self.count(MetricUpdate::Steps(key.namespace.clone(), spec, steps));
        }
        let (phase, reason, message) = (status.phase, &status.reason, &status.message);
        let promotion = object.name_any();
        let is_trouble = matches!(change, RecordChange::Failed { .. } | RecordChange::Trouble { .. });
        if is_trouble && (reason, message) != (&before.reason, &before.message) {
            tracing::warn!(pipeline = %key, promotion, %phase, reason, why = message, "the promotion has a problem");
        }
        if before.phase == status.phase {
            return;
        }
        if phase == Phase::Failed {
            tracing::warn!(pipeline = %key, promotion, reason, why = message, "the promotion failed");
        } else {
            tracing::info!(pipeline = %key, promotion, %phase, why = message, "the promotion is in another phase");
        }
        self.count(MetricUpdate::Entered(phase.to_string()));
        // Failures of side effects were counted when they happened.
        if let (RecordChange::Moved(_) | RecordChange::Tampered(_), Phase::Failed) = (change, phase) {
            self.count(MetricUpdate::Failed(status.reason.clone()));
        }
    }

    /// Prepares a side effect for a promotion, if it may be started now.
    pub(super) fn prepare(&self, key: &PipelineKey, name: &str, source: StrategySource) -> Option<Prepared> {
        let fencing_token = self.fencing_token(key).filter(|_| self.acts(key))?;
        let entry = self.pipelines.get(key)?;
        let record = self.record(key, name).filter(|record| record.is_stored)?;
        let promotion = record.object();
        if self.in_flight.contains_key(&(key.clone(), promotion.spec.place())) {
            return None;
        }
        let strategy = match source {
            StrategySource::Environment => strategy::named(entry.object(), promotion).cloned(),
            StrategySource::Request => strategy::of_request(entry.object(), promotion),
        }?;
        let (mut order, secret) = order::order(entry.object(), promotion, &strategy, record.is_first_try)?;
        order.fencing_token = fencing_token;
        Some(Prepared { order, secret, strategy, promotion: promotion.clone() })
    }

    /// Starts a side effect. At most one is in flight for each environment of a pipeline, or for each target if
    /// targets are promoted separately.
    pub(super) fn launch(&mut self, key: &PipelineKey, prepared: Prepared, work: Work) {
        let Prepared { order, secret, strategy, promotion } = prepared;
        let (pipeline, place) = (key.clone(), promotion.spec.place());
        let needs_open_gates =
            matches!(work, Work::Follow { may_merge: true, .. }) || order.rebuild.is_some();
        let (name, fencing_token) = (promotion.name_any(), order.fencing_token.clone());
        let started = self.now.instant;
        if matches!(work, Work::Deliver(_)) {
            self.requeue_at(key, started + slow_delivery::AFTER);
        }
        let finds_delivery = matches!(work, Work::FindDelivery);
        let in_flight =
            InFlight { promotion: name, needs_open_gates, finds_delivery, fencing_token, started };
        self.in_flight.insert((pipeline.clone(), place.clone()), in_flight);
        let job = Job { pipeline, place, order, secret, strategy, promotion, work };
        self.emit(Effect::Start(Box::new(job)));
    }

    pub(super) fn deliver(&mut self, key: &PipelineKey, name: &str) {
        self.report_slow_delivery(key, name);
        let Some(prepared) = self.prepare(key, name, StrategySource::Environment) else { return };
        if let Some(record) = self.record_mut(key, name) {
            record.is_first_try = false;
        }
        self.schedule.forget_last_check(&key.promotion(name));
        self.launch_delivery(key, prepared);
    }

    pub(super) fn launch_delivery(&mut self, key: &PipelineKey, mut prepared: Prepared) {
        let Some(pipeline) = self.pipelines.get(key).map(|entry| entry.object().clone()) else { return };
        prepared.order.recorded = self.recorded_requests(key, &prepared.promotion.spec.place());
        prepared.order.recorded_open = self.recorded_open(key, &prepared.promotion.spec.place());
        prepared.order.withdrawn = self.withdrawn_requests(key, &prepared.promotion);
        self.launch(key, prepared, Work::Deliver(pipeline));
    }

    /// Handles the end of a side effect.
    pub(super) fn job_ended(&mut self, ended: EndedJob) {
        let (key, place) = (ended.pipeline.clone(), ended.place.clone());
        let in_flight = self.in_flight.remove(&(key.clone(), place.clone()));
        if self.fencing_token(&key).is_none() {
            return;
        }
        if self.record(&key, &ended.promotion).is_some_and(|record| record.object().uid() == ended.uid) {
            self.take_outcome(ended, in_flight);
        }
        self.end_slow_delivery(&key, &place);
        self.enqueue(&key);
    }

    /// Changes the record of a side effect that has ended.
    fn take_outcome(&mut self, ended: EndedJob, in_flight: Option<InFlight>) {
        let EndedJob { pipeline: key, promotion: name, strategy, secret, outcome, .. } = ended;
        let change = match outcome {
            JobOutcome::Check(result) => {
                self.check_ended(&key, &name, result);
                None
            }
            JobOutcome::Find(result) => self.find_ended(&key, &name, &strategy, result),
            JobOutcome::Follow(Ok(look)) => {
                let may_rebuild =
                    in_flight.is_some_and(|poll| poll.needs_open_gates && poll.fencing_token.check().is_ok());
                self.poll_ended(&key, &name, look, may_rebuild)
            }
            // The look before a close was stopped, and a later decision may keep the change request open.
            JobOutcome::Withdrawal(Ok(
                ChangeRequestStatus::Open { .. } | ChangeRequestStatus::Waits { .. },
            )) if in_flight.as_ref().is_none_or(|look| look.fencing_token.check().is_err()) => None,
            outcome => self.change_after(&key, &name, &strategy, outcome),
        };
        if let Some(change) = change {
            self.change_ended(&key, &name, &change, secret);
        }
    }

    /// How the record changes when a job other than a poll of its change request has ended.
    fn change_after(
        &self,
        key: &PipelineKey,
        name: &str,
        strategy: &Strategy,
        outcome: JobOutcome,
    ) -> Option<RecordChange> {
        let status = self.record(key, name).map(|record| record.status()).unwrap_or_default();
        let open = status.change_request.clone();
        match outcome {
            // A revoked side effect has not failed. The next decision says what to do instead.
            JobOutcome::Delivery(Err(ActError::Delivery(DeliveryError::Revoked)))
            | JobOutcome::Follow(Err(ActError::Delivery(DeliveryError::Revoked)))
            | JobOutcome::Withdrawal(Err(ActError::Delivery(DeliveryError::Revoked))) => None,
            JobOutcome::Delivery(Ok(delivered)) => Some(outcome::delivered(delivered, strategy)),
            JobOutcome::Withdrawal(Ok(found)) => outcome::withdrawn(found, &status),
            JobOutcome::Withdrawal(Err(error)) if self.is_out_of_reach(key, name, &error) => {
                open.map(left_open)
            }
            JobOutcome::Delivery(Err(error)) => {
                Some(outcome::failed(&error, strategy, status.attempts, self.now.wall))
            }
            JobOutcome::Follow(Err(error)) | JobOutcome::Withdrawal(Err(error)) => {
                let message = error.message(strategy::secret_name(strategy));
                Some(RecordChange::Trouble { reason: error.reason(), message })
            }
            JobOutcome::Follow(Ok(_)) | JobOutcome::Check(_) | JobOutcome::Find(_) => None,
        }
    }

    /// Applies the change that follows from the end of a side effect.
    fn change_ended(
        &mut self,
        key: &PipelineKey,
        name: &str,
        change: &RecordChange,
        secret: Option<SecretVersion>,
    ) {
        if let RecordChange::Failed { reason, .. } | RecordChange::Trouble { reason, .. } = change {
            self.count(MetricUpdate::Failed((*reason).into()));
        }
        if !matches!(
            change,
            RecordChange::Proposed(_)
                | RecordChange::Waiting { .. }
                | RecordChange::SeenOpen(_)
                | RecordChange::Trouble { .. }
        ) {
            self.schedule.forget(&key.promotion(name));
        }
        if let RecordChange::Failed { again, .. } = change {
            let pause = pause_until(*again, self.now.wall);
            self.schedule.failed(&key.promotion(name), self.now.instant, pause, secret);
        }
        self.change(key, name, change);
    }
}

/// Whether a delivery that was started before a change must not take effect after it: a gate has closed, the promotion needs
/// a new approval, or the pipeline does not want it any more.
fn stops_delivery(change: &RecordChange) -> bool {
    match change {
        RecordChange::Waits { .. } => true,
        RecordChange::Moved(to) => to.spends_approval || matches!(to.to, Phase::Rejected | Phase::Cancelled),
        _ => false,
    }
}

/// How long until a time; zero if it has passed.
pub(super) fn pause_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
