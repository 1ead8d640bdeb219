//! Writes of the hook server to the API server. Any replica accepts any call. The replica reads the current object
//! and changes the part of its status that only the hook server writes. If another write was faster, the replica
//! tries again. The replica that acts for the pipeline gets the change from its watch, and after a restart from
//! its list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_api::lenient::{self, Lenient, List, Unreadable};
use sluice_api::{Pipeline, Promotion, PromotionSpec};
use sluice_core::lock::lock;
use sluice_delivery::FairQueue;
use tokio::time::Instant;

use super::approval_rules as approval;
use super::event::ReceivedEvent;
use super::hmac_keys::{CALL_TIMEOUT, Unavailable};
use super::promotion_list::{self, PromotionsInto};
use super::report;
use super::status_change::StatusChange;
use super::trigger_rules::{self as trigger, TriggerRequest};
use crate::act::schedule::MIN_POLL_PAUSE;
use crate::pipeline_key::PipelineKey;
use crate::record;
use crate::state::unread_metadata::without_unread;
use crate::watch::read_error::api_error_message;

/// The field manager of the fields that the hook server writes. The controller's loop has another one.
const FIELD_MANAGER: &str = "sluice-hook";
/// How many times a write is tried while other writes are faster.
const MAX_WRITE_ATTEMPTS: usize = 8;
/// How many promotions of one call are created at a time. An environment may have 128 targets, and one call has
/// [`CALL_TIMEOUT`] for all of them.
const MAX_CREATES_PER_CALL: usize = 16;
/// How many objects and lists are read at a time. An object has up to 1.5 MB, whose owner chooses what is in it.
const MAX_READS: usize = 16;
/// How many of them are for namespaces that read nothing else, so that slow reads of eight namespaces, each of which makes
/// up to four calls at a time, delay no call of another.
const RESERVED_READS: usize = 8;

/// The outcome of a [`StatusChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The status was changed.
    Written,
    /// The status needs no change.
    Unchanged,
    /// The object does not exist, or does not belong to the caller.
    Gone,
    /// The change is not allowed: the reason, for the caller.
    Rejected(String),
}

/// Why an object was not read or not written.
#[derive(Debug)]
enum StoreError {
    /// The request to the API server failed.
    Server(kube::Error),
    /// The object has a form that this version cannot read. The text names the object, the cause, and what to do.
    Unreadable(String),
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        StoreError::Server(error)
    }
}

impl StoreError {
    fn unreadable<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, why: &str) -> Self {
        StoreError::Unreadable(format!(
            "{} {namespace}/{name} cannot be read: {why}; another version of Sluice may have written it: compare the \
             definition in the cluster with `sluice crds`, and correct or delete the object",
            K::kind(&())
        ))
    }

    fn unreadable_promotion(promotion: &Unreadable<PromotionSpec>) -> Self {
        let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
        StoreError::unreadable::<Promotion>(namespace, promotion.name(), &promotion.error)
    }

    /// Logs the error with what failed, and returns the answer to the call.
    fn log(self, object: &str, what: &str) -> Unavailable {
        match self {
            StoreError::Server(error) => {
                tracing::warn!(object, error = %api_error_message(&error), "{what}");
                Unavailable::RetryLater
            }
            StoreError::Unreadable(error) => {
                tracing::warn!(object, error, "{what}");
                Unavailable::Unreadable(error)
            }
        }
    }
}

/// The outcome of a trigger request.
#[derive(Clone, Debug)]
pub enum TriggerOutcome {
    /// The promotions of the request, and whether this request created one of them. There is one promotion into the
    /// first environment, or one for each of its targets.
    Recorded(Vec<Promotion>, bool),
    /// An earlier request with this idempotency key asked for this other revision.
    OtherRevision(String),
    /// The values are not a revision of this pipeline. The text says what to write instead.
    Invalid(String),
    /// The pipeline does not exist.
    PipelineGone,
}

