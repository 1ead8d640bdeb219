//! Creates the records of promotions, before any side effect of them, and deletes old ones. A creation that fails
//! is retried after a pause that grows.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use sluice_api::promotion::Promotion as ApiPromotion;
use sluice_core::decide::NewPromotion;

use super::State;
use super::effect::{Effect, MetricUpdate};
use super::entries::{Record, Unrecorded};
use crate::act::backoff::MAX_PAUSE;
use crate::pipeline_key::PipelineKey;
use crate::record::pending_event::PendingEvent;
use crate::record::promotion;
use crate::resource_version::version_of;
use crate::watch::read_error::api_error_message;

/// The pause after a promotion could not be recorded; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// How many promotions into one environment or target start without a pause. A cluster may report another version each moment, so
/// there is a limit.
pub(super) const STARTS_AT_ONCE: u32 = 30;
/// The time between two of these starts in the long run.
pub(super) const START_PERIOD: Duration = Duration::from_secs(5);

fn place(intent: &NewPromotion) -> String {
    sluice_api::promotion::place(&intent.environment, intent.target.as_deref())
}

impl State {
    /// Whether recording this promotion may be tried now, or else when.
    pub(super) fn may_record(&self, key: &PipelineKey, intent: &NewPromotion) -> Result<(), Instant> {
        let now = self.now.instant;
        let unrecorded = self.pipelines.get(key).and_then(|entry| entry.unrecorded.get(&intent.name));
        let until = unrecorded.map_or(now, |unrecorded| unrecorded.until);
        let until = until.max(now + self.starts.pause(&(key.clone(), place(intent)), now));
        if until > now { Err(until) } else { Ok(()) }
    }

