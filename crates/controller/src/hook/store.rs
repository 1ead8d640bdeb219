//! What a call leaves on the API server. Any replica takes any call: it reads the object as it stands
//! now, changes a part of the status that nobody else writes, and only if nobody was faster. The replica
//! that looks after the pipeline learns of it by its watch, and a restart by its list.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use tokio::time::Instant;

use super::approval;
use super::event::Event;
use super::keys::{DEADLINE, Unavailable};
use super::report;
use super::trigger::{self, Request};
use crate::act::polling::BREATH;
use crate::intake::PipelineKey;
use crate::record;
use crate::record::promotion::{self, PIPELINE_LABEL};
use crate::watch::cause::words;

/// Whom the parts belong to that calls write: not to the loop, which writes all others.
const MANAGER: &str = "sluice-hook";
/// How often a write is tried that somebody was faster than.
const TRIES: usize = 8;
/// The longest message of others that is kept, in bytes.
pub(super) const LONGEST: usize = 1000;

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// It stands now.
    Written,
    /// There was nothing to change.
    AsBefore,
    /// The object is not there.
    Gone,
    /// It may not be changed so: why.
    Refused(String),
}

/// What is to be changed in a status.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This is merged into it.
    Write(Value),
    /// Nothing.
    Nothing,
    /// It is none of the caller's: as if it were not there.
    NotTheirs,
    /// It may not be changed so: why.
    Refused(String),
}

/// What became of what was asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// These are its records, one for each place that the revision goes to; whether one of them is new.
    Recorded(Vec<Promotion>, bool),
    /// The key has asked for this revision before.
    Otherwise(String),
    /// It is no revision of this pipeline: what to write instead.
    Unfit(String),
    /// There is no such pipeline.
    Gone,
}

/// What became of an approval by key.
#[derive(Clone, Debug)]
pub enum Granted {
    /// It is recorded in these promotions; whether it was not before.
    Recorded(Vec<Promotion>, bool),
    /// It approves nothing: why.
    Refused(String),
}

/// The way to the API server.
#[derive(Clone)]
pub struct Store {
    pub(super) client: Client,
    forges: Forges,
}

/// The pipelines whose forges have called lately: the calls of a forge come in crowds, one for each check of
/// each commit, and nothing is looked at more often than each [`BREATH`].
type Forges = Arc<Mutex<HashMap<PipelineKey, Noted>>>;

/// The end of a note that a forge has called, for all whom it is about.
type Note = Shared<BoxFuture<'static, Result<Stands, Unavailable>>>;

struct Noted {
    /// When it may be noted again.
    again: Instant,
    /// What will be noted then, also for whoever comes before that.
    next: Option<Note>,
}

impl Store {
    /// One that writes with this client.
    pub fn new(client: Client) -> Self {
        Self { client, forges: Forges::default() }
    }