/// The outcome of an approval by key.
#[derive(Clone, Debug)]
pub enum ApprovalOutcome {
    /// The approved promotions, and whether this call recorded an approval.
    Recorded(Vec<Promotion>, bool),
    /// The call approves nothing: the reason, for the caller.
    Rejected(String),
}

/// Writes what calls report to the API server.
#[derive(Clone)]
pub struct Store {
    client: Client,
    forge_calls: ForgeCalls,
    /// Reads of objects wait here, fair by namespace.
    reads: Arc<FairQueue>,
}

/// The pipelines with recent calls of a forge. Forges send many calls at a time, one for each check of each
/// commit, and a pipeline's calls are recorded at most once in each [`MIN_POLL_PAUSE`].
type ForgeCalls = Arc<Mutex<HashMap<PipelineKey, ForgeCallState>>>;

/// The write that records a forge's call, shared by all calls that it records.
type ForgeCallWrite = Shared<BoxFuture<'static, Result<ChangeOutcome, Unavailable>>>;

struct ForgeCallState {
    /// When the next write may start.
    next_at: Instant,
    /// The next write, if a call waits for it.
    next: Option<ForgeCallWrite>,
}

/// The queue of reads of objects and lists.
fn queue_of_reads() -> Arc<FairQueue> {
    FairQueue::with_reserved(MAX_READS - RESERVED_READS, RESERVED_READS)
}

impl Store {
    /// A store that writes with this client.
    pub fn new(client: Client) -> Self {
        Self { client, forge_calls: ForgeCalls::default(), reads: queue_of_reads() }
    }

    /// Stores the reports of an event about targets with `observe: Push`, if it is newer than the stored ones.
    ///
    /// # Errors
    /// When the reports cannot be stored now, or a stored one cannot be read.
    pub async fn record_report(
        &self,
        pipeline: &PipelineKey,
        environment: &str,
        event: &ReceivedEvent,
    ) -> Result<ChangeOutcome, Unavailable> {
        let now = Timestamp::now();
        let change = |read: &Lenient<Pipeline>| match report::unreadable_part(read, environment, event) {
            Some(part) => StatusChange::Unreadable(part.into()),
            None => report::status_change(&read.object, environment, event, now),
        };
        change_status(&self.client, &self.reads, pipeline, change).await
    }

    /// Records the time of a forge's call. The controller then checks the pipeline's change requests.
    ///
    /// # Errors
    /// When the time cannot be recorded now.
    pub async fn record_forge_call(&self, pipeline: &PipelineKey) -> Result<ChangeOutcome, Unavailable> {
        write_with_others(&self.forge_calls, pipeline, || {
            let (client, reads, pipeline) = (self.client.clone(), self.reads.clone(), pipeline.clone());
            async move {
                // In milliseconds, so that a second call in the same second is a change too.
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
                let change = |_: &Lenient<Pipeline>| StatusChange::Write(json!({"forgeCalled": now}));
                change_status(&client, &reads, &pipeline, change).await
            }
        })
        .await
    }

    /// Records what the receiver of a webhook reports about a promotion.
    ///
    /// # Errors
    /// When the report cannot be recorded now, or the promotion cannot be read.
    pub async fn record_callback(
        &self,
        namespace: &str,
        promotion: &str,
        change: impl Fn(&Promotion) -> StatusChange,
    ) -> Result<ChangeOutcome, Unavailable> {
        let change = |read: &Lenient<Promotion>| change(&read.object);
        let named = PipelineKey { namespace: namespace.into(), name: promotion.into() };
        change_status(&self.client, &self.reads, &named, change).await
    }

