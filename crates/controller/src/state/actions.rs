//! The actions of a decision, carried out: records and side effects, and what follows from how they
//! ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::{Phase, Promotion as ApiPromotion};
use sluice_core::decide::{Action, Decision, Move};
use sluice_delivery::{
    ChangeRequest, Delivery, DeliveryError, Followed, Line, Order, Place, Retry, Stale, Strategy as By,
    clock, fault,
};

use super::callback::Offer;
use super::outcome::{self, left};
use super::{ActError, Done, Ended, notification, order};
use crate::engine::Engine;
use crate::intake::{Input, PipelineKey};
use crate::metrics;
use crate::record::promotion::{self, Change};
use crate::record::writer::{Basis, StatusOf, spell};

/// The comment on a change request that Sluice closes, unless a person rejected its promotion.
const NOT_NEEDED: &str =
    "Sluice does not need this change any more: the environment has what it carries, or something newer.";

impl Engine {
    /// ACT: records moves, and starts what is to be done.
    pub(crate) fn act(&mut self, key: &PipelineKey, decision: &Decision, now: Timestamp) {
        for action in &decision.actions {
            match action {
                Action::Start(intent) => match self.may_record(key, &intent.name) {
                    Ok(()) => self.start(key, intent),
                    Err(later) => self.wake_at(key, later),
                },
                Action::Deliver { promotion } => self.deliver(key, promotion),
                Action::Follow { promotion, may_merge } => self.follow(key, promotion, *may_merge),
                Action::Withdraw { promotion } => self.withdraw(key, promotion),
                Action::CheckDelivered { promotion } => self.check_delivered(key, promotion),
                Action::Pass { promotion, gates } => {
                    self.change(key, promotion, &Change::Passed(gates.clone()), now);
                }
                Action::Move(to) => self.change(key, &to.promotion, &Change::Moved(to.clone()), now),
                Action::Wait { promotion, gates, message } => {
                    let change = Change::Waits { gates: gates.clone(), message: message.clone() };
                    self.change(key, promotion, &change, now);
                }
            }
        }
    }

    /// Changes the status of a record, here at once and on the server as soon as may be.
    pub(crate) fn change(&mut self, key: &PipelineKey, name: &str, change: &Change, now: Timestamp) {
        let Some(permit) = self.shards.permit(key) else { return };
        let Some(record) = self.promotions.get_mut(key).and_then(|r| r.get_mut(name)) else { return };
        let before = record.object.status.clone().unwrap_or_default();
        let mut status = promotion::apply(&before, &record.object.spec, change, now);
        if let Change::Moved(to) = change
            && let Some(approval) = record.key_approval.as_ref().filter(|_| to.spends_approval)
        {
            status.spent_key_approval = Some(approval.signed_at.clone());
        }
        if status == before && record.object.status.is_some() {
            return;
        }
        if !record.stored {
            return;
        }
        let basis = Basis {
            version: record.version,
            stood: spell(&before).ok(),
            uid: record.object.metadata.uid.clone(),
        };
        let mut object = record.object.as_ref().clone();
        object.status = Some(status.clone());
        record.object = Arc::new(object);
        let object = record.object.clone();
        let steps = metrics::completed(&object.spec, &before, &status, now);
        self.metrics.steps.completed(&key.namespace, &object.spec, &steps);
        if before.phase != status.phase {
            let (phase, message) = (status.phase, &status.message);
            tracing::info!(pipeline = %key, promotion = name, %phase, message, "promotion");
            self.metrics.entered(&status.phase.to_string());
            // What failed on the way was counted when it did.
            if let (Change::Moved(_) | Change::Tampered(_), Phase::Failed) = (change, status.phase) {
                self.metrics.failed(&status.reason);
            }
        }
        match spell(&status) {
            Ok(spelled) => {
                let object = StatusOf::Promotion(key.clone(), name.into());
                self.writer.write(object, spelled, basis, permit);
            }
            Err(error) => tracing::error!(pipeline = %key, promotion = name, %error, "cannot spell a status"),
        }
        if let Some(entry) = self.pipelines.get(key) {
            self.events.tell(&entry.object, &object, &before, change);
        }
        self.touch(key);
    }

