//! What deliveries to git would change or have changed, for people who decide about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use kube::{Client, ResourceExt};
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_core::lock::lock;
use sluice_core::planned_change::PlannedChange;
use sluice_core::slots::CallerSlots;
use sluice_delivery::{Delivery, Order};

use super::credentials;
use super::work_slots::WorkSlots;
use crate::act::{ActError, order, strategy};

/// How long a planned change counts. People look at the same promotion many times; its repository is asked once.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// How many planned changes are kept.
const MAX_KEPT: usize = 1000;
/// How many requests wait for a planned change at a time, and how many changes are computed or wait for that, of all
/// people and of all service accounts. Each holds a whole Pipeline.
const MAX_PENDING: usize = 16;
/// The same, of one caller.
const MAX_PENDING_OF_CALLER: usize = 5;
/// How long computing one may take. The first fetch of a large repository takes a while.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a person waits.
const WAIT: Duration = Duration::from_secs(5);

/// Why a change is not computed now.
const BUSY: &str = "too many changes are being computed; look again in a moment";
/// Why a change is not computed any longer.
const SLOW: &str = "the repository is slow, and others are being waited for already; look again in a moment";

/// A planned change, `None` if the promotion is not delivered to git, or why it is not known.
type Answer = Result<Option<Arc<PlannedChange>>, String>;

/// Computes what deliveries to git would change. Copies share what was computed.
#[derive(Clone)]
pub struct PlannedChanges {
    client: Client,
    delivery: Delivery,
    slots: WorkSlots,
    kept: Arc<Mutex<HashMap<SeenPromotion, KeptAnswer>>>,
    people: CallerSlots,
    tasks: CallerSlots,
}

/// A promotion with its spec and that of its pipeline: the uid and generation of both, and the commit that delivered it.
type SeenPromotion = ([(String, i64); 2], Option<String>);

struct KeptAnswer {
    at: Instant,
    /// The limit group of the caller in whose slots it is computed.
    of: String,
    answer: Shared<BoxFuture<'static, Answer>>,
}

impl KeptAnswer {
    /// Whether it counts for a caller: of the limit group `only_of`, if another caller's slots were not enough before.
    fn counts_for(&self, only_of: Option<&str>) -> bool {
        match self.answer.peek() {
            Some(Err(why)) if why == SLOW => only_of == Some(self.of.as_str()),
            Some(_) => true,
            None => only_of.is_none_or(|caller| caller == self.of),
        }
    }
}

impl PlannedChanges {
    /// Returns what computes planned changes, with Secrets that this client reads.
    pub fn new(client: Client, delivery: Delivery) -> PlannedChanges {
        let (slots, kept) = (WorkSlots::new(), Arc::default());
        PlannedChanges { client, delivery, slots, kept, people: pending_slots(), tasks: pending_slots() }
    }

    /// Returns what the delivery of a promotion would change now, or what it has changed; `None` if it is not delivered to
    /// git.
    ///
    /// # Errors
    /// When the repository, or the Secret for it, cannot be read in time, or there is nothing to set. The error is a
    /// sentence for people.
    pub async fn get(&self, caller: &Caller, pipeline: &Pipeline, promotion: &Promotion) -> Answer {
        // By caller: one person may see the pipelines of many namespaces.
        let _waits = self.people.take(caller).ok_or(BUSY)?;
        match wait(self.kept_answer(caller, pipeline, promotion, false)?).await {
            // Another caller had no slot left. This caller may have one.
            Err(why) if why == SLOW => wait(self.kept_answer(caller, pipeline, promotion, true)?).await,
            answer => answer,
        }
    }

    fn kept_answer(
        &self,
        caller: &Caller,
        pipeline: &Pipeline,
        promotion: &Promotion,
        only_own: bool,
    ) -> Result<Shared<BoxFuture<'static, Answer>>, String> {
        let seen = |metadata: &kube::core::ObjectMeta| {
            (metadata.uid.clone().unwrap_or_default(), metadata.generation.unwrap_or_default())
        };
        let objects = [seen(&promotion.metadata), seen(&pipeline.metadata)];
        let key = (objects, delivered_commit(promotion).map(String::from));
        let mut kept = lock(&self.kept);
        kept.retain(|_, kept| kept.at.elapsed() < KEPT_FOR);
        let only_of = only_own.then(|| caller.limit_group());
        if let Some(kept) = kept.get(&key).filter(|kept| kept.counts_for(only_of)) {
            return Ok(kept.answer.clone());
        }
        let task = self.tasks.take(caller).ok_or(BUSY)?;
        let of = caller.limit_group().to_string();
        let (planned, pipeline, promotion) = (self.clone(), pipeline.clone(), promotion.clone());
        let caller = caller.clone();
        // A task of its own: it ends, and its result is kept, although the person has closed the page.
        let task = tokio::spawn(async move {
            let _task = task;
            let name = format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any());
            let work = planned.slots.run(&caller, &name, planned.compute(&pipeline, &promotion));
            match tokio::time::timeout(TIMEOUT, work).await {
                Ok(Some(computed)) => computed.map_err(|error| error.to_string()),
                Ok(None) => Err(SLOW.into()),
                Err(_) => Err(format!("the repository has not answered within {} s", TIMEOUT.as_secs())),
            }
        });
        let answer = async {
            task.await.unwrap_or_else(|error| Err(ActError::Internal(error.to_string()).to_string()))
        };
        let answer = answer.boxed().shared();
        keep_fewer_than(MAX_KEPT, &mut kept);
        kept.insert(key, KeptAnswer { at: Instant::now(), of, answer: answer.clone() });
        Ok(answer)
    }

    async fn compute(
        &self,
        pipeline: &Pipeline,
        promotion: &Promotion,
    ) -> Result<Option<Arc<PlannedChange>>, ActError> {
        let namespace = pipeline.namespace().unwrap_or_default();
        let Some(named) = strategy::named(pipeline, promotion) else { return Ok(None) };
        let Some((order, secret)) = order::order(pipeline, promotion, named, true) else { return Ok(None) };
        let credentials = credentials::read(&self.client, &namespace, &order.strategy, secret).await.result?;
        let order = Order { credentials, ..order };
        let planned = match delivered_commit(promotion) {
            Some(commit) => self.delivery.delivered_change(&order, commit).await?,
            None => self.delivery.planned_change(&order).await?,
        };
        Ok(planned.map(|mut planned| {
            planned.hide_unknown_values(&promotion.spec.facets, &known_values(pipeline, promotion));
            Arc::new(planned)
        }))
    }
}