    /// Records an approval by key in every promotion that the request approves.
    ///
    /// # Errors
    /// When the approval cannot be recorded now, or a promotion that it may be for cannot be read.
    pub async fn record_approval(
        &self,
        pipeline: &PipelineKey,
        request: &approval::ApprovalRequest,
        signature: approval::ApprovalSignature<'_>,
    ) -> Result<ApprovalOutcome, Unavailable> {
        let listing = async {
            let _slot = self.reads.acquire(&pipeline.to_string()).await;
            promotion_list::read(&self.client, pipeline, &request.environment).await
        };
        let listed = match tokio::time::timeout(CALL_TIMEOUT, listing).await {
            Ok(listed) => listed.map(|into| into.list).map_err(StoreError::from),
            Err(_) => return Err(Unavailable::RetryLater),
        };
        // An unreadable promotion may be the one that the same body approved before. Then the request fails, because a
        // body must not approve a second promotion.
        let all = listed.and_then(|List { items, unreadable }| {
            let may_be_for = |p: &&Unreadable<_>| p.may_be(|spec| approval::is_for(request, spec));
            let concerned = unreadable.iter().find(may_be_for);
            concerned.map_or(Ok(items), |promotion| Err(StoreError::unreadable_promotion(promotion)))
        });
        let what = "cannot read the promotions that an approval may be for";
        let all = all.map_err(|error| error.log(&pipeline.to_string(), what))?;
        let approved = match approval::approved_promotions(request, &all) {
            Ok(approved) => approved,
            Err(why) => return Ok(ApprovalOutcome::Rejected(why)),
        };
        let mut new = false;
        for promotion in &approved {
            let change =
                |read: &Lenient<Promotion>| approval::status_change(&read.object, request, signature);
            let named = PipelineKey { namespace: pipeline.namespace.clone(), name: promotion.name_any() };
            match change_status(&self.client, &self.reads, &named, change).await? {
                ChangeOutcome::Written => new = true,
                ChangeOutcome::Unchanged => {}
                ChangeOutcome::Gone => {
                    return Ok(ApprovalOutcome::Rejected(format!(
                        "{} does not exist any more",
                        promotion.name_any()
                    )));
                }
                ChangeOutcome::Rejected(why) => return Ok(ApprovalOutcome::Rejected(why)),
            }
        }
        Ok(ApprovalOutcome::Recorded(approved.into_iter().cloned().collect(), new))
    }

    /// Records the promotions that a request asks for, unless they are recorded already. The controller's loop
    /// delivers them later.
    ///
    /// # Errors
    /// When the promotions cannot be recorded now, or a promotion that decides about the request cannot be read.
    pub async fn record_trigger(
        &self,
        pipeline: &PipelineKey,
        request: &TriggerRequest,
    ) -> Result<TriggerOutcome, Unavailable> {
        match tokio::time::timeout(CALL_TIMEOUT, self.create_promotions(pipeline, request)).await {
            Ok(Ok(Some(outcome))) => Ok(outcome),
            Ok(Err(error)) => {
                Err(error.log(&pipeline.to_string(), "cannot record the promotions of a trigger"))
            }
            Ok(Ok(None)) | Err(_) => Err(Unavailable::RetryLater),
        }
    }