    /// Keeps what an event reports of targets that cannot be read, if it is newer than what stands.
    ///
    /// # Errors
    /// When it cannot be kept now.
    pub async fn report(
        &self,
        pipeline: &PipelineKey,
        environment: &str,
        event: &Event,
    ) -> Result<Stands, Unavailable> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &pipeline.namespace);
        let now = Timestamp::now();
        amend(&api, &pipeline.name, |object: &Pipeline| report::change(object, environment, event, now)).await
    }

    /// Keeps that a forge has called, which has the change requests looked at.
    ///
    /// # Errors
    /// When it cannot be kept now.
    pub async fn forge_called(&self, pipeline: &PipelineKey) -> Result<Stands, Unavailable> {
        note_once(&self.forges, pipeline, || {
            let (api, name) =
                (Api::namespaced(self.client.clone(), &pipeline.namespace), pipeline.name.clone());
            async move {
                // Two calls in one second are two.
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
                let change = |_: &Pipeline| Change::Write(json!({"forgeCalled": now}));
                amend(&api, &name, change).await
            }
        })
        .await
    }

    /// Keeps what the other side of a webhook says of a promotion.
    ///
    /// # Errors
    /// When it cannot be kept now.
    pub async fn said(
        &self,
        namespace: &str,
        promotion: &str,
        change: impl Fn(&Promotion) -> Change,
    ) -> Result<Stands, Unavailable> {
        let api: Api<Promotion> = Api::namespaced(self.client.clone(), namespace);
        amend(&api, promotion, change).await
    }

    /// Records an approval by key in every promotion that it is for.
    ///
    /// # Errors
    /// When it cannot be recorded now.
    pub async fn approve(
        &self,
        pipeline: &PipelineKey,
        request: &approval::Request,
        given: approval::Given<'_>,
    ) -> Result<Granted, Unavailable> {
        let api: Api<Promotion> = Api::namespaced(self.client.clone(), &pipeline.namespace);
        let all = match tokio::time::timeout(DEADLINE, api.list(&of_pipeline(&pipeline.name))).await {
            Ok(Ok(all)) => all.items,
            Ok(Err(error)) => {
                tracing::warn!(%pipeline, error = %words(&error), "cannot list the promotions that an approval may be for");
                return Err(Unavailable);
            }
            Err(_) => return Err(Unavailable),
        };
        let approved = match approval::approved(request, &all) {
            Ok(approved) => approved,
            Err(why) => return Ok(Granted::Refused(why)),
        };
        let mut new = false;
        for promotion in &approved {
            let change = |object: &Promotion| approval::after(object, request, given);
            match amend(&api, &promotion.name_any(), change).await? {
                Stands::Written => new = true,
                Stands::AsBefore => {}
                Stands::Gone => {
                    return Ok(Granted::Refused(format!("{} does not exist any more", promotion.name_any())));
                }
                Stands::Refused(why) => return Ok(Granted::Refused(why)),
            }
        }
        Ok(Granted::Recorded(approved.into_iter().cloned().collect(), new))
    }

    /// Records what is asked for, unless it is recorded already. The record stands before anything is
    /// done about it.
    ///
    /// # Errors
    /// When it cannot be recorded now.
    pub async fn trigger(&self, pipeline: &PipelineKey, request: &Request) -> Result<Asked, Unavailable> {
        match tokio::time::timeout(DEADLINE, self.ask(pipeline, request)).await {
            Ok(Ok(Some(asked))) => Ok(asked),
            Ok(Err(error)) => {
                tracing::warn!(%pipeline, error = %words(&error), "cannot record what a call asks for");
                Err(Unavailable)
            }
            Ok(Ok(None)) | Err(_) => Err(Unavailable),
        }
    }

    async fn ask(&self, key: &PipelineKey, request: &Request) -> kube::Result<Option<Asked>> {
        let pipelines: Api<Pipeline> = Api::namespaced(self.client.clone(), &key.namespace);
        let promotions: Api<Promotion> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(pipeline) = pipelines.get_opt(&key.name).await? else { return Ok(Some(Asked::Gone)) };
        let fits = trigger::shape(&pipeline).and_then(|shape| trigger::fit(&shape, request));
        let revision = match fits {
            Ok(revision) => revision,
            Err(why) => return Ok(Some(Asked::Unfit(why))),
        };
        let all = promotions.list(&of_pipeline(&key.name)).await?.items;
        let records =
            trigger::records(&pipeline, &request.idempotency_key, &revision, &all, Timestamp::now());
        if let Some(before) = trigger::answered(&pipeline, &request.idempotency_key, &records, &all) {
            let same = |p: &&Promotion| p.spec.facets == revision.to_strings();
            return Ok(Some(match before.iter().find(|p| !same(p)) {
                None => Asked::Recorded(before.into_iter().cloned().collect(), false),
                Some(other) => Asked::Otherwise(other.spec.revision.clone()),
            }));
        }
        let known = |record: &Promotion| all.iter().find(|p| p.metadata.name == record.metadata.name);
        // Nothing is recorded for one target when the key stands for another revision at the next.
        let other =
            |record: &Promotion| known(record).filter(|before| before.spec.facets != record.spec.facets);
        if let Some(before) = records.iter().find_map(other) {
            return Ok(Some(Asked::Otherwise(before.spec.revision.clone())));
        }
        let (mut stand, mut new) = (Vec::new(), false);
        for record in records {
            if let Some(before) = known(&record) {
                stand.push(before.clone());
                continue;
            }
            if let Some(created) = record::create(&promotions, MANAGER, &record).await? {
                new = true;
                stand.push(created);
                continue;
            }
            // The same was asked for at the same time.
            match promotions.get_opt(&record.name_any()).await? {
                Some(before) if before.spec.facets == record.spec.facets => stand.push(before),
                Some(before) => return Ok(Some(Asked::Otherwise(before.spec.revision))),
                None => return Ok(None),
            }
        }
        Ok(Some(Asked::Recorded(stand, new)))
    }
}

