//! What a call leaves on the API server. Any replica takes any call: it reads the object as it stands
//! now, changes a part of the status that nobody else writes, and only if nobody was faster. The replica
//! that looks after the pipeline learns of it by its watch, and a restart by its list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_api::lenient::{self, Lenient, List, Unreadable};
use sluice_api::{Pipeline, Promotion, PromotionSpec};
use tokio::time::Instant;

use super::approval_request as approval;
use super::event::Event;
use super::hmac_keys::{DEADLINE, Unavailable};
use super::report;
use super::status_change::Change;
use super::trigger_request::{self as trigger, Request};
use crate::act::backoff::MIN_POLL_PAUSE;
use crate::key::PipelineKey;
use crate::record;
use crate::record::promotion::{self, PIPELINE_LABEL};
use crate::watch::read_error::api_error_message;

/// Whom the parts belong to that calls write: not to the loop, which writes all others.
const MANAGER: &str = "sluice-hook";
/// How often a write is tried that somebody was faster than.
const TRIES: usize = 8;
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

/// Why something was not read, or not written.
#[derive(Debug)]
enum Failed {
    /// The API server did not do it.
    Server(kube::Error),
    /// An object cannot be read: which object, why, and what to do.
    Unreadable(String),
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Failed::Server(error)
    }
}

