//! Sends the requests of the [`Election`] to the API server, and reports to the loop which shards this replica gains
//! and loses. A term ends by the clock, even if this task does not run then.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Preconditions};
use kube::core::{Request, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::FIELD_MANAGER;
use sluice_core::hex::hex;
use sluice_delivery::{LeaseTerm, notification, since_boot};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::election::{Election, LeaseOutcome, LeaseRequest, Moment, ShardLease};
use super::lease::{Lease, LeaseName, LeaseRecord, lease_resource};
use super::lease_timing::ElectionOptions;
use super::shard_change::ShardChange;
use crate::metrics::Metrics;
use crate::state::Input;
use crate::timeout::within;
use crate::watch::limit::WatchLimits;
use crate::watch::parsed_object::{ParsedObject, UnreadableObject};
use crate::watch::read_error::api_error_message;
use crate::watch::stream::{ObjectEvent, ParsedObjectApi, follow};

/// A command of the loop to the [`LeaseManager`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCommand {
    /// Hand back this shard: nothing is in flight for it.
    HandBack(u32),
    /// Hand back everything, and end.
    Leave,
}

/// Holds the Leases of this replica.
pub struct LeaseManager {
    options: ElectionOptions,
    leases: Leases,
    election: Election,
    /// The terms of the shards that were reported to the loop.
    terms: BTreeMap<u32, GrantedTerm>,
    metrics: Arc<Metrics>,
    tx: UnboundedSender<Input>,
    requests: JoinSet<EndedRequest>,
    logged: Logged,
}

/// The term of a shard that was reported to the loop.
struct GrantedTerm {
    term: LeaseTerm,
    is_closing: bool,
    acquired: Timestamp,
}

/// What was last logged, so that only changes are logged.
#[derive(Default, PartialEq, Eq)]
struct Logged {
    incompatible_replica: Option<(String, u32)>,
    holders: Vec<Option<String>>,
    failure: Option<String>,
}

/// A request that has ended. The moment is the time at which it was sent.
enum EndedRequest {
    Change(LeaseName, Moment, LeaseOutcome),
    List(Moment, Option<Vec<(LeaseName, LeaseRecord)>>),
    Failed(LeaseName, Moment, kube::Error),
}

/// How long to wait for the answer to a request. It is shorter than for other calls, because Leases must be renewed in
/// time.
const LEASE_CALL_TIMEOUT: Duration = Duration::from_secs(5);

impl LeaseManager {
    /// Returns a manager that holds no Lease yet. The manager reports shards to `tx`.
    pub fn new(
        options: ElectionOptions,
        client: Client,
        metrics: Arc<Metrics>,
        tx: UnboundedSender<Input>,
    ) -> Self {
        let leases = Leases { client, namespace: options.namespace.clone() };
        let election = Election::new(random_identity(), options.shards, options.timing);
        let (terms, requests, logged) = (BTreeMap::new(), JoinSet::new(), Logged::default());
        Self { options, leases, election, terms, metrics, tx, requests, logged }
    }