    /// Creates the missing promotions of a request. Returns `None` if one was deleted in the meantime.
    async fn create_promotions(
        &self,
        key: &PipelineKey,
        request: &TriggerRequest,
    ) -> Result<Option<TriggerOutcome>, StoreError> {
        let slot = self.reads.acquire(&key.to_string()).await;
        let Some(Lenient { object: pipeline, .. }) = read(&self.client, &key.namespace, &key.name).await?
        else {
            return Ok(Some(TriggerOutcome::PipelineGone));
        };
        let shape = trigger::revision_shape(&pipeline);
        let revision = match shape.and_then(|shape| trigger::requested_revision(&shape, request)) {
            Ok(revision) => revision,
            Err(why) => return Ok(Some(TriggerOutcome::Invalid(why))),
        };
        let first = pipeline.spec.environments.first().map_or("", |first| &first.name);
        let PromotionsInto { list, bytes } = promotion_list::read(&self.client, key, first).await?;
        drop(slot);
        let known = KnownPromotions::new(list)?;
        let all = &known.all;
        let records = trigger::records(&pipeline, &request.idempotency_key, &revision, all, Timestamp::now());
        if let Some(earlier) =
            trigger::complete_promotions(&pipeline, &request.idempotency_key, &records, all)
        {
            let is_other = |p: &&&Promotion| p.spec.facets != revision.to_strings();
            return Ok(Some(match earlier.iter().find(is_other) {
                None => TriggerOutcome::Recorded(known.readable(earlier)?, false),
                Some(other) => TriggerOutcome::OtherRevision(other.spec.revision.clone()),
            }));
        }
        let stored = |record: &Promotion| all.iter().find(|p| p.metadata.name == record.metadata.name);
        // If the key was used for another revision at one target, nothing is recorded at any target.
        let other =
            |record: &Promotion| stored(record).filter(|before| before.spec.facets != record.spec.facets);
        if let Some(before) = records.iter().find_map(other) {
            return Ok(Some(TriggerOutcome::OtherRevision(before.spec.revision.clone())));
        }
        let recorded = known.readable(records.iter().filter_map(stored).collect())?;
        let missing: Vec<Promotion> =
            records.iter().filter(|record| stored(record).is_none()).cloned().collect();
        if let Some(why) = trigger::too_many(bytes, missing.len(), &revision) {
            return Ok(Some(TriggerOutcome::Invalid(why)));
        }
        self.create_missing(key, missing, recorded).await
    }

    /// Creates promotions of a request, in addition to the `recorded` ones. Returns `None` if one was deleted in the meantime.
    async fn create_missing(
        &self,
        key: &PipelineKey,
        missing: Vec<Promotion>,
        mut recorded: Vec<Promotion>,
    ) -> Result<Option<TriggerOutcome>, StoreError> {
        let creations: Vec<_> = missing
            .into_iter()
            .map(|record| create_promotion(self.client.clone(), key.namespace.clone(), record))
            .collect();
        let created: Vec<Creation> =
            stream::iter(creations).buffered(MAX_CREATES_PER_CALL).try_collect().await?;
        let mut new = false;
        for creation in created {
            match creation {
                Creation::Created(promotion) => {
                    new = true;
                    recorded.push(promotion);
                }
                Creation::Found(promotion) => recorded.push(promotion),
                Creation::OtherRevision(before) => return Ok(Some(TriggerOutcome::OtherRevision(before))),
                Creation::Deleted => return Ok(None),
            }
        }
        Ok(Some(TriggerOutcome::Recorded(recorded, new)))
    }
}

/// Creates a promotion of a request, unless another call with the same key has created it meanwhile.
async fn create_promotion(
    client: Client,
    namespace: String,
    record: Promotion,
) -> Result<Creation, StoreError> {
    let promotions: Api<Promotion> = Api::namespaced(client.clone(), &namespace);
    if let Some(created) = record::create(&promotions, FIELD_MANAGER, &record).await? {
        return Ok(Creation::Created(created));
    }
    let found = read::<Promotion>(&client, &namespace, &record.name_any()).await?;
    Ok(match found.map(|read| read.object) {
        Some(object) if object.spec.facets == record.spec.facets => Creation::Found(object),
        Some(object) => Creation::OtherRevision(object.spec.revision),
        None => Creation::Deleted,
    })
}

/// The outcome of creating one promotion.
enum Creation {
    /// The promotion was created.
    Created(Promotion),
    /// The same promotion exists already.
    Found(Promotion),
    /// A promotion of its name, but of this revision, exists already.
    OtherRevision(String),
    /// A promotion of its name existed, and was deleted.
    Deleted,
}