impl Failed {
    fn unreadable<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, why: &str) -> Self {
        Failed::Unreadable(format!(
            "{} {namespace}/{name} cannot be read: {why}; another version of Sluice may have written it: compare the \
             definition in the cluster with `sluice crds`, and correct or delete the object",
            K::kind(&())
        ))
    }

    fn of_list(bad: &Unreadable<PromotionSpec>) -> Self {
        let namespace = bad.metadata.namespace.as_deref().unwrap_or_default();
        Failed::unreadable::<Promotion>(namespace, bad.name(), &bad.error)
    }

    /// Writes to the log what failed, and returns what is answered.
    fn logged(self, object: &str, what: &str) -> Unavailable {
        match self {
            Failed::Server(error) => {
                tracing::warn!(object, error = %api_error_message(&error), "{what}");
                Unavailable::NotNow
            }
            Failed::Unreadable(error) => {
                tracing::warn!(object, error, "{what}");
                Unavailable::Unreadable(error)
            }
        }
    }
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
/// each commit, and nothing is looked at more often than each [`MIN_POLL_PAUSE`].
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
        let now = Timestamp::now();
        let change = |read: &Lenient<Pipeline>| match report::unreadable(read, environment, event) {
            Some(part) => Change::Unreadable(part.into()),
            None => report::change(&read.object, environment, event, now),
        };
        amend(&self.client, &pipeline.namespace, &pipeline.name, change).await
    }

    /// Keeps that a forge has called, which has the change requests looked at.
    ///
    /// # Errors
    /// When it cannot be kept now.
    pub async fn forge_called(&self, pipeline: &PipelineKey) -> Result<Stands, Unavailable> {
        note_once(&self.forges, pipeline, || {
            let (client, pipeline) = (self.client.clone(), pipeline.clone());
            async move {
                // Two calls in one second are two.
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
                let change = |_: &Lenient<Pipeline>| Change::Write(json!({"forgeCalled": now}));
                amend(&client, &pipeline.namespace, &pipeline.name, change).await
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
        let change = |read: &Lenient<Promotion>| change(&read.object);
        amend(&self.client, namespace, promotion, change).await
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
        let params = of_pipeline(&pipeline.name);
        let listing = lenient::list::<Promotion>(&self.client, Some(&pipeline.namespace), &params);
        let listed = match tokio::time::timeout(DEADLINE, listing).await {
            Ok(listed) => listed.map_err(Failed::from),
            Err(_) => return Err(Unavailable::NotNow),
        };
        // The body may have approved a promotion that cannot be read: then it approves no other.
        let all = listed.and_then(|List { items, unreadable }| {
            let concerned = unreadable.iter().find(|bad| bad.may_be(|spec| approval::is_for(request, spec)));
            concerned.map_or(Ok(items), |bad| Err(Failed::of_list(bad)))
        });
        let what = "cannot tell which promotions an approval is for";
        let all = all.map_err(|failed| failed.logged(&pipeline.to_string(), what))?;
        let approved = match approval::approved(request, &all) {
            Ok(approved) => approved,
            Err(why) => return Ok(Granted::Refused(why)),
        };
        let mut new = false;
        for promotion in &approved {
            let change = |read: &Lenient<Promotion>| approval::after(&read.object, request, given);
            match amend(&self.client, &pipeline.namespace, &promotion.name_any(), change).await? {
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
            Ok(Err(failed)) => {
                Err(failed.logged(&pipeline.to_string(), "cannot record what a call asks for"))
            }
            Ok(Ok(None)) | Err(_) => Err(Unavailable::NotNow),
        }
    }

    async fn ask(&self, key: &PipelineKey, request: &Request) -> Result<Option<Asked>, Failed> {
        let Some(Lenient { object: pipeline, .. }) = read(&self.client, &key.namespace, &key.name).await?
        else {
            return Ok(Some(Asked::Gone));
        };
        let fits = trigger::shape(&pipeline).and_then(|shape| trigger::fit(&shape, request));
        let revision = match fits {
            Ok(revision) => revision,
            Err(why) => return Ok(Some(Asked::Unfit(why))),
        };
        let known =
            Known::of(lenient::list(&self.client, Some(&key.namespace), &of_pipeline(&key.name)).await?)?;
        let all = &known.all;
        let records = trigger::records(&pipeline, &request.idempotency_key, &revision, all, Timestamp::now());
        if let Some(before) = trigger::answered(&pipeline, &request.idempotency_key, &records, all) {
            let same = |p: &&Promotion| p.spec.facets == revision.to_strings();
            return Ok(Some(match before.iter().find(|p| !same(p)) {
                None => Asked::Recorded(known.read(before)?, false),
                Some(other) => Asked::Otherwise(other.spec.revision.clone()),
            }));
        }
        let of_name = |record: &Promotion| all.iter().find(|p| p.metadata.name == record.metadata.name);
        // Nothing is recorded for one target when the key stands for another revision at the next.
        let other =
            |record: &Promotion| of_name(record).filter(|before| before.spec.facets != record.spec.facets);
        if let Some(before) = records.iter().find_map(other) {
            return Ok(Some(Asked::Otherwise(before.spec.revision.clone())));
        }
        let mut stand = known.read(records.iter().filter_map(of_name).collect())?;
        let mut new = false;
        let promotions: Api<Promotion> = Api::namespaced(self.client.clone(), &key.namespace);
        for record in records.iter().filter(|record| of_name(record).is_none()) {
            if let Some(created) = record::create(&promotions, MANAGER, record).await? {
                new = true;
                stand.push(created);
                continue;
            }
            // The same was asked for at the same time.
            match read::<Promotion>(&self.client, &key.namespace, &record.name_any()).await? {
                Some(Lenient { object, .. }) if object.spec.facets == record.spec.facets => {
                    stand.push(object)
                }
                Some(Lenient { object, .. }) => return Ok(Some(Asked::Otherwise(object.spec.revision))),
                None => return Ok(None),
            }
        }
        Ok(Some(Asked::Recorded(stand, new)))
    }
}

/// The promotions of a pipeline. What was asked for before follows from their specs: one whose status alone cannot be
/// read counts, and is not answered with.
struct Known {
    all: Vec<Promotion>,
    unreadable: Vec<Unreadable<PromotionSpec>>,
}

impl Known {
    fn of(List { items: mut all, mut unreadable }: List<Promotion>) -> Result<Self, Failed> {
        if let Some(bad) = unreadable.iter().find(|bad| bad.spec.is_none()) {
            return Err(Failed::of_list(bad));
        }
        for bad in &mut unreadable {
            let (metadata, spec) = (bad.metadata.clone(), bad.spec.take().unwrap_or_default());
            all.push(Promotion { metadata, spec, status: None });
        }
        Ok(Known { all, unreadable })
    }

    /// These promotions, if all of them can be read.
    fn read(&self, wanted: Vec<&Promotion>) -> Result<Vec<Promotion>, Failed> {
        let is_wanted = |bad: &&Unreadable<PromotionSpec>| {
            wanted.iter().any(|promotion| promotion.metadata.name == bad.metadata.name)
        };
        match self.unreadable.iter().find(is_wanted) {
            Some(bad) => Err(Failed::of_list(bad)),
            None => Ok(wanted.into_iter().cloned().collect()),
        }
    }
}

/// Reads an object; `None` if it does not exist.
async fn read<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<Lenient<K>>, Failed>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    lenient::get(client, namespace, name).await.map_err(|error| match error {
        kube::Error::SerdeError(why) => Failed::unreadable::<K>(namespace, name, &why.to_string()),
        error => Failed::Server(error),
    })
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
                let next = Noted { again: Instant::now() + MIN_POLL_PAUSE, next: None };
                forges.lock().unwrap_or_else(PoisonError::into_inner).insert(pipeline, next);
                write.await
            };
            // Of its own: who calls may go before it is written.
            let note = tokio::spawn(note).map(|end| end.unwrap_or(Err(Unavailable::NotNow)));
            note.boxed().shared()
        };
        one.next.get_or_insert_with(begin).clone()
    };
    note.await
}