    /// Runs until [`LeaseCommand::Leave`], and then until everything is handed back.
    pub async fn run(mut self, mut commands: UnboundedReceiver<LeaseCommand>) {
        let (watch_tx, mut events) = unbounded_channel();
        let api: ParsedObjectApi<Lease> =
            Api::namespaced_with(self.leases.client.clone(), &self.options.namespace, &lease_resource());
        let installation = self.options.name.clone();
        let parse = move |lease: Lease| parse_lease(&lease, &installation);
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            follow(api, None, WatchLimits::hub("Leases"), parse, |event| match watch_tx.send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
            .await;
        });
        tracing::info!(
            identity = self.election.identity(),
            shards = self.options.shards,
            namespace = self.options.namespace,
            leases = format!("{}.*", self.options.name),
            "taking part in the election"
        );
        loop {
            self.advance();
            if self.election.has_left() {
                return tracing::info!("every shard was handed back");
            }
            let now = since_boot();
            let pause = self.election.next_requests_at(now).map_or(LEASE_CALL_TIMEOUT, |at| at - now);
            tokio::select! {
                Some(event) = events.recv() => self.watch_event(event),
                Some(Ok(ended)) = self.requests.join_next() => self.request_ended(ended),
                Some(command) = commands.recv() => match command {
                    LeaseCommand::HandBack(shard) => self.election.shard_closed(shard),
                    LeaseCommand::Leave => self.election.leave(),
                },
                () = tokio::time::sleep(pause.min(LEASE_CALL_TIMEOUT)) => {}
            }
        }
    }

    /// Sends the requests that are due, and updates terms, metrics and the log.
    fn advance(&mut self) {
        let now = since_boot();
        for request in self.election.requests(now) {
            self.send(request, now);
        }
        self.update_terms();
        let is_member = self.election.is_member();
        let replicas = if is_member { self.election.replica_count(now) } else { 0 };
        self.metrics.shards.set(self.terms.len(), replicas);
        self.log_changes();
    }

    /// Extends, begins and ends terms for the shards that the election holds.
    fn update_terms(&mut self) {
        let held = self.election.held_shards();
        // If a term had ended before its renewal came, the shard is reported as lost and gained again. So the loop
        // finds the work that was not done in between.
        let is_extended = |(shard, granted): &(&u32, &GrantedTerm)| {
            held.get(*shard).is_some_and(|lease| granted.term.extend(lease.until))
        };
        let lost: Vec<u32> =
            self.terms.iter().filter(|term| !is_extended(term)).map(|(shard, _)| *shard).collect();
        lost.into_iter().for_each(|shard| self.lose(shard));
        held.into_iter().for_each(|(shard, lease)| self.grant(shard, lease));
    }

    /// Ends the term of a shard.
    fn lose(&mut self, shard: u32) {
        let Some(granted) = self.terms.remove(&shard) else { return };
        // The term ends first, because in-flight side effects check it before the loop learns of its end.
        granted.term.end();
        self.metrics.shards.count_change(if granted.is_closing { "released" } else { "lost" });
        self.report(ShardChange::Lost(shard));
    }

    /// Begins the term of a shard, if there is none, and reports when the shard is closing.
    fn grant(&mut self, shard: u32, lease: ShardLease) {
        if let Some(granted) = self.terms.get_mut(&shard) {
            if lease.is_closing && !std::mem::replace(&mut granted.is_closing, true) {
                self.report(ShardChange::Closing(shard));
            }
            return;
        }
        let term = LeaseTerm::until(lease.until);
        let is_closing = lease.is_closing;
        self.terms.insert(shard, GrantedTerm { term: term.clone(), is_closing, acquired: Timestamp::now() });
        self.metrics.shards.count_change("gained");
        self.report(ShardChange::Gained(shard, term));
        if is_closing {
            self.report(ShardChange::Closing(shard));
        }
    }

    fn report(&self, change: ShardChange) {
        // The loop ends only with the process.
        let _ = self.tx.send(Input::Shard(change));
    }

    /// Logs which replica holds each shard, and whether this replica takes part, if that has changed.
    fn log_changes(&mut self) {
        let is_member = self.election.is_member();
        let incompatible = self.election.incompatible_replica(since_boot()).filter(|_| !is_member);
        let incompatible = incompatible.map(|(identity, shards)| (identity.to_string(), shards));
        if is_member || incompatible.is_some() {
            self.metrics.shards.set_ready();
        }
        if incompatible != self.logged.incompatible_replica {
            if let Some((replica, theirs)) = &incompatible {
                let ours = self.options.shards;
                tracing::warn!(
                    replica,
                    "standing by: another replica runs with --shards {theirs}, this one with --shards {ours}; \
                     this replica takes part when no other number is in use"
                );
            }
            self.logged.incompatible_replica = incompatible;
        }
        let holders: Vec<_> =
            (0..self.options.shards).map(|n| self.election.holder(n).map(String::from)).collect();
        if holders != self.logged.holders {
            for (shard, holder) in holders.iter().enumerate() {
                if self.logged.holders.get(shard) != Some(holder) {
                    let holder = holder.as_deref().unwrap_or("nobody");
                    let this_replica = self.election.identity();
                    tracing::info!(shard, holder, this_replica, "a shard has a new holder");
                }
            }
            self.logged.holders = holders;
        }
    }

    fn watch_event(&mut self, event: ObjectEvent<(LeaseName, LeaseRecord)>) {
        let now = since_boot();
        match event {
            ObjectEvent::Listed(all, _) => self.election.observe_all(all, now),
            ObjectEvent::Applied((name, record)) => self.election.observe(name, record, now),
            ObjectEvent::Deleted(metadata) => {
                let object_name = metadata.name.unwrap_or_default();
                if let Some(name) = LeaseName::parse(&object_name, &self.options.name) {
                    self.election.observe_deleted(&name, now);
                }
            }
            ObjectEvent::Unreadable(_) | ObjectEvent::LeftOut(..) => {}
            ObjectEvent::Failed(failure) => self.log_failure("watch", failure.error()),
        }
    }

    fn request_ended(&mut self, ended: EndedRequest) {
        let now = since_boot();
        match ended {
            EndedRequest::Change(name, sent, outcome) => {
                if outcome != LeaseOutcome::Unknown {
                    self.logged.failure = None;
                }
                self.election.request_ended(&name, sent, outcome, now);
            }
            EndedRequest::List(sent, all) => self.election.list_ended(all, sent, now),
            EndedRequest::Failed(name, sent, error) => {
                self.log_failure("write", &error);
                self.election.request_ended(&name, sent, LeaseOutcome::Unknown, now);
            }
        }
    }

    /// Logs why Leases cannot be watched or written, once for each cause.
    fn log_failure(&mut self, verb: &str, error: &kube::Error) {
        let namespace = &self.options.namespace;
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
                "cannot {verb} Leases in namespace {namespace}, and without them this replica acts for no pipeline: {}",
                api_error_message(error)
            ),
        };
        if self.logged.failure.as_ref() != Some(&why) {
            tracing::warn!("{why}");
            self.logged.failure = Some(why);
        }
    }

    /// Sends a request in a task of its own, so that a request that hangs delays no other request.
    fn send(&mut self, request: LeaseRequest, now: Moment) {
        let (leases, installation) = (self.leases.clone(), self.options.name.clone());
        match request {
            LeaseRequest::List => drop(self.requests.spawn(async move {
                let all = within(LEASE_CALL_TIMEOUT, leases.list()).await.ok();
                let parse = |lease: &Lease| parse_lease(lease, &installation);
                EndedRequest::List(now, all.map(|all| all.iter().filter_map(parse).collect()))
            })),
            LeaseRequest::Write(name, record) => {
                let term = match &name {
                    LeaseName::Shard(number) => self.terms.get(number),
                    LeaseName::Replica(_) => None,
                };
                let acquired = term.map_or_else(Timestamp::now, |term| term.acquired);
                self.requests.spawn(async move {
                    let lease = record.to_lease(&name.object_name(&installation), acquired, Timestamp::now());
                    end_of(name, now, &installation, &leases, leases.write(&lease)).await
                });
            }
            LeaseRequest::Delete(name, version) => drop(self.requests.spawn(async move {
                let object_name = name.object_name(&installation);
                end_of(name, now, &installation, &leases, leases.delete(&object_name, version)).await
            })),
        }
    }
}