    /// The job for a promotion, when it may be acted on now: by the strategy that the pipeline names,
    /// or where the change request is that it has.
    pub(super) fn job(&self, key: &PipelineKey, name: &str, on: On) -> Option<Job> {
        let permit = self.shards.permit(key).filter(|_| self.shards.acts(key))?;
        let entry = self.pipelines.get(key)?;
        let record = self.promotions.get(key)?.get(name).filter(|r| r.stored)?;
        if self.under_way.contains_key(&(key.clone(), record.object.spec.place())) {
            return None;
        }
        let strategy = match on {
            On::Environment => order::named(&entry.object, &record.object).cloned(),
            On::Request => order::of_request(&entry.object, &record.object),
        }?;
        let (mut order, secret) = order::order(&entry.object, &record.object, &strategy, record.first)?;
        order.permit = permit;
        Some(Job { order, secret, strategy, object: record.object.clone() })
    }

    fn deliver(&mut self, key: &PipelineKey, name: &str) {
        let Some(job) = self.job(key, name, On::Environment) else { return };
        if let Some(record) = self.promotions.get_mut(key).and_then(|r| r.get_mut(name)) {
            record.first = false;
        }
        self.spawn_delivery(key, job);
    }

    fn spawn_delivery(&mut self, key: &PipelineKey, job: Job) {
        let event = self
            .pipelines
            .get(key)
            .and_then(|entry| notification::event(&entry.object, &job.object, &job.order, clock::now()));
        let (client, metrics) = (self.hub.clone(), self.metrics.clone());
        self.spawn(
            key,
            job,
            |e| Ended::Delivery(Err(e)),
            |delivery, order| async move {
                Ended::Delivery(match notification::announce(client, &metrics, &order, event).await {
                    Ok(()) => delivery.deliver(&order).await.map_err(ActError::from),
                    Err(error) => Err(error),
                })
            },
        );
    }

    /// Makes a change request anew on top of its base, since it cannot be merged as it is.
    fn rebuild(&mut self, key: &PipelineKey, name: &str, stale: Stale) {
        if self.pipelines.get(key).is_none_or(|entry| entry.model.suspended) {
            return;
        }
        let Some(mut job) = self.job(key, name, On::Environment) else { return };
        if job.object.status.as_ref().is_none_or(|s| s.phase != Phase::Proposed) {
            return;
        }
        job.order.anew = Some(stale);
        tracing::info!(pipeline = %key, promotion = name, %stale, "making a change request anew");
        self.spawn_delivery(key, job);
    }

    fn follow(&mut self, key: &PipelineKey, name: &str, may_merge: bool) {
        let now = Instant::now();
        let due = self.polling.due(name, now);
        if due > now {
            return self.wake_at(key, due);
        }
        let Some(mut job) = self.job(key, name, On::Request) else { return };
        let Some(request) = job.request() else { return };
        job.order.settled = self.polling.settled(name, &request.head_commit, now);
        self.polling.looked(name, now);
        let next = self.polling.due(name, now);
        self.wake_at(key, next);
        self.spawn(
            key,
            job,
            |e| Ended::Follow(Err(e)),
            move |delivery, order| async move {
                let followed = match may_merge {
                    true => delivery.tend(&order, &request).await,
                    false => delivery.follow(&order, &request).await,
                };
                Ended::Follow(followed.map_err(ActError::from))
            },
        );
    }

    fn withdraw(&mut self, key: &PipelineKey, name: &str) {
        let now = Instant::now();
        if let Some(due) = self.polling.withdrawal_waits(name, now) {
            return self.wake_at(key, due);
        }
        let Some(job) = self.job(key, name, On::Request) else { return };
        let Some(request) = job.request() else { return };
        self.polling.withdrawing(name, now);
        let status = job.object.status.as_ref();
        let rejected = status.filter(|s| s.phase == Phase::Rejected).map(|s| s.message.clone());
        let comment = rejected.unwrap_or_else(|| NOT_NEEDED.into());
        self.spawn(
            key,
            job,
            |e| Ended::Withdrawal(Err(e)),
            |delivery, order| async move {
                let withdrawn = delivery.withdraw(&order, &request, &comment).await;
                Ended::Withdrawal(withdrawn.map_err(ActError::from))
            },
        );
    }