/// The promotions of a pipeline. Specs are enough to find earlier requests, so promotions with an unreadable status are
/// included. But such promotions cannot be the answer to a call.
struct KnownPromotions {
    all: Vec<Promotion>,
    unreadable: Vec<Unreadable<PromotionSpec>>,
}

impl KnownPromotions {
    fn new(List { items: mut all, mut unreadable }: List<Promotion>) -> Result<Self, StoreError> {
        if let Some(promotion) = unreadable.iter().find(|promotion| promotion.spec.is_none()) {
            return Err(StoreError::unreadable_promotion(promotion));
        }
        for promotion in &mut unreadable {
            let (metadata, spec) = (promotion.metadata.clone(), promotion.spec.take().unwrap_or_default());
            all.push(Promotion { metadata, spec, status: None });
        }
        Ok(KnownPromotions { all, unreadable })
    }

    /// Returns copies of promotions, or an error if one of them cannot be read.
    fn readable(&self, promotions: Vec<&Promotion>) -> Result<Vec<Promotion>, StoreError> {
        let is_included = |unreadable: &&Unreadable<PromotionSpec>| {
            promotions.iter().any(|promotion| promotion.metadata.name == unreadable.metadata.name)
        };
        match self.unreadable.iter().find(is_included) {
            Some(promotion) => Err(StoreError::unreadable_promotion(promotion)),
            None => Ok(promotions.into_iter().cloned().collect()),
        }
    }
}

/// Reads an object; `None` if it does not exist.
async fn read<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<Lenient<K>>, StoreError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let read = lenient::get::<K>(client, namespace, name).await.map_err(|error| match error {
        kube::Error::SerdeError(why) => StoreError::unreadable::<K>(namespace, name, &why.to_string()),
        error => StoreError::Server(error),
    })?;
    Ok(read.map(|Lenient { object, left_out }| Lenient { object: without_unread(object), left_out }))
}

/// Records a forge's call with the pipeline's next write, which starts when the pause after the last write is over.
/// Calls that arrive before a write starts share its outcome. A call that arrives later waits for the next write,
/// because the call may report a change that is newer than the check after the first write.
async fn write_with_others<F>(
    calls: &ForgeCalls,
    pipeline: &PipelineKey,
    write: impl FnOnce() -> F,
) -> Result<ChangeOutcome, Unavailable>
where
    F: Future<Output = Result<ChangeOutcome, Unavailable>> + Send + 'static,
{
    let next = {
        let now = Instant::now();
        let mut states = lock(calls);
        states.retain(|_, state| state.next.is_some() || state.next_at > now);
        let state = states.entry(pipeline.clone()).or_insert(ForgeCallState { next_at: now, next: None });
        let start_at = state.next_at;
        let start = || {
            let (calls, pipeline, write) = (calls.clone(), pipeline.clone(), write());
            let write = async move {
                if start_at > Instant::now() {
                    tokio::time::sleep_until(start_at).await;
                }
                let state = ForgeCallState { next_at: Instant::now() + MIN_POLL_PAUSE, next: None };
                lock(&calls).insert(pipeline, state);
                write.await
            };
            // The write runs in its own task, so that it does not end with the connection of the caller.
            let write = tokio::spawn(write).map(|end| end.unwrap_or(Err(Unavailable::RetryLater)));
            write.boxed().shared()
        };
        state.next.get_or_insert_with(start).clone()
    };
    next.await
}