    /// Notes why a promotion could not be recorded. The status says so as long as the promotion is wanted, and the
    /// next try waits, longer each time.
    fn not_recorded(&mut self, key: &PipelineKey, name: &str, why: String) {
        self.count(MetricUpdate::Failed("RecordFailed".into()));
        let now = self.now.instant;
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let unrecorded = entry.unrecorded.entry(name.into()).or_insert_with(|| Unrecorded::new(now));
        unrecorded.pause = (unrecorded.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
        (unrecorded.why, unrecorded.until) = (why, now + unrecorded.pause);
        self.enqueue(key);
    }

    /// Creates the record of a promotion. The promotion counts as started immediately, but its side effects start
    /// only when the record is stored.
    pub(super) fn start(&mut self, key: &PipelineKey, intent: &NewPromotion) {
        // A record of this name exists and is about another promotion, so creating this one would always fail.
        if let Some(taken) = self.record(key, &intent.name) {
            let why = name_taken(&intent.revision.to_string(), (key, &intent.name), taken.object());
            return self.not_recorded(key, &intent.name, why);
        }
        let Some(fencing_token) = self.fencing_token(key) else { return };
        self.starts.count(&(key.clone(), place(intent)), self.now.instant);
        let Some(entry) = self.pipelines.get(key) else { return };
        let object = promotion::object(entry.object(), intent);
        tracing::info!(pipeline = %key, promotion = intent.name, revision = promotion::shown(intent.revision.to_string()), into = object.spec.place(), "promoting");
        let record = Record::being_created(object.clone());
        self.promotions.entry(key.clone()).or_default().insert(intent.name.clone(), record);
        self.emit(Effect::CreatePromotion(key.clone(), Box::new(object), fencing_token));
    }

    /// Handles the end of the creation of a record.
    pub(super) fn created(
        &mut self,
        key: &PipelineKey,
        name: &str,
        result: Result<Option<Box<ApiPromotion>>, kube::Error>,
    ) {
        match result {
            // Someone has moved the record of this name to another pipeline.
            Ok(Some(object)) if PipelineKey::of_promotion(&object) != *key => {
                if let Some(guess) = self.promotions.get_mut(key).and_then(|records| records.remove(name)) {
                    let why = name_taken(&guess.object().spec.revision, (key, name), &object);
                    self.not_recorded(key, name, why);
                }
            }
            Ok(Some(object)) => self.stored(key, name, *object),
            // An earlier try has left a record, which counts.
            Ok(None) => self.exists_already(key, name),
            Err(error) => self.creation_failed(key, name, &error),
        }
    }

    /// Handles a record that is stored.
    fn stored(&mut self, key: &PipelineKey, name: &str, mut object: ApiPromotion) {
        object.metadata.managed_fields = None;
        // The watch has reported everything up to a later version, but not this record: it was deleted before the answer
        // arrived. It may be created again by now, and is then reported again.
        let is_reported = version_of(&object.metadata) <= self.promotions_watched_to;
        if self.record(key, name).is_some_and(|known| known.cached.read_at() == 0) && is_reported {
            return self.forget_record(key, name);
        }
        if let Some(record) = self.record_mut(key, name).filter(|record| !record.is_stored) {
            record.is_stored = true;
            // Otherwise the watch has reported it before, or a newer version.
            if version_of(&object.metadata) > record.cached.read_at() {
                record.cached.created(object);
            }
            let (is_new, object) = (record.is_first_try, record.object().clone());
            if is_new {
                self.count(MetricUpdate::PromotionCreated);
            }
            if let Some(entry) = self.pipelines.get(key).filter(|_| is_new) {
                let started = PendingEvent::started(entry.object(), &object);
                self.emit(Effect::SendEvent(started));
            }
        }
        self.enqueue(key);
    }

    /// Handles a creation that failed because a record of this name exists.
    fn exists_already(&mut self, key: &PipelineKey, name: &str) {
        let Some(record) = self.record_mut(key, name).filter(|record| !record.is_stored) else { return };
        record.is_first_try = false;
        if record.cached.status_at() > 0 {
            self.found(key, name);
        } else {
            self.emit(Effect::ReadPromotion(key.clone(), name.into()));
        }
    }

    /// Handles a creation that failed, or whose answer was lost.
    fn creation_failed(&mut self, key: &PipelineKey, name: &str, error: &kube::Error) {
        let Some(record) = self.record(key, name) else { return };
        let error = api_error_message(error);
        if record.cached.status_at() > 0 {
            tracing::info!(pipeline = %key, promotion = name, error, "recorded, although the answer was lost");
            return self.found(key, name);
        }
        tracing::warn!(pipeline = %key, promotion = name, error, "cannot record a promotion; it will be retried");
        if record.is_stored {
            return;
        }
        let why = format!("{} cannot be recorded as a Promotion: {error}", record.object().spec.revision);
        self.promotions.get_mut(key).and_then(|records| records.remove(name));
        self.not_recorded(key, name, why);
    }

    /// Handles a record that the watch has reported. Another process may have created it.
    fn found(&mut self, key: &PipelineKey, name: &str) {
        if let Some(record) = self.record_mut(key, name).filter(|record| !record.is_stored) {
            (record.is_first_try, record.is_stored) = (false, true);
        }
        self.enqueue(key);
    }

    /// Deletes old records.
    pub(super) fn prune(&mut self, key: &PipelineKey, names: &[String]) {
        let Some(fencing_token) = self.fencing_token(key) else { return };
        for name in names {
            let removed = self.promotions.get_mut(key).and_then(|records| records.remove(name));
            self.forget_times(&key.promotion(name));
            let uid = removed.and_then(|record| record.object().uid());
            self.emit(Effect::DeletePromotion(key.clone(), name.clone(), uid, fencing_token.clone()));
        }
    }
}

/// The message that a promotion cannot be recorded because an object of its name is about something else.
fn name_taken(revision: &str, (key, name): (&PipelineKey, &str), by: &ApiPromotion) -> String {
    let by = &by.spec;
    format!(
        "{revision} cannot be recorded: Promotion {name} exists, and was changed after Sluice created it (it is \
         about {} into {} of {} now); delete it (kubectl delete promotion -n {} {name})",
        by.revision,
        by.place(),
        by.pipeline,
        key.namespace
    )
}

#[cfg(test)]
mod tests {
    use sluice_core::decide::{Action, Decision};

    use super::super::fixtures::{key, pipeline, state};
    use super::*;

    #[test]
    fn the_pause_before_a_promotion_is_recorded_again_grows_up_to_a_limit() {
        let mut state = state();
        state.put_pipeline(pipeline());
        let facets = [("HelmRelease/podinfo:chart".to_string(), "1.1.0".to_string())].into();
        let intent = NewPromotion {
            name: "a".into(),
            environment: "prod".into(),
            target: None,
            revision: sluice_core::Revision::from_strings(&facets).unwrap(),
            run: 0,
            arrival: 1,
            sequence: 1,
            replaces: String::new(),
            proven_by: Vec::new(),
        };
        let decision = Decision { actions: vec![Action::Start(intent)], ..Decision::default() };
        let starts = |state: &mut State| {
            state.effects.clear();
            state.act(&key(), &decision);
            state.effects.iter().any(|effect| matches!(effect, Effect::CreatePromotion(..)))
        };
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(starts(&mut state), "after {pauses:?}");
            let timed_out = Err(crate::timeout::timed_out(crate::timeout::API_CALL_TIMEOUT));
            state.created(&key(), "a", timed_out);
            let pause = state.pipelines[&key()].unrecorded["a"].pause;
            state.now.instant += pause - Duration::from_millis(1);
            assert!(!starts(&mut state), "after {pauses:?}");
            state.now.instant += Duration::from_millis(1);
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
    }
}
