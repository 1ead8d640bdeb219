//! A simulated API server and replicas, in a time that the test sets.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_controller::shard::election::{LeaseOutcome, LeaseRequest};
use sluice_controller::shard::lease::{LeaseName, LeaseRecord};
use sluice_controller::shard::{Election, LeaseTiming};

pub const TIMING: LeaseTiming = LeaseTiming {
    lease_duration: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry_period: Duration::from_secs(2),
};

/// The API server.
#[derive(Default)]
pub struct Server {
    pub leases: BTreeMap<LeaseName, LeaseRecord>,
    /// The version of the last change.
    pub version: u64,
    /// Refuses to delete Leases.
    pub keeps_replicas: bool,
}

impl Server {
    pub fn all(&self) -> Vec<(LeaseName, LeaseRecord)> {
        self.leases.iter().map(|(name, record)| (name.clone(), record.clone())).collect()
    }

    /// Carries out a write or a deletion, if the request names the stored version.
    pub fn handle(&mut self, request: &LeaseRequest) -> LeaseOutcome {
        let (name, version) = match request {
            LeaseRequest::Write(name, record) => (name, &record.version),
            LeaseRequest::Delete(name, version) => (name, version),
            LeaseRequest::List => panic!("not a write"),
        };
        let stored = self.leases.get(name);
        if stored.map_or("", |record| record.version.as_str()) != version {
            return stored.cloned().map_or(LeaseOutcome::Absent, LeaseOutcome::Conflict);
        }
        // The API server refuses such a Lease (ValidateLeaseSpec in pkg/apis/coordination/validation of Kubernetes 1.36).
        if matches!(request, LeaseRequest::Write(_, record) if record.transitions < 0) {
            return LeaseOutcome::Unknown;
        }
        if self.keeps_replicas && matches!(request, LeaseRequest::Delete(..)) {
            return LeaseOutcome::Unknown;
        }
        // The finalizer of a Lease that was deleted keeps it.
        if matches!(request, LeaseRequest::Delete(..)) && stored.is_some_and(|record| record.is_terminating) {
            return LeaseOutcome::Absent;
        }
        self.version += 1;
        match request {
            LeaseRequest::Write(name, record) => {
                let record = LeaseRecord { version: self.version.to_string(), ..record.clone() };
                self.leases.insert(name.clone(), record.clone());
                LeaseOutcome::Stored(record)
            }
            _ => {
                self.leases.remove(name);
                LeaseOutcome::Absent
            }
        }
    }

    /// The holder of each shard.
    pub fn holders(&self, shards: u32) -> Vec<Option<String>> {
        let holder = |n| self.leases.get(&LeaseName::Shard(n)).and_then(|record| record.holder.clone());
        (0..shards).map(holder).collect()
    }
}

/// A message between a replica and the server.
enum Message {
    /// To the server: a request, the replica's time at which it was sent, and after how many milliseconds the
    /// answer arrives; `None` if the answer is lost.
    Request(LeaseRequest, Duration, Option<u64>),
    /// To the replica: the answer to a write or a deletion.
    Answer(LeaseName, Duration, LeaseOutcome),
    /// To the replica: the answer to a list.
    List(Option<Vec<(LeaseName, LeaseRecord)>>, Duration),
    /// To the replica: an event of its watch.
    Event(LeaseName, Option<LeaseRecord>),
}

/// A replica with its own clock and its own connection to the server.
pub struct Replica {
    pub name: String,
    pub shards: u32,
    pub election: Election,
    /// How far its clock moves in a true second, in milliseconds.
    clock_rate: u64,
    /// What its clock shows at the beginning, in milliseconds.
    clock_offset: u64,
    /// Messages by the time at which they arrive and their number.
    messages: Vec<(u64, usize, Message)>,
    sent: usize,
    watched: BTreeMap<LeaseName, LeaseRecord>,
    watched_version: u64,
    /// Until when the process is stopped.
    pub stopped: u64,
    /// Until when its watch reports nothing.
    pub watch_silent: u64,
    pub dead: bool,
}

impl Replica {
    pub fn new(name: &str, shards: u32, clock_rate: u64, clock_offset: u64) -> Self {
        let mut election = Election::new(name, shards, TIMING);
        election.observe_all(Vec::new(), Duration::from_millis(clock_offset));
        Replica {
            name: name.into(),
            shards,
            election,
            clock_rate,
            clock_offset,
            messages: Vec::new(),
            sent: 0,
            watched: BTreeMap::new(),
            watched_version: 0,
            stopped: 0,
            watch_silent: 0,
            dead: false,
        }
    }

