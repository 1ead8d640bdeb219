//! Keeps the Leases: does at the API server what the roster says, and tells the loop which shards
//! come and go. A term that it grants ends by the clock, whether this task gets a turn or not.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_delivery::{LeaseTerm, since_boot};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::change::ShardChange;
use super::claim::{Claim, Name};
use super::lease_timing::Election;
use super::roster::{Moment, Outcome, Roster, Step};
use crate::metrics::Metrics;
use crate::state::Input;
use crate::timeout::within;
use crate::watch::limit::WatchLimits;
use crate::watch::read_error::api_error_message;
use crate::watch::stream::{ObjectEvent, ParsedObjectApi, follow};

/// What the keeper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing is done for a shard any more.
    Closed(u32),
    /// Hand back everything, and end.
    Leave,
}

/// Keeps the Leases of one replica.
pub struct Keeper {
    election: Election,
    api: Api<Lease>,
    roster: Roster,
    /// Of the shards that the loop knows to have.
    terms: BTreeMap<u32, Granted>,
    metrics: Arc<Metrics>,
    tell: UnboundedSender<Input>,
    steps: JoinSet<Done>,
    /// What was last logged.
    said: Said,
}

struct Granted {
    term: LeaseTerm,
    closing: bool,
    acquired: Timestamp,
}

#[derive(Default, PartialEq, Eq)]
struct Said {
    stands_by_for: Option<(String, u32)>,
    holders: Vec<Option<String>>,
    failure: Option<String>,
}

/// A step that has ended.
enum Done {
    Step(Name, Moment, Outcome),
    Survey(Moment, Option<Vec<(Name, Claim)>>),
    Failed(Name, Moment, kube::Error),
}

/// How long an answer is waited for, at most.
const API_CALL_TIMEOUT: Duration = Duration::from_secs(5);

