//! An API server and replicas, in a time that the test owns.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_controller::shard::Pace;
use sluice_controller::shard::claim::{Claim, Name};
use sluice_controller::shard::roster::{Outcome, Roster, Step};

pub const PACE: Pace = Pace {
    lease_duration: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry_period: Duration::from_secs(2),
};

/// The Leases as they stand.
#[derive(Default)]
pub struct Server {
    pub leases: BTreeMap<Name, Claim>,
    /// Of the last change.
    pub version: u64,
}

impl Server {
    pub fn all(&self) -> Vec<(Name, Claim)> {
        self.leases.iter().map(|(name, claim)| (name.clone(), claim.clone())).collect()
    }

    /// Does what an API server does: all of it or nothing, and only to the version that was named.
    pub fn take(&mut self, step: &Step) -> Outcome {
        let (name, version) = match step {
            Step::Write(name, claim) => (name, &claim.version),
            Step::Remove(name, version) => (name, version),
            Step::Survey => panic!("not a write"),
        };
        let stands = self.leases.get(name);
        if stands.map_or("", |claim| claim.version.as_str()) != version {
            return Outcome::Otherwise(stands.cloned());
        }
        self.version += 1;
        match step {
            Step::Write(name, claim) => {
                let claim = Claim { version: self.version.to_string(), ..claim.clone() };
                self.leases.insert(name.clone(), claim.clone());
                Outcome::Stands(claim)
            }
            _ => {
                self.leases.remove(name);
                Outcome::Otherwise(None)
            }
        }
    }

    /// Who holds each of the shards.
    pub fn holders(&self, shards: u32) -> Vec<Option<String>> {
        (0..shards).map(|n| self.leases.get(&Name::Shard(n)).and_then(|c| c.holder.clone())).collect()
    }
}

/// On its way between a replica and the server.
enum Message {
    /// To the server, to be answered after so many milliseconds or never.
    Asked(Step, Duration, Option<u64>),
    /// To the replica.
    Answered(Name, Duration, Outcome),
    Surveyed(Option<Vec<(Name, Claim)>>, Duration),
    Heard(Name, Option<Claim>),
}

/// A replica with its own clock and its own way to the server.
pub struct Replica {
    pub name: String,
    pub shards: u32,
    pub roster: Roster,
    /// Its clock, in thousandths of the true one's pace, and what it showed at the beginning.
    rate: u64,
    offset: u64,
    mail: Vec<(u64, usize, Message)>,
    sent: usize,
    heard: BTreeMap<Name, Claim>,
    heard_version: u64,
    /// Until when it is stopped, and until when its watch tells nothing.
    pub stopped: u64,
    pub deaf: u64,
    pub dead: bool,
}

impl Replica {
    pub fn new(name: &str, shards: u32, rate: u64, offset: u64) -> Self {
        let mut roster = Roster::new(name, shards, PACE);
        roster.listed(Vec::new(), Duration::from_millis(offset));
        Replica {
            name: name.into(),
            shards,
            roster,
            rate,
            offset,
            mail: Vec::new(),
            sent: 0,
            heard: BTreeMap::new(),
            heard_version: 0,
            stopped: 0,
            deaf: 0,
            dead: false,
        }
    }

    pub fn clock(&self, now: u64) -> Duration {
        Duration::from_micros((self.offset + now) * 1000 + now * self.rate - now * 1000)
    }

    /// The shards that it would act for at this very moment, whatever it has got to know.
    pub fn acts(&self, now: u64) -> Vec<u32> {
        if self.dead {
            return Vec::new();
        }
        let clock = self.clock(now);
        self.roster.held().into_iter().filter(|(_, t)| t.until > clock).map(|(n, _)| n).collect()
    }

    fn send(&mut self, at: u64, message: Message) {
        self.sent += 1;
        self.mail.push((at, self.sent, message));
    }

    /// Lets a moment pass. `delay` says how long the next message takes, `lost` whether an answer is.
    pub fn turn(
        &mut self,
        server: &mut Server,
        now: u64,
        mut delay: impl FnMut() -> u64,
        mut lost: impl FnMut() -> bool,
    ) {
        self.watch(server, now);
        // What was sent arrives, whatever has become of the sender.
        let (due, later) = std::mem::take(&mut self.mail).into_iter().partition(|(at, _, _)| *at <= now);
        self.mail = later;
        let mut due: Vec<_> = due;
        due.sort_by_key(|(at, sent, _)| (*at, *sent));
        for (at, sent, message) in due {
            match message {
                Message::Asked(step, asked, back) => self.arrives(server, now, &step, asked, back),
                // A process that is stopped finds its mail when it goes on.
                message if self.stopped > now => self.mail.push((at.max(self.stopped), sent, message)),
                message if !self.dead => self.reads(now, message),
                _ => {}
            }
        }
        if self.dead || self.stopped > now {
            return;
        }
        let clock = self.clock(now);
        let closing: Vec<u32> =
            self.roster.held().into_iter().filter(|(_, t)| t.closing).map(|(n, _)| n).collect();
        closing.into_iter().for_each(|shard| self.roster.closed(shard));
        for step in self.roster.steps(clock) {
            let back = (!lost()).then(&mut delay);
            let message = Message::Asked(step, clock, back);
            self.send(now + delay(), message);
        }
    }

    /// Tells it what has changed, in order, unless its watch lags behind.
    fn watch(&mut self, server: &Server, now: u64) {
        if self.deaf > now || self.dead || self.heard_version == server.version {
            return;
        }
        self.heard_version = server.version;
        let names: Vec<Name> = self.heard.keys().chain(server.leases.keys()).cloned().collect();
        for name in names {
            let stands = server.leases.get(&name);
            if self.heard.get(&name) != stands {
                match stands {
                    Some(claim) => drop(self.heard.insert(name.clone(), claim.clone())),
                    None => drop(self.heard.remove(&name)),
                }
                self.send(now, Message::Heard(name, stands.cloned()));
            }
        }
    }

    fn arrives(&mut self, server: &mut Server, now: u64, step: &Step, asked: Duration, back: Option<u64>) {
        // It gives up waiting long before its right to act ends.
        let at = now + back.unwrap_or(3000);
        let name = match step {
            Step::Survey => {
                let all = back.map(|_| server.all());
                return self.send(at, Message::Surveyed(all, asked));
            }
            Step::Write(name, _) | Step::Remove(name, _) => name.clone(),
        };
        let outcome = server.take(step);
        let told = if back.is_some() { outcome } else { Outcome::Failed };
        self.send(at, Message::Answered(name, asked, told));
    }

    fn reads(&mut self, now: u64, message: Message) {
        let clock = self.clock(now);
        match message {
            Message::Answered(name, asked, outcome) => self.roster.ended(&name, asked, outcome, clock),
            Message::Surveyed(all, asked) => self.roster.surveyed(all, asked, clock),
            Message::Heard(name, Some(claim)) => self.roster.seen(name, claim, clock),
            Message::Heard(name, None) => self.roster.gone(&name, clock),
            Message::Asked(..) => {}
        }
    }
}