/// Merges into the status of an object what `change` makes of the object as it stands.
async fn amend<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    change: impl Fn(&Lenient<K>) -> Change,
) -> Result<Stands, Unavailable>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    // The answer to a write has the parts that cannot be read as well.
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    let trying = async {
        for _ in 0..TRIES {
            let Some(stored) = read::<K>(client, namespace, name).await? else {
                return Ok(Some(Stands::Gone));
            };
            let status = match change(&stored) {
                Change::Write(status) => status,
                Change::Nothing => return Ok(Some(Stands::AsBefore)),
                Change::NotTheirs => return Ok(Some(Stands::Gone)),
                Change::Refused(why) => return Ok(Some(Stands::Refused(why))),
                Change::Unreadable(why) => return Err(Failed::unreadable::<K>(namespace, name, &why)),
            };
            let meta = stored.object.meta();
            let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
            match api.patch_status(name, &params, &patch).await {
                Ok(_) => return Ok(Some(Stands::Written)),
                // Somebody was faster: what they wrote counts for what follows.
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(kube::Error::Api(e)) if e.code == 404 => return Ok(Some(Stands::Gone)),
                Err(error) => return Err(Failed::Server(error)),
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(DEADLINE, trying).await {
        Ok(Ok(Some(stands))) => Ok(stands),
        Ok(Err(failed)) => {
            let object = format!("{} {namespace}/{name}", K::kind(&()));
            Err(failed.logged(&object, "cannot keep what a call says"))
        }
        Ok(Ok(None)) | Err(_) => Err(Unavailable::NotNow),
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
        let mut second = pin!(note(&one, slow, Err(Unavailable::NotNow)));
        let mut third = pin!(note(&one, quick, Ok(Stands::Written)));
        assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
        assert_eq!(note(&other, quick, Ok(Stands::Written)).await, Ok(Stands::Written));
        assert_eq!((first.await, count.load(Ordering::Relaxed)), (Ok(Stands::Written), 2));
        // Both are one note, a moment later, and it fails for both.
        assert_eq!((second.await, third.await), (Err(Unavailable::NotNow), Err(Unavailable::NotNow)));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        // What was told is noted although who told it has gone.
        {
            let mut cut = pin!(note(&one, slow, Ok(Stands::Written)));
            assert!(futures::poll!(&mut cut).is_pending());
        }
        tokio::time::sleep(MIN_POLL_PAUSE * 2).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert_eq!(note(&one, quick, Ok(Stands::AsBefore)).await, Ok(Stands::AsBefore));
    }
}