/// Returns the name and contents of a Lease, or `None` if the Lease is not of this installation.
fn parse_lease(lease: &Lease, installation: &str) -> Option<(LeaseName, LeaseRecord)> {
    let name = LeaseName::parse(&lease.name_any(), installation)?;
    Some((name, LeaseRecord::from_lease(lease)))
}

/// The Leases of a namespace. Answers are read object by object and without `managedFields`, in which anybody who may
/// write a Lease can store a time that cannot be parsed.
#[derive(Clone)]
struct Leases {
    client: Client,
    namespace: String,
}

impl Leases {
    fn request(&self) -> Request {
        Request::new(Lease::url_path(&lease_resource(), Some(&self.namespace)))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn list(&self) -> kube::Result<Vec<Lease>> {
        #[derive(serde::Deserialize)]
        struct LeaseList {
            items: Vec<ParsedObject<Lease>>,
        }
        let list: LeaseList = self.send(self.request().list(&ListParams::default())).await?;
        Ok(list.items.into_iter().filter_map(|lease| lease.0.ok()).collect())
    }

    async fn get(&self, name: &str) -> kube::Result<Option<LeaseRecord>> {
        match self.send(self.request().get(name, &GetParams::default())).await {
            Ok(lease) => stored(lease).map(Some),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates or replaces a Lease, and returns what is stored.
    async fn write(&self, lease: &Lease) -> kube::Result<Option<LeaseRecord>> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let body = serde_json::to_vec(lease).map_err(kube::Error::SerdeError)?;
        let request = match lease.metadata.resource_version {
            None => self.request().create(&params, body),
            Some(_) => self.request().replace(&lease.name_any(), &params, body),
        };
        self.send(request).await.and_then(stored).map(Some)
    }

    async fn delete(&self, name: &str, version: String) -> kube::Result<Option<LeaseRecord>> {
        let preconditions = Preconditions { resource_version: Some(version), uid: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.send::<serde::de::IgnoredAny>(self.request().delete(name, &params)).await.map(|_| None)
    }
}

/// Returns the contents of the Lease in an answer.
fn stored(lease: ParsedObject<Lease>) -> kube::Result<LeaseRecord> {
    let unreadable = |unreadable: UnreadableObject| kube::Error::Service(unreadable.error.into());
    lease.0.map(|lease| LeaseRecord::from_lease(&lease)).map_err(unreadable)
}

/// Waits for the end of a request, which returns the stored record. After a conflict, reads the Lease.
async fn end_of(
    name: LeaseName,
    sent: Moment,
    installation: &str,
    leases: &Leases,
    request: impl Future<Output = kube::Result<Option<LeaseRecord>>>,
) -> EndedRequest {
    let outcome = match within(LEASE_CALL_TIMEOUT, request).await {
        Ok(stored) => stored.map_or(LeaseOutcome::Absent, LeaseOutcome::Stored),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            match within(LEASE_CALL_TIMEOUT, leases.get(&name.object_name(installation))).await {
                // The Lease could not be created, because its namespace is missing or a quota is used up. No other
                // replica holds it.
                Ok(None) if is_without_namespace(&status) || status.is_conflict() => {
                    return EndedRequest::Failed(name, sent, kube::Error::Api(status));
                }
                Ok(None) => LeaseOutcome::Absent,
                Ok(Some(record)) => LeaseOutcome::Conflict(record),
                Err(error) => return EndedRequest::Failed(name, sent, error),
            }
        }
        Err(error) => return EndedRequest::Failed(name, sent, error),
    };
    EndedRequest::Change(name, sent, outcome)
}

fn is_without_namespace(status: &Status) -> bool {
    status.code == 404 && status.message.contains("namespaces")
}

/// Returns an identity that no other process ever has: the pod's name, and random bytes.
fn random_identity() -> String {
    let host = notification::instance().unwrap_or_default().to_ascii_lowercase();
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let host = host.trim_matches('-');
    let host = if host.is_empty() { "sluice" } else { host };
    let mut random = [0; 4];
    // Without random bytes, the time makes the identity unique.
    if ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random).is_err() {
        random = Timestamp::now().subsec_nanosecond().to_be_bytes();
    }
    format!("{host}-{}", hex(random))
}