    /// Looks whether the commit that a promotion was delivered by is still in its branch. Only of a commit that
    /// is known to have been there: the head of a change request may have been squashed.
    fn check_delivered(&mut self, key: &PipelineKey, name: &str) {
        let now = Instant::now();
        let due = self.polling.check_due(name, now);
        if due > now {
            return self.wake_at(key, due);
        }
        let Some(job) = self.job(key, name, On::Environment) else { return };
        let Some(commit) = job.commit() else { return };
        self.polling.checking(name, now);
        let next = self.polling.check_due(name, now);
        self.wake_at(key, next);
        let (failed, effect) = (
            |e| Ended::Check(Err(e)),
            |delivery: Delivery, order: Order| async move {
                let lost = delivery.is_lost(&order, &commit).await;
                Ended::Check(lost.map(|lost| lost.then_some(commit)).map_err(ActError::from))
            },
        );
        self.spawn(key, job, failed, effect);
    }

    /// Begins a promotion again whose commit is gone, if it still waits to be seen where it goes.
    fn checked(&mut self, key: &PipelineKey, name: &str, checked: Result<Option<String>, ActError>) {
        let record = self.promotions.get(key).and_then(|r| r.get(name));
        let phase = record.and_then(|r| r.object.status.as_ref()).map(|s| s.phase);
        let waits = matches!(phase, Some(Phase::Delivered | Phase::Failed));
        let acts = self.pipelines.get(key).is_some_and(|entry| !entry.model.suspended);
        match checked {
            Ok(Some(commit)) if waits && acts => {
                let lost = Change::Moved(Move::of_lost(name.into(), &commit));
                self.polling.forget(name);
                self.metrics.failed("CommitLost");
                self.change(key, name, &lost, clock::now());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(pipeline = %key, promotion = name, %error, "cannot look whether a commit is still in its branch");
            }
        }
    }

    /// Runs a side effect in a task of its own.
    fn spawn<F>(
        &mut self,
        key: &PipelineKey,
        job: Job,
        failed: fn(ActError) -> Ended,
        effect: impl FnOnce(Delivery, Order) -> F + Send + 'static,
    ) where
        F: Future<Output = Ended> + Send + 'static,
    {
        let Job { mut order, secret, strategy, object } = job;
        let (place, promotion) = (object.spec.place(), object.name_any());
        let offer = Offer::of(self.options.hook_url.as_deref(), &strategy);
        let permit = order.permit.clone();
        let calls = matches!(order.strategy, By::Webhook { .. }).then(|| self.calls.clone());
        self.under_way.insert((key.clone(), place.clone()), permit.clone());
        let (client, delivery, tell, key) =
            (self.hub.clone(), self.delivery.clone(), self.tell.clone(), key.clone());
        tokio::spawn(async move {
            let rights = async {
                let mut credentials =
                    order::credentials(&client, &key.namespace, &order.strategy, secret).await?;
                if let Some(offer) = offer {
                    credentials.callback = offer.made(&client, &key, &object).await?;
                }
                Ok(credentials)
            };
            let what = match rights.await {
                Ok(credentials) => {
                    order.credentials = credentials;
                    // A task of its own again: should it panic, that is told like any failure.
                    let owner = key.to_string();
                    let mut effect = tokio::spawn(async move {
                        let _slot = slot(calls, &owner).await;
                        effect(delivery, order).await
                    });
                    tokio::select! {
                        ended = &mut effect => {
                            ended.unwrap_or_else(|died| failed(ActError::Died(died.to_string())))
                        }
                        // What is on its way then is on its own; whoever acts next looks for it.
                        () = permit.term().over() => {
                            effect.abort();
                            failed(DeliveryError::Revoked.into())
                        }
                    }
                }
                Err(error) => failed(error),
            };
            // Others may have gone on since: what came of it is theirs to find.
            let what = if permit.term().runs() { what } else { failed(DeliveryError::Revoked.into()) };
            let done = Done { pipeline: key, place, promotion, strategy, what };
            let _ = tell.send(Input::Done(Box::new(done)));
        });
    }