    pub fn clock(&self, now: u64) -> Duration {
        Duration::from_micros((self.clock_offset + now) * 1000 + now * self.clock_rate - now * 1000)
    }

    /// The shards that the replica acts for: their terms run by its clock, whatever messages it has not read yet.
    pub fn acts(&self, now: u64) -> Vec<u32> {
        if self.dead {
            return Vec::new();
        }
        let clock = self.clock(now);
        let held = self.election.held_shards().into_iter();
        held.filter(|(_, lease)| lease.until > clock).map(|(shard, _)| shard).collect()
    }

    fn send(&mut self, at: u64, message: Message) {
        self.sent += 1;
        self.messages.push((at, self.sent, message));
    }

    /// Delivers the messages that are due, and sends requests. `delay` returns how long the next message takes,
    /// and `is_lost` whether the next answer is lost.
    pub fn advance(
        &mut self,
        server: &mut Server,
        now: u64,
        mut delay: impl FnMut() -> u64,
        mut is_lost: impl FnMut() -> bool,
    ) {
        self.watch(server, now);
        // Requests arrive even if their sender is stopped or dead.
        let (due, later) = std::mem::take(&mut self.messages).into_iter().partition(|(at, _, _)| *at <= now);
        self.messages = later;
        let mut due: Vec<_> = due;
        due.sort_by_key(|(at, sent, _)| (*at, *sent));
        for (at, sent, message) in due {
            match message {
                Message::Request(request, sent, back) => self.arrive(server, now, &request, sent, back),
                // A process that is stopped reads its messages when it continues.
                message if self.stopped > now => self.messages.push((at.max(self.stopped), sent, message)),
                message if !self.dead => self.read(now, message),
                _ => {}
            }
        }
        if self.dead || self.stopped > now {
            return;
        }
        let clock = self.clock(now);
        let held = self.election.held_shards().into_iter();
        let closing: Vec<u32> = held.filter(|(_, lease)| lease.is_closing).map(|(shard, _)| shard).collect();
        closing.into_iter().for_each(|shard| self.election.shard_closed(shard));
        for request in self.election.requests(clock) {
            let back = (!is_lost()).then(&mut delay);
            let message = Message::Request(request, clock, back);
            self.send(now + delay(), message);
        }
    }

    /// Sends the events of the replica's watch, unless the watch is silent.
    fn watch(&mut self, server: &Server, now: u64) {
        if self.watch_silent > now || self.dead || self.watched_version == server.version {
            return;
        }
        self.watched_version = server.version;
        let names: Vec<LeaseName> = self.watched.keys().chain(server.leases.keys()).cloned().collect();
        for name in names {
            let stored = server.leases.get(&name);
            if self.watched.get(&name) != stored {
                match stored {
                    Some(record) => drop(self.watched.insert(name.clone(), record.clone())),
                    None => drop(self.watched.remove(&name)),
                }
                self.send(now, Message::Event(name, stored.cloned()));
            }
        }
    }

    fn arrive(
        &mut self,
        server: &mut Server,
        now: u64,
        request: &LeaseRequest,
        sent: Duration,
        back: Option<u64>,
    ) {
        // A replica stops waiting for an answer long before its term ends.
        let at = now + back.unwrap_or(3000);
        let name = match request {
            LeaseRequest::List => {
                let all = back.map(|_| server.all());
                return self.send(at, Message::List(all, sent));
            }
            LeaseRequest::Write(name, _) | LeaseRequest::Delete(name, _) => name.clone(),
        };
        let outcome = server.handle(request);
        let answer = if back.is_some() { outcome } else { LeaseOutcome::Unknown };
        self.send(at, Message::Answer(name, sent, answer));
    }

    fn read(&mut self, now: u64, message: Message) {
        let clock = self.clock(now);
        match message {
            Message::Answer(name, sent, outcome) => self.election.request_ended(&name, sent, outcome, clock),
            Message::List(all, sent) => self.election.list_ended(all, sent, clock),
            Message::Event(name, Some(record)) => self.election.observe(name, record, clock),
            Message::Event(name, None) => self.election.observe_deleted(&name, clock),
            Message::Request(..) => {}
        }
    }
}