/// Notes that a forge has called, as soon as it may be noted again; whoever comes before that is noted with it
/// and hears how it ended. Whoever comes later is noted later: what they tell of may not be seen by then.
async fn note_once<F>(
    forges: &Forges,
    pipeline: &PipelineKey,
    write: impl FnOnce() -> F,
) -> Result<Stands, Unavailable>
where
    F: Future<Output = Result<Stands, Unavailable>> + Send + 'static,
{
    let note = {
        let now = Instant::now();
        let mut noted = forges.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, one| one.next.is_some() || one.again > now);
        let one = noted.entry(pipeline.clone()).or_insert(Noted { again: now, next: None });
        let again = one.again;
        let begin = || {
            let (forges, pipeline, write) = (forges.clone(), pipeline.clone(), write());
            let note = async move {
                if again > Instant::now() {
                    tokio::time::sleep_until(again).await;
                }
                let next = Noted { again: Instant::now() + BREATH, next: None };
                forges.lock().unwrap_or_else(PoisonError::into_inner).insert(pipeline, next);
                write.await
            };
            // Of its own: who calls may go before it is written.
            let note = tokio::spawn(note).map(|end| end.unwrap_or(Err(Unavailable)));
            note.boxed().shared()
        };
        one.next.get_or_insert_with(begin).clone()
    };
    note.await
}

/// Merges into the status of an object what `change` makes of the object as it stands.
async fn amend<K>(api: &Api<K>, name: &str, change: impl Fn(&K) -> Change) -> Result<Stands, Unavailable>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let trying = async {
        for _ in 0..TRIES {
            let Some(object) = api.get_opt(name).await? else { return Ok(Some(Stands::Gone)) };
            let status = match change(&object) {
                Change::Write(status) => status,
                Change::Nothing => return Ok(Some(Stands::AsBefore)),
                Change::NotTheirs => return Ok(Some(Stands::Gone)),
                Change::Refused(why) => return Ok(Some(Stands::Refused(why))),
            };
            let metadata =
                json!({"uid": object.meta().uid, "resourceVersion": object.meta().resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
            match api.patch_status(name, &params, &patch).await {
                Ok(_) => return Ok(Some(Stands::Written)),
                // Somebody was faster: what they wrote counts for what follows.
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(kube::Error::Api(e)) if e.code == 404 => return Ok(Some(Stands::Gone)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(DEADLINE, trying).await {
        Ok(Ok(Some(stands))) => Ok(stands),
        Ok(Err(error)) => {
            let (kind, namespace, error) = (K::kind(&()), api.namespace(), words(&error));
            tracing::warn!(%kind, namespace, name, error, "cannot keep what a call says");
            Err(Unavailable)
        }
        Ok(Ok(None)) | Err(_) => Err(Unavailable),
    }
}

/// Selects the promotions of a pipeline; another whose name shortens to the same label may have some among them.
fn of_pipeline(name: &str) -> ListParams {
    ListParams::default().labels(&format!("{PIPELINE_LABEL}={}", promotion::label(name)))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_while_a_note_is_written_is_noted_anew_and_who_waits_hears_its_end() {
        let (forges, count) = (Forges::default(), Arc::new(AtomicU32::new(0)));
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        let (one, other) = (key("one"), key("other"));
        let note = async |of: &PipelineKey, takes: Duration, end: Result<Stands, Unavailable>| {
            let count = count.clone();
            let write = || async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(takes).await;
                end
            };
            note_once(&forges, of, write).await
        };
        let (slow, quick) = (Duration::from_secs(1), Duration::ZERO);
        let mut first = pin!(note(&one, slow, Ok(Stands::Written)));
        assert!(futures::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        // Its time is taken: what is told now is not in it, and its end is not theirs.
        let mut second = pin!(note(&one, slow, Err(Unavailable)));
        let mut third = pin!(note(&one, quick, Ok(Stands::Written)));
        assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
        assert_eq!(note(&other, quick, Ok(Stands::Written)).await, Ok(Stands::Written));
        assert_eq!((first.await, count.load(Ordering::Relaxed)), (Ok(Stands::Written), 2));
        // Both are one note, a moment later, and it fails for both.
        assert_eq!((second.await, third.await), (Err(Unavailable), Err(Unavailable)));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        // What was told is noted although who told it has gone.
        {
            let mut cut = pin!(note(&one, slow, Ok(Stands::Written)));
            assert!(futures::poll!(&mut cut).is_pending());
        }
        tokio::time::sleep(BREATH * 2).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert_eq!(note(&one, quick, Ok(Stands::AsBefore)).await, Ok(Stands::AsBefore));
    }
}