    /// Whether a change request is where the pipeline proposes nothing any more, and Sluice is not let
    /// in there any more or has not come through for long: then it is left to people.
    fn is_out_of_reach(&self, key: &PipelineKey, name: &str, error: &ActError) -> bool {
        let shut_out = match error {
            ActError::NoSecret(_) | ActError::Locked(_) => true,
            ActError::Secret(_) | ActError::Died(_) | ActError::Event(_) => false,
            ActError::Delivery(error) => {
                matches!(DeliveryError::retry(error), Retry::OnChange)
                    || matches!(
                        error.reason(),
                        "AuthenticationFailed"
                            | "PermissionDenied"
                            | "MissingCredential"
                            | "RepositoryNotFound"
                    )
            }
        };
        let record = self.promotions.get(key).and_then(|r| r.get(name));
        let strayed = self.pipelines.get(key).zip(record);
        (shut_out || self.polling.has_long_been_withdrawing(name))
            && strayed.is_some_and(|(entry, record)| order::has_strayed(&entry.object, &record.object))
    }

    /// Notes of change requests that another promotion carries now that they are not theirs any more.
    pub(crate) fn hand_over(&mut self, key: &PipelineKey, now: Timestamp) {
        let Some(records) = self.promotions.get(key) else { return };
        let all: Vec<&ApiPromotion> = records.values().map(|r| r.object.as_ref()).collect();
        let over: Vec<String> =
            all.iter().filter(|p| order::is_handed_over(p, &all)).map(|p| p.name_any()).collect();
        over.iter().for_each(|name| self.change(key, name, &Change::HandedOver, now));
    }

    /// Takes note of how a side effect ended.
    pub(crate) fn done(&mut self, done: Done) {
        let key = done.pipeline;
        self.under_way.remove(&(key.clone(), done.place));
        if self.shards.permit(&key).is_none() {
            return;
        }
        if let Ended::Check(checked) = done.what {
            self.checked(&key, &done.promotion, checked);
            return self.touch(&key);
        }
        let now = clock::now();
        let status = self.promotions.get(&key).and_then(|r| r.get(&done.promotion));
        let status = status.and_then(|r| r.object.status.clone()).unwrap_or_default();
        let open = status.change_request.clone();
        if let Ended::Follow(Ok(Followed::Waits { .. })) = &done.what {
            self.polling.stale(&done.promotion, false, Instant::now());
        }
        if let Ended::Follow(Ok(Followed::Open { stale, .. })) = &done.what
            && self.polling.stale(&done.promotion, stale.is_some(), Instant::now())
            && let Some(stale) = *stale
        {
            self.touch(&key);
            return self.rebuild(&key, &done.promotion, stale);
        }
        let change = match done.what {
            // Nothing has failed: the next decision says what is to be done instead.
            Ended::Check(_)
            | Ended::Delivery(Err(ActError::Delivery(DeliveryError::Revoked)))
            | Ended::Follow(Err(ActError::Delivery(DeliveryError::Revoked)))
            | Ended::Withdrawal(Err(ActError::Delivery(DeliveryError::Revoked))) => None,
            Ended::Delivery(Ok(delivered)) => Some(outcome::delivered(delivered, &done.strategy)),
            Ended::Follow(Ok(followed)) => outcome::followed(followed, open),
            Ended::Withdrawal(Ok(merged @ Followed::Merged { .. })) => outcome::followed(merged, open),
            Ended::Withdrawal(Ok(Followed::Elsewhere)) => open.map(left),
            Ended::Withdrawal(Ok(Followed::HandedOver)) => Some(Change::HandedOver),
            Ended::Withdrawal(Ok(_)) => Some(Change::Withdrawn),
            Ended::Withdrawal(Err(error)) if self.is_out_of_reach(&key, &done.promotion, &error) => {
                open.map(left)
            }
            Ended::Delivery(Err(error)) => Some(outcome::failed(&error, status.attempts, now)),
            Ended::Follow(Err(error)) | Ended::Withdrawal(Err(error)) => {
                Some(Change::Trouble { reason: error.reason(), message: error.to_string() })
            }
        };
        if let Some(Change::Failed { reason, .. } | Change::Trouble { reason, .. }) = &change {
            self.metrics.failed(reason);
        }
        if let Some(change) = change {
            fault::point("before-outcome");
            if !matches!(change, Change::Proposed(_) | Change::Waiting { .. } | Change::Trouble { .. }) {
                self.polling.forget(&done.promotion);
            }
            if let Change::Failed { again, .. } = &change {
                let pause = Duration::try_from(again.duration_since(now)).unwrap_or_default();
                self.polling.tries_again(&done.promotion, Instant::now() + pause);
            }
            self.change(&key, &done.promotion, &change, now);
        }
        self.touch(&key);
    }
}