/// Changes the status of an object. `change` computes the change from the current object, and is called again if
/// another write was faster.
async fn change_status<K>(
    client: &Client,
    reads: &Arc<FairQueue>,
    named: &PipelineKey,
    change: impl Fn(&Lenient<K>) -> StatusChange,
) -> Result<ChangeOutcome, Unavailable>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let PipelineKey { namespace, name } = named;
    // Only metadata is parsed from the answer to the write, because the object may have unreadable parts.
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    let attempts = async {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            // Also held during the write: its answer is the whole object.
            let _slot = reads.acquire(&named.to_string()).await;
            let Some(stored) = read::<K>(client, namespace, name).await? else {
                return Ok(Some(ChangeOutcome::Gone));
            };
            let status = match change(&stored) {
                StatusChange::Write(status) => status,
                StatusChange::Unchanged => return Ok(Some(ChangeOutcome::Unchanged)),
                StatusChange::Foreign => return Ok(Some(ChangeOutcome::Gone)),
                StatusChange::Rejected(why) => return Ok(Some(ChangeOutcome::Rejected(why))),
                StatusChange::Unreadable(why) => {
                    return Err(StoreError::unreadable::<K>(namespace, name, &why));
                }
            };
            let meta = stored.object.meta();
            let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            match api.patch_status(name, &params, &patch).await {
                Ok(_) => return Ok(Some(ChangeOutcome::Written)),
                // Another write was faster, so the change is computed again from its result.
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(kube::Error::Api(e)) if e.code == 404 => return Ok(Some(ChangeOutcome::Gone)),
                Err(error) => return Err(StoreError::Server(error)),
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(CALL_TIMEOUT, attempts).await {
        Ok(Ok(Some(outcome))) => Ok(outcome),
        Ok(Err(error)) => {
            let object = format!("{} {namespace}/{name}", K::kind(&()));
            Err(error.log(&object, "cannot store what a call reports"))
        }
        Ok(Ok(None)) | Err(_) => Err(Unavailable::RetryLater),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::super::queue::MAX_WRITES_PER_NAMESPACE;
    use super::*;

    #[tokio::test]
    async fn slow_reads_of_eight_namespaces_delay_no_call_of_another() {
        let queue = queue_of_reads();
        let calls =
            (0..8).flat_map(|n| std::iter::repeat_n(format!("busy-{n}/app"), MAX_WRITES_PER_NAMESPACE));
        let held: Vec<_> = calls.filter_map(|pipeline| queue.acquire(&pipeline).now_or_never()).collect();
        assert!(held.len() > 8 && queue.acquire("quiet/app").now_or_never().is_some(), "{}", held.len());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_before_a_write_share_its_outcome_and_calls_during_it_wait_for_the_next() {
        let (calls, count) = (ForgeCalls::default(), Arc::new(AtomicU32::new(0)));
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        let (one, other) = (key("one"), key("other"));
        let call = async |key: &PipelineKey, takes: Duration, end: Result<ChangeOutcome, Unavailable>| {
            let count = count.clone();
            let write = || async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(takes).await;
                end
            };
            write_with_others(&calls, key, write).await
        };
        let (slow, quick) = (Duration::from_secs(1), Duration::ZERO);
        let mut first = pin!(call(&one, slow, Ok(ChangeOutcome::Written)));
        assert!(futures::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        // The first write has started, so calls do not share its outcome any more.
        let mut second = pin!(call(&one, slow, Err(Unavailable::RetryLater)));
        let mut third = pin!(call(&one, quick, Ok(ChangeOutcome::Written)));
        assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
        assert_eq!(call(&other, quick, Ok(ChangeOutcome::Written)).await, Ok(ChangeOutcome::Written));
        assert_eq!((first.await, count.load(Ordering::Relaxed)), (Ok(ChangeOutcome::Written), 2));
        // The second and third call share the next write, which fails for both.
        assert_eq!((second.await, third.await), (Err(Unavailable::RetryLater), Err(Unavailable::RetryLater)));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        // A call is recorded even if its caller closes the connection.
        {
            let mut closed = pin!(call(&one, slow, Ok(ChangeOutcome::Written)));
            assert!(futures::poll!(&mut closed).is_pending());
        }
        tokio::time::sleep(MIN_POLL_PAUSE * 2).await;
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert_eq!(call(&one, quick, Ok(ChangeOutcome::Unchanged)).await, Ok(ChangeOutcome::Unchanged));
    }
}