impl Keeper {
    /// One that holds nothing yet, and tells the loop through `tell`.
    pub fn new(
        election: Election,
        client: Client,
        metrics: Arc<Metrics>,
        tell: UnboundedSender<Input>,
    ) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        let roster = Roster::new(identity(), election.shards, election.pace);
        let (terms, steps, said) = (BTreeMap::new(), JoinSet::new(), Said::default());
        Self { election, api, roster, terms, metrics, tell, steps, said }
    }

    /// Runs until it was told to leave and has handed back everything.
    pub async fn run(mut self, mut orders: UnboundedReceiver<Order>) {
        let (heard, mut hear) = unbounded_channel();
        let all: ParsedObjectApi<Lease> =
            Api::namespaced(self.api.clone().into_client(), &self.election.namespace);
        let installation = self.election.name.clone();
        // Of other Leases in the namespace nothing is kept.
        let ours = move |lease: Lease| {
            Name::read(&lease.name_any(), &installation).map(|name| (name, Claim::read(&lease)))
        };
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            follow(all, None, WatchLimits::hub("Leases"), ours, |seen| match heard.send(seen) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
            .await;
        });
        tracing::info!(
            identity = self.roster.me(),
            shards = self.election.shards,
            namespace = self.election.namespace,
            leases = format!("{}.*", self.election.name),
            "taking part in the election"
        );
        loop {
            self.turn();
            if self.roster.has_left() {
                return tracing::info!("every shard was handed back");
            }
            let now = since_boot();
            let pause = self.roster.next(now).map_or(API_CALL_TIMEOUT, |at| at - now).min(API_CALL_TIMEOUT);
            tokio::select! {
                Some(seen) = hear.recv() => self.seen(seen),
                Some(Ok(done)) = self.steps.join_next() => self.done(done),
                Some(order) = orders.recv() => match order {
                    Order::Closed(shard) => self.roster.closed(shard),
                    Order::Leave => self.roster.leave(),
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what is to be done now, and tells the loop what has come of it.
    fn turn(&mut self) {
        let now = since_boot();
        for step in self.roster.steps(now) {
            self.spawn(step, now);
        }
        self.grant();
        let member = self.roster.is_member();
        self.metrics.shards.count(self.terms.len(), if member { self.roster.replicas(now) } else { 0 });
        self.say();
    }

    /// Extends, begins and ends terms as the roster has it.
    fn grant(&mut self) {
        let held = self.roster.held();
        // One that was over when its renewal came is lost and gained: what was held back in between, turns
        // and writes, is found as after any other gain.
        let goes_on = |(shard, granted): &(&u32, &Granted)| {
            held.get(*shard).is_some_and(|tenure| granted.term.extend(tenure.until))
        };
        let lost: Vec<u32> =
            self.terms.iter().filter(|term| !goes_on(term)).map(|(shard, _)| *shard).collect();
        for shard in lost {
            let Some(granted) = self.terms.remove(&shard) else { continue };
            // First of all: whatever is under way looks at it before the loop gets to know.
            granted.term.end();
            self.metrics.shards.changed(if granted.closing { "released" } else { "lost" });
            self.news(ShardChange::Lost(shard));
        }
        for (shard, tenure) in held {
            if let Some(granted) = self.terms.get_mut(&shard) {
                if tenure.closing && !std::mem::replace(&mut granted.closing, true) {
                    self.news(ShardChange::Closing(shard));
                }
                continue;
            }
            let term = LeaseTerm::until(tenure.until);
            let granted = Granted { term: term.clone(), closing: tenure.closing, acquired: Timestamp::now() };
            self.terms.insert(shard, granted);
            self.metrics.shards.changed("gained");
            self.news(ShardChange::Gained(shard, term));
            if tenure.closing {
                self.news(ShardChange::Closing(shard));
            }
        }
    }

    fn news(&self, news: ShardChange) {
        // The loop ends only with the process.
        let _ = self.tell.send(Input::Shard(news));
    }

    /// Logs who holds what, when that has changed.
    fn say(&mut self) {
        let member = self.roster.is_member();
        let stands_by_for = self.roster.stands_by_for().filter(|_| !member).map(|(i, n)| (i.to_string(), n));
        if member || stands_by_for.is_some() {
            self.metrics.shards.set_ready();
        }
        if stands_by_for != self.said.stands_by_for {
            if let Some((replica, theirs)) = &stands_by_for {
                let ours = self.election.shards;
                tracing::warn!(
                    replica,
                    "stands by: another replica runs with --shards {theirs}, this one with --shards {ours}; \
                     it takes part when those are gone"
                );
            }
            self.said.stands_by_for = stands_by_for;
        }
        let holders: Vec<_> =
            (0..self.election.shards).map(|n| self.roster.holder(n).map(String::from)).collect();
        if holders != self.said.holders {
            for (shard, holder) in holders.iter().enumerate() {
                if self.said.holders.get(shard) != Some(holder) {
                    let holder = holder.as_deref().unwrap_or("nobody");
                    tracing::info!(shard, holder, me = self.roster.me(), "shard is held by");
                }
            }
            self.said.holders = holders;
        }
    }

    fn seen(&mut self, seen: ObjectEvent<(Name, Claim)>) {
        let now = since_boot();
        match seen {
            ObjectEvent::Listed(all, _) => self.roster.listed(all, now),
            ObjectEvent::Applied((name, claim)) => self.roster.seen(name, claim, now),
            ObjectEvent::Deleted(metadata) => {
                if let Some(name) = Name::read(&metadata.name.unwrap_or_default(), &self.election.name) {
                    self.roster.gone(&name, now);
                }
            }
            ObjectEvent::Unreadable(_) => {}
            ObjectEvent::Failed(failure) => self.failed("watch", failure.error()),
        }
    }

    fn done(&mut self, done: Done) {
        let now = since_boot();
        match done {
            Done::Step(name, asked, outcome) => {
                if !matches!(outcome, Outcome::Failed) {
                    self.said.failure = None;
                }
                self.roster.ended(&name, asked, outcome, now);
            }
            Done::Survey(asked, all) => self.roster.surveyed(all, asked, now),
            Done::Failed(name, asked, error) => {
                self.failed("write", &error);
                self.roster.ended(&name, asked, Outcome::Failed, now);
            }
        }
    }

    /// Says once why nothing comes of it.
    fn failed(&mut self, verb: &str, error: &kube::Error) {
        let namespace = &self.election.namespace;
        let why = match error {
            kube::Error::Api(status) if status.code == 403 => format!(
                "may not {verb} Leases in namespace {namespace}: grant the controller get, list, watch, create, \
                 update and delete on leases of coordination.k8s.io there (deploy/rbac.yaml), or run one \
                 replica only, with --leader-elect=false ({})",
                status.message
            ),
            kube::Error::Api(status) if status.code == 404 => format!(
                "there is no namespace {namespace} for the Leases: create it, or name another with \
                 --leader-election-namespace"
            ),
            error => format!(
                "cannot {verb} Leases in namespace {namespace}, and acts for nothing without: {}",
                api_error_message(error)
            ),
        };
        if self.said.failure.as_ref() != Some(&why) {
            tracing::warn!("{why}");
            self.said.failure = Some(why);
        }
    }

    /// Does a step, in a task of its own: one that hangs holds up no other.
    fn spawn(&mut self, step: Step, now: Moment) {
        let (api, installation) = (self.api.clone(), self.election.name.clone());
        let acquired = |name: &Name| match name {
            Name::Shard(number) => self.terms.get(number).map(|granted| granted.acquired),
            Name::Replica(_) => None,
        };
        match step {
            Step::Survey => drop(self.steps.spawn(async move {
                let params = ListParams::default();
                let all =
                    tokio::time::timeout(API_CALL_TIMEOUT, api.list(&params)).await.ok().and_then(Result::ok);
                Done::Survey(now, all.map(|all| read(&all.items, &installation)))
            })),
            Step::Write(name, claim) => {
                let acquired = acquired(&name).unwrap_or_else(Timestamp::now);
                self.steps.spawn(async move {
                    let object = claim.object(&name.spell(&installation), acquired, Timestamp::now());
                    end(name, now, &installation, &api, write(&api, &object)).await
                });
            }
            Step::Remove(name, version) => drop(self.steps.spawn(async move {
                let spelled = name.spell(&installation);
                end(name, now, &installation, &api, remove(&api, &spelled, version)).await
            })),
        }
    }
}

fn read(all: &[Lease], installation: &str) -> Vec<(Name, Claim)> {
    let ours = all.iter().filter_map(|lease| Some((Name::read(&lease.name_any(), installation)?, lease)));
    ours.map(|(name, lease)| (name, Claim::read(lease))).collect()
}

async fn write(api: &Api<Lease>, object: &Lease) -> kube::Result<Option<Claim>> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let written = match object.metadata.resource_version {
        None => api.create(&params, object).await?,
        Some(_) => api.replace(&object.name_any(), &params, object).await?,
    };
    Ok(Some(Claim::read(&written)))
}

async fn remove(api: &Api<Lease>, name: &str, version: String) -> kube::Result<Option<Claim>> {
    let preconditions = Preconditions { resource_version: Some(version), uid: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    api.delete(name, &params).await.map(|_| None)
}

/// How a step ended; where somebody else was faster, with what stands now.
async fn end(
    name: Name,
    asked: Moment,
    installation: &str,
    api: &Api<Lease>,
    step: impl Future<Output = kube::Result<Option<Claim>>>,
) -> Done {
    let outcome = match within(API_CALL_TIMEOUT, step).await {
        Ok(Some(claim)) => Outcome::Stands(claim),
        Ok(None) => Outcome::Otherwise(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            match within(API_CALL_TIMEOUT, api.get_opt(&name.spell(installation))).await {
                // A Lease that is made is not found where its namespace is not, nor where a quota has
                // refused it for now: nobody has taken it.
                Ok(None) if no_namespace(&status) || status.is_conflict() => {
                    return Done::Failed(name, asked, kube::Error::Api(status));
                }
                Ok(found) => Outcome::Otherwise(found.as_ref().map(Claim::read)),
                Err(error) => return Done::Failed(name, asked, error),
            }
        }
        Err(error) => return Done::Failed(name, asked, error),
    };
    Done::Step(name, asked, outcome)
}

fn no_namespace(status: &Status) -> bool {
    status.code == 404 && status.message.contains("namespaces")
}

/// A name that no other process has or will have: the pod's, and something random.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_default().to_ascii_lowercase();
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let host = host.trim_matches('-');
    let host = if host.is_empty() { "sluice" } else { host };
    let mut random = [0; 4];
    // Without random bytes the time tells processes apart.
    if ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random).is_err() {
        random = Timestamp::now().subsec_nanosecond().to_be_bytes();
    }
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{host}-{random}")
}