/// Waits for a slot for a pipeline, if what it does needs one.
async fn slot(line: Option<Arc<Line>>, pipeline: &str) -> Option<Place> {
    Some(line?.place(pipeline).await)
}

/// What a job is done on.
#[derive(Clone, Copy, Debug)]
pub(super) enum On {
    /// The environment, as the pipeline says now.
    Environment,
    /// The change request, where it was opened.
    Request,
}

/// A side effect that may be started.
pub(super) struct Job {
    pub(super) order: Order,
    pub(super) secret: Option<String>,
    pub(super) strategy: Strategy,
    object: Arc<ApiPromotion>,
}

impl Job {
    /// The change request that the promotion has.
    pub(super) fn request(&self) -> Option<ChangeRequest> {
        self.object.status.as_ref()?.change_request.as_ref().map(order::change_request)
    }

    /// The commit that the promotion was delivered by, where that is known for certain.
    fn commit(&self) -> Option<String> {
        let status = self.object.status.as_ref()?;
        let is_head = |commit: &&String| {
            status.change_request.as_ref().is_some_and(|request| request.head_commit == **commit)
        };
        status.commit.as_ref().filter(|commit| !is_head(commit)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_delivery::Delivered;
    use sluice_testkit::Scratch;
    use tokio::sync::{Semaphore, mpsc};

    use super::*;
    use crate::engine::WEBHOOKS;
    use crate::engine::tests::engine;

    /// The delivery of a promotion by webhook.
    fn call(key: &PipelineKey) -> Job {
        let pipeline =
            json!({"metadata": {"name": key.name, "namespace": key.namespace}, "spec": {"environments": []}});
        let promotion = json!({"metadata": {"name": "p", "namespace": key.namespace}, "spec": {"pipeline": key.name,
            "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}}});
        let strategy = json!({"webhook": {"url": "https://ci.example.com/x"}});
        let strategy: Strategy = serde_json::from_value(strategy).unwrap();
        let object: Arc<ApiPromotion> = Arc::new(serde_json::from_value(promotion).unwrap());
        let pipeline = serde_json::from_value(pipeline).unwrap();
        let (order, _) = order::order(&pipeline, &object, &strategy, true).unwrap();
        Job { order, secret: None, strategy, object }
    }

    #[tokio::test]
    async fn slow_webhooks_of_a_namespace_leave_room_for_another() {
        let scratch = Scratch::new("webhooks").unwrap();
        let mut engine = engine(&scratch);
        let (began, mut calls) = mpsc::unbounded_channel();
        let answers = Arc::new(Semaphore::new(0));
        let busy = (0..200).map(|n| ("busy", format!("p{n}")));
        for (namespace, name) in busy.chain([("quiet", "p".to_string())]) {
            let key = PipelineKey { namespace: namespace.into(), name };
            let (began, answers) = (began.clone(), answers.clone());
            engine.spawn(
                &key,
                call(&key),
                |e| Ended::Delivery(Err(e)),
                move |_, order: Order| async move {
                    let _ = began.send(order.namespace);
                    answers.acquire().await.unwrap().forget();
                    Ended::Delivery(Ok(Delivered::Called { to: String::new(), status: 200 }))
                },
            );
        }
        let mut first = Vec::new();
        calls.recv_many(&mut first, 1000).await;
        // Everything runs in this thread: all that can begin has begun after so many turns.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        while let Ok(namespace) = calls.try_recv() {
            first.push(namespace);
        }
        assert!(first.len() < WEBHOOKS, "{}", first.len());
        assert!(first.contains(&"quiet".to_string()), "{first:?}");
    }
}
