//! Recording what was decided: the Promotion is created before anything else is done about it. A name that
//! is taken, or a server that refuses, is tried again after a pause that grows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Api;
use sluice_api::FIELD_MANAGER;
use sluice_api::promotion::Promotion as ApiPromotion;
use sluice_core::decide::Intent;
use sluice_delivery::fault;

use super::outcome::LONGEST_PAUSE;
use crate::engine::{Engine, Record, Unrecorded};
use crate::intake::{Input, PipelineKey, pipeline_of, version_of};
use crate::record::{self, promotion};
use crate::silence::{PATIENCE, within};
use crate::watch::cause::words;

/// The pause after a promotion could not be recorded; it doubles with each further time.
const RECORD_AGAIN: Duration = Duration::from_secs(10);

impl Engine {
    /// Whether recording this promotion may be tried now, or else when.
    pub(super) fn may_record(&self, key: &PipelineKey, name: &str) -> Result<(), Instant> {
        let refused = self.pipelines.get(key).and_then(|entry| entry.unrecorded.get(name));
        refused.map(|r| r.until).filter(|until| *until > Instant::now()).map_or(Ok(()), Err)
    }

    /// Notes why a promotion could not be recorded. The status says so as long as the promotion is wanted, and
    /// the next try waits, longer each time.
    fn not_recorded(&mut self, key: &PipelineKey, name: &str, why: String) {
        self.metrics.failed("RecordFailed");
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let now = Instant::now();
        let refused = entry.unrecorded.entry(name.into()).or_insert_with(|| Unrecorded::new(now));
        refused.pause = (refused.pause * 2).clamp(RECORD_AGAIN, LONGEST_PAUSE);
        (refused.why, refused.until) = (why, now + refused.pause);
        self.touch(key);
    }

    /// Records an intent. It counts as started at once, but nothing is done about it before it
    /// stands on the server.
    pub(super) fn start(&mut self, key: &PipelineKey, intent: &Intent) {
        // A record of this name is there, and is not about this promotion, else it would not be started:
        // creating it again fails for ever.
        if let Some(taken) = self.promotions.get(key).and_then(|records| records.get(&intent.name)) {
            let why = is_taken(&intent.revision.to_string(), &intent.name, &taken.object);
            return self.not_recorded(key, &intent.name, why);
        }
        let Some(permit) = self.shards.permit(key) else { return };
        let Some(entry) = self.pipelines.get(key) else { return };
        let object = promotion::object(&entry.object, intent);
        let (client, tell, key, name) =
            (self.hub.clone(), self.tell.clone(), key.clone(), intent.name.clone());
        let record = Record::being_made(Arc::new(object.clone()));
        self.promotions.entry(key.clone()).or_default().insert(name.clone(), record);
        tracing::info!(pipeline = %key, promotion = name, revision = %intent.revision, into = object.spec.place(), "promoting");
        tokio::spawn(async move {
            fault::point("before-intent");
            if permit.check().is_err() {
                return;
            }
            let api: Api<ApiPromotion> = Api::namespaced(client, &key.namespace);
            let result =
                record::create(&api, FIELD_MANAGER, &object).await.map(|created| created.map(Box::new));
            fault::point("after-intent");
            let _ = tell.send(Input::Created(key, name, result));
        });
    }

    /// Takes note of how recording an intent ended.
    pub(crate) fn created(
        &mut self,
        key: &PipelineKey,
        name: &str,
        result: Result<Option<Box<ApiPromotion>>, kube::Error>,
    ) {
        let Some(records) = self.promotions.get_mut(key) else { return };
        match result {
            // Somebody has moved the record of this name to another pipeline.
            Ok(Some(object)) if pipeline_of(&object) != *key => {
                if let Some(guess) = records.remove(name) {
                    let why = is_taken(&guess.object.spec.revision, name, &object);
                    self.not_recorded(key, name, why);
                }
            }
            Ok(Some(mut object)) => {
                object.metadata.managed_fields = None;
                if let Some(record) = records.get_mut(name).filter(|r| !r.stored) {
                    let is_new = record.first;
                    if is_new {
                        self.metrics.wrote("Promotion");
                    }
                    record.stored = true;
                    let version = version_of(&object.metadata);
                    // Else the watch was faster, and may have told more.
                    if version > record.read_at {
                        record.said = object.status.as_mut().and_then(|status| status.callback.take());
                        record.key_approval =
                            object.status.as_mut().and_then(|status| status.key_approval.take());
                        (record.object, record.read_at, record.version) =
                            (Arc::new(*object), version, version);
                    }
                    if let Some(entry) = self.pipelines.get(key).filter(|_| is_new) {
                        self.events.started(&entry.object, &record.object);
                    }
                }
                self.touch(key);
            }
            Ok(None) => {
                // Another try has left a record: what it says counts.
                if let Some(record) = records.get_mut(name).filter(|r| !r.stored) {
                    record.first = false;
                    match record.version > 0 {
                        true => self.found(key, name),
                        false => self.fetch(key, name),
                    }
                }
            }
            Err(error) if records.get(name).is_some_and(|r| r.version > 0) => {
                tracing::info!(pipeline = %key, promotion = name, error = %words(&error), "recorded, though no answer said so");
                self.found(key, name);
            }
            Err(error) => {
                tracing::warn!(pipeline = %key, promotion = name, error = %words(&error), "cannot record a promotion; it is tried again");
                // Another turn shows it; the next try comes with the pause.
                if records.get(name).is_some_and(|r| !r.stored)
                    && let Some(guess) = records.remove(name)
                {
                    let revision = &guess.object.spec.revision;
                    let why = format!("{revision} cannot be recorded as a Promotion: {}", words(&error));
                    self.not_recorded(key, name, why);
                }
            }
        }
    }

    /// The watch has reported the record, so it exists. Another process may have created it.
    fn found(&mut self, key: &PipelineKey, name: &str) {
        let record = self.promotions.get_mut(key).and_then(|records| records.get_mut(name));
        if let Some(record) = record.filter(|r| !r.stored) {
            (record.first, record.stored) = (false, true);
        }
        self.touch(key);
    }

    /// Reads a record that another try has left.
    fn fetch(&mut self, key: &PipelineKey, name: &str) {
        let (client, tell, key, name) = (self.hub.clone(), self.tell.clone(), key.clone(), name.to_string());
        tokio::spawn(async move {
            let api: Api<ApiPromotion> = Api::namespaced(client, &key.namespace);
            let result = within(PATIENCE, api.get(&name)).await.map(|found| Some(Box::new(found)));
            let _ = tell.send(Input::Created(key, name, result));
        });
    }
}

/// Why a promotion of this revision is not recorded: an object of its name is about something else.
fn is_taken(revision: &str, name: &str, by: &ApiPromotion) -> String {
    let by = &by.spec;
    format!(
        "{revision} cannot be recorded: Promotion {name} exists, and was changed after Sluice created it (it is \
         about {} into {} of {} now); delete it (kubectl delete promotion {name})",
        by.revision,
        by.place(),
        by.pipeline
    )
}