/// Returns the commit that delivered a promotion, or that its closed change request proposed.
fn delivered_commit(promotion: &Promotion) -> Option<&str> {
    let status = promotion.status.as_ref().filter(|status| status.open_request().is_none())?;
    status.commit.as_deref()
}

/// Waits for an answer for as long as a person waits.
async fn wait(answer: Shared<BoxFuture<'static, Answer>>) -> Answer {
    tokio::time::timeout(WAIT, answer).await.unwrap_or_else(|_| {
        Err(format!("the repository has not answered within {} s; look again in a moment", WAIT.as_secs()))
    })
}

/// Forgets the oldest answers, so that those of one caller keep nobody from asking.
fn keep_fewer_than(most: usize, kept: &mut HashMap<SeenPromotion, KeptAnswer>) {
    while kept.len() >= most {
        let oldest = kept.iter().min_by_key(|(_, kept)| kept.at).map(|(key, _)| key.clone());
        let Some(oldest) = oldest else { return };
        kept.remove(&oldest);
    }
}

/// Returns the slots of what is pending.
fn pending_slots() -> CallerSlots {
    CallerSlots::new(MAX_PENDING, MAX_PENDING_OF_CALLER)
}

/// Returns the facets of all revisions in the facts and records of a pipeline.
fn known_values<'a>(pipeline: &'a Pipeline, promotion: &'a Promotion) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::from([promotion.spec.replaces.as_str()]);
    let Some(status) = &pipeline.status else { return known };
    let targets = status.environments.values().flat_map(|environment| &environment.targets);
    let verified = targets.clone().flat_map(|target| &target.verified).map(|verified| &verified.facets);
    let revisions = verified.chain(&status.revisions).flat_map(BTreeMap::values);
    known.extend(revisions.map(String::as_str));
    let running = targets.flat_map(|target| {
        target.workloads.iter().map(|workload| workload.version.as_str()).chain(target.revision.as_deref())
    });
    known.extend(running);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_limited_number_of_pending_changes_and_leaves_others_theirs() {
        let pending = pending_slots();
        let take = |name: &str| pending.take(&Caller { name: name.into(), ..Caller::default() });
        let busy: Vec<_> = (0..100).filter_map(|_| take("busy")).collect();
        assert_eq!(busy.len(), MAX_PENDING_OF_CALLER);
        assert!(take("quiet").is_some());
        let many: Vec<_> = (0..100).filter_map(|n| take(&format!("n{n}"))).collect();
        assert_eq!(busy.len() + many.len(), MAX_PENDING);
        drop((busy, many));
        assert!(pending.is_unused());
    }

    #[tokio::test]
    async fn a_caller_without_a_slot_keeps_no_other_caller_from_an_answer() {
        let kept = |future: BoxFuture<'static, Answer>| KeptAnswer {
            at: Instant::now(),
            of: "eve".into(),
            answer: future.shared(),
        };
        let refused = kept(async { Err(SLOW.into()) }.boxed());
        let done = kept(async { Ok(None) }.boxed());
        let pending = kept(std::future::pending().boxed());
        let (_, _) = (refused.answer.clone().await, done.answer.clone().await);
        let cases = [
            ("refused", &refused, [false, true, false]),
            ("done", &done, [true; 3]),
            ("pending", &pending, [true, true, false]),
        ];
        for (name, kept, expected) in cases {
            let counts = [None, Some("eve"), Some("anna")].map(|only_of| kept.counts_for(only_of));
            assert_eq!(counts, expected, "{name}");
        }
    }

    #[test]
    fn many_kept_answers_are_forgotten_and_keep_nobody_from_asking() {
        let mut kept = HashMap::new();
        for n in 0..10 {
            keep_fewer_than(4, &mut kept);
            let answer = async { Ok(None) }.boxed().shared();
            let seen = || (String::new(), n);
            kept.insert(
                ([seen(), seen()], None),
                KeptAnswer { at: Instant::now(), of: String::new(), answer },
            );
        }
        let mut left: Vec<i64> = kept.keys().map(|([(_, n), _], _)| *n).collect();
        left.sort_unstable();
        assert_eq!(left, [6, 7, 8, 9]);
    }
}
