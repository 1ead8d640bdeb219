//! Decides which Leases this replica takes, renews and hands back. Pure: the inputs are Leases and the time, the
//! outputs are requests to the API server.
//!
//! Only the clock of this machine counts. A Lease has expired if this replica has not seen it change for the Lease's
//! duration. The request that takes the Lease names the expired version. If the API server stores another version, it
//! rejects the request. So neither a wrong clock of another machine nor a watch that lags behind leads to two holders.
//! A holder's term is counted from the moment at which it sent its last successful renewal, and ends before other
//! replicas may take the Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lease::{LeaseName, LeaseRecord};
use super::lease_timing::LeaseTiming;

/// A time on this machine's own clock.
pub type Moment = Duration;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Replace the version that this record names, or create the Lease if the record names none. The caller reports the
    /// outcome to [`Election::request_ended`].
    Write(LeaseName, LeaseRecord),
    /// Delete the Lease if it is still at this version. The caller reports the outcome to [`Election::request_ended`].
    Delete(LeaseName, String),
    /// List all Leases. The caller reports the outcome to [`Election::list_ended`].
    List,
}

/// How a write or a deletion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// This record is stored now.
    Stored(LeaseRecord),
    /// Nothing was done, since another record is stored.
    Conflict(LeaseRecord),
    /// The Lease does not exist: it was deleted, now or before.
    Absent,
    /// It is not known whether the API server carried out the request.
    Unknown,
}

/// A shard whose Lease this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLease {
    /// Until when this replica may act.
    pub until: Moment,
    /// Whether the shard is handed back as soon as nothing is in flight for it.
    pub is_closing: bool,
}

/// A Lease that this replica does not hold.
#[derive(Clone, Debug)]
struct ObservedLease {
    record: LeaseRecord,
    /// When this replica first saw this record.
    since: Moment,
}

/// A Lease that this replica holds.
#[derive(Clone, Debug)]
struct HeldLease {
    record: LeaseRecord,
    /// When the last successful renewal was sent.
    renewed: Moment,
    is_closing: bool,
    /// Whether the shard is closed: nothing is in flight for it, and nothing more is started.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    /// This replica takes no part.
    Absent,
    /// This replica has its own Lease, and has not listed the other Leases since it got that Lease.
    Joining,
    /// This replica takes part.
    Member,
    /// This replica hands back everything, and ends.
    Leaving,
}

/// The election as one replica sees it.
#[derive(Debug)]
pub struct Election {
    base_identity: String,
    /// How many identities this process has had, with the current one.
    incarnation: u32,
    shards: u32,
    timing: LeaseTiming,
    membership: Membership,
    /// When this replica last became a member, or last stopped being one.
    member_changed: Moment,
    has_listed: bool,
    held: BTreeMap<LeaseName, HeldLease>,
    others: BTreeMap<LeaseName, ObservedLease>,
    /// The Leases with a write or a deletion in flight.
    in_flight: BTreeSet<LeaseName>,
    is_listing: bool,
    /// When the last request for a Lease was sent, if it failed.
    failed: BTreeMap<LeaseName, Moment>,
    /// Replicas that did not take a free shard when it was their turn, and have not written a Lease since. Such a
    /// replica may have died although its Lease has not expired. This replica does not wait for it again.
    unresponsive: BTreeSet<String>,
}

impl Election {
    /// Returns the election of a replica that has not observed any Lease yet. No other process may ever have the same
    /// `base_identity`.
    pub fn new(base_identity: impl Into<String>, shards: u32, timing: LeaseTiming) -> Self {
        Self {
            base_identity: base_identity.into(),
            incarnation: 1,
            shards: shards.max(1),
            timing,
            membership: Membership::Absent,
            member_changed: Moment::ZERO,
            has_listed: false,
            held: BTreeMap::new(),
            others: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            is_listing: false,
            failed: BTreeMap::new(),
            unresponsive: BTreeSet::new(),
        }
    }

    /// The identity under which this replica takes part. A replica that lost its own Lease takes part again under
    /// another identity, because it no longer holds the shards of the earlier identity.
    pub fn identity(&self) -> String {
        match self.incarnation {
            1 => self.base_identity.clone(),
            n => format!("{}-{n}", self.base_identity),
        }
    }

    fn own_name(&self) -> LeaseName {
        LeaseName::Replica(self.identity())
    }

    /// The shards that this replica holds.
    pub fn held_shards(&self) -> BTreeMap<u32, ShardLease> {
        let Some(own) = self.held.get(&self.own_name()) else { return BTreeMap::new() };
        let shard = |(name, lease): (&LeaseName, &HeldLease)| match name {
            LeaseName::Shard(number) if !lease.is_closed => {
                let until = lease.renewed.min(own.renewed) + self.timing.renew_deadline;
                Some((*number, ShardLease { until, is_closing: lease.is_closing }))
            }
            _ => None,
        };
        self.held.iter().filter_map(shard).collect()
    }

    /// Whether this replica takes part.
    pub fn is_member(&self) -> bool {
        self.membership == Membership::Member
    }

    /// Whether this replica has handed back everything after [`Election::leave`].
    pub fn has_left(&self) -> bool {
        self.membership == Membership::Leaving && self.held.is_empty() && self.in_flight.is_empty()
    }

    /// Returns the identity of a replica that splits pipelines over another number of shards than this one, and that
    /// number. As long as such a replica takes part, this one does not.
    pub fn incompatible_replica(&self, now: Moment) -> Option<(&str, u32)> {
        self.incompatible(now).map(|(identity, lease)| (identity, lease.record.shards.unwrap_or_default()))
    }

    /// The identity of the holder of a shard, as far as is known.
    pub fn holder(&self, shard: u32) -> Option<&str> {
        let name = LeaseName::Shard(shard);
        let record = self.held.get(&name).map(|lease| &lease.record);
        record.or_else(|| self.others.get(&name).map(|lease| &lease.record))?.holder.as_deref()
    }

    /// How many replicas take part.
    pub fn replica_count(&self, now: Moment) -> usize {
        self.members(now).len()
    }

    /// Handles a Lease that was read. Ignores a Lease that this replica holds, because the answers to the replica's own
    /// requests report its state.
    pub fn observe(&mut self, name: LeaseName, record: LeaseRecord, now: Moment) {
        if self.held.contains_key(&name) {
            return;
        }
        // A finalizer may keep the Lease of a replica for ever, so a Lease that is being deleted counts as deleted.
        if record.is_terminating && matches!(name, LeaseName::Replica(_)) {
            return self.observe_deleted(&name, now);
        }
        if self.others.get(&name).is_some_and(|known| known.record.version == record.version) {
            return;
        }
        if let Some(holder) = &record.holder {
            self.unresponsive.remove(holder);
        }
        self.others.insert(name, ObservedLease { record, since: now });
    }

    /// Handles the deletion of a Lease.
    pub fn observe_deleted(&mut self, name: &LeaseName, now: Moment) {
        match (name, self.others.get_mut(name)) {
            // A person has deleted the Lease, and its holder may act until the holder notices that.
            (LeaseName::Shard(_), Some(lease)) if lease.record.holder.is_some() => {
                if !lease.record.version.is_empty() {
                    (lease.record.version, lease.since) = (String::new(), now);
                }
            }
            (LeaseName::Replica(identity), _) => {
                self.unresponsive.remove(identity);
                self.others.remove(name);
            }
            _ => drop(self.others.remove(name)),
        }
    }

    /// Handles a list of all Leases.
    pub fn observe_all(&mut self, all: Vec<(LeaseName, LeaseRecord)>, now: Moment) {
        let listed: BTreeSet<&LeaseName> = all.iter().map(|(name, _)| name).collect();
        let deleted: Vec<LeaseName> =
            self.others.keys().filter(|name| !listed.contains(name)).cloned().collect();
        deleted.iter().for_each(|name| self.observe_deleted(name, now));
        all.into_iter().for_each(|(name, record)| self.observe(name, record, now));
        self.has_listed = true;
    }

    /// Handles the answer to [`LeaseRequest::List`], or `None` if there was no answer.
    pub fn list_ended(&mut self, all: Option<Vec<(LeaseName, LeaseRecord)>>, sent: Moment, now: Moment) {
        self.is_listing = false;
        let Some(all) = all else {
            self.failed.insert(self.own_name(), sent);
            return;
        };
        self.observe_all(all, now);
        // A replica that joined earlier is in the list. If two incompatible replicas join at the same time, both may
        // stop taking part. Each joins again after a different pause.
        if self.membership == Membership::Joining {
            let is_compatible = self.incompatible(now).is_none();
            self.membership = if is_compatible { Membership::Member } else { Membership::Absent };
            self.member_changed = now;
        }
    }

    /// Handles the end of a write or a deletion. `sent` is the time at which the request was sent.
    pub fn request_ended(&mut self, name: &LeaseName, sent: Moment, outcome: LeaseOutcome, now: Moment) {
        self.in_flight.remove(name);
        self.failed.remove(name);
        let identity = self.identity();
        match outcome {
            LeaseOutcome::Stored(record) if record.holder.as_ref() == Some(&identity) => {
                self.note_held(name, record, sent);
            }
            // Someone has edited the Lease, or the answer to an earlier request was lost.
            LeaseOutcome::Conflict(record) if record.holder.as_ref() == Some(&identity) => {
                match self.held.get_mut(name) {
                    Some(held) => held.record = record,
                    None => self.observe(name.clone(), record, now),
                }
            }
            LeaseOutcome::Stored(record) | LeaseOutcome::Conflict(record) => {
                self.lose(name, now);
                self.observe(name.clone(), record, now);
            }
            LeaseOutcome::Absent => {
                self.lose(name, now);
                self.others.remove(name);
            }
            LeaseOutcome::Unknown => drop(self.failed.insert(name.clone(), sent)),
        }
    }

    /// Notes that this replica holds a Lease, after a request that was sent at the time `sent`.
    fn note_held(&mut self, name: &LeaseName, record: LeaseRecord, sent: Moment) {
        self.others.remove(name);
        let before = self.held.get(name);
        let is_closing =
            self.membership == Membership::Leaving || before.is_some_and(|before| before.is_closing);
        let is_closed = before.is_some_and(|before| before.is_closed);
        self.held.insert(name.clone(), HeldLease { record, renewed: sent, is_closing, is_closed });
        if self.membership == Membership::Absent && *name == self.own_name() {
            self.membership = Membership::Joining;
        }
    }

    /// Notes that nothing is in flight for a shard, and that nothing more is started.
    pub fn shard_closed(&mut self, shard: u32) {
        if let Some(lease) = self.held.get_mut(&LeaseName::Shard(shard)) {
            (lease.is_closing, lease.is_closed) = (true, true);
        }
    }

    /// Begins to hand back everything.
    pub fn leave(&mut self) {
        self.membership = Membership::Leaving;
        self.held.values_mut().for_each(|lease| lease.is_closing = true);
    }

    /// Notes that this replica does not hold a Lease any more. A replica that loses the Lease of its identity loses all
    /// its shards.
    fn lose(&mut self, name: &LeaseName, now: Moment) {
        let is_own_name = *name == self.own_name();
        if let Some(lease) = self.held.remove(name) {
            self.others.insert(name.clone(), ObservedLease { record: lease.record, since: now });
        }
        if is_own_name {
            let shards: Vec<LeaseName> = self.held.keys().cloned().collect();
            shards.iter().for_each(|shard| self.lose(shard, now));
            self.incarnation += 1;
            self.is_listing = false;
            if self.membership != Membership::Leaving {
                (self.membership, self.member_changed) = (Membership::Absent, now);
            }
        }
    }

    /// Returns the requests to send now. The requests count as in flight until their outcomes are reported.
    pub fn requests(&mut self, now: Moment) -> Vec<LeaseRequest> {
        self.give_up_expired(now);
        if !self.has_listed {
            return Vec::new();
        }
        let mut requests = match self.membership {
            Membership::Absent => self.join(now),
            Membership::Joining => self.list(now),
            Membership::Member => {
                self.balance(now);
                self.take_free_shards(now)
            }
            Membership::Leaving => Vec::new(),
        };
        requests.extend(self.renew_and_hand_back(now));
        requests.extend(self.delete_expired_replicas(now));
        for request in &requests {
            match request {
                LeaseRequest::Write(name, _) | LeaseRequest::Delete(name, _) => {
                    self.in_flight.insert(name.clone());
                }
                LeaseRequest::List => self.is_listing = true,
            }
        }
        requests
    }

    /// When [`Election::requests`] may return requests again, if nothing else happens before.
    pub fn next_requests_at(&self, now: Moment) -> Option<Moment> {
        let held = self.held.values().flat_map(|lease| {
            [lease.renewed + self.timing.retry_period, lease.renewed + self.timing.renew_deadline]
        });
        let others = self.others.values().flat_map(|lease| {
            let duration = self.timing.accepted_duration(lease.record.duration);
            [lease.since + duration, lease.since + 2 * duration]
        });
        let retries = self.failed.values().map(|sent| *sent + self.timing.retry_period);
        let rejoin = [self.member_changed + self.rejoin_pause()];
        let free = (0..self.shards).filter_map(|number| self.free_since(&LeaseName::Shard(number), now));
        let ranks = 1..=self.members(now).len();
        let takes = free.flat_map(|since| ranks.clone().map(move |rank| since + self.take_delay(rank)));
        held.chain(others).chain(retries).chain(rejoin).chain(takes).filter(|at| *at > now).min()
    }

    /// Gives up Leases that were not renewed in time.
    fn give_up_expired(&mut self, now: Moment) {
        let deadline = self.timing.renew_deadline;
        let expired = self.held.iter().filter(|(_, lease)| lease.renewed + deadline <= now);
        let expired: Vec<LeaseName> = expired.map(|(name, _)| name.clone()).collect();
        expired.iter().for_each(|name| self.lose(name, now));
    }

    /// Whether a request for a Lease may be sent: none is in flight, and none has just failed.
    fn may_send(&self, name: &LeaseName, now: Moment) -> bool {
        let is_due = self.failed.get(name).is_none_or(|sent| *sent + self.timing.retry_period <= now);
        is_due && !self.in_flight.contains(name)
    }

    /// Creates the Lease of this replica, unless an incompatible replica has one.
    fn join(&self, now: Moment) -> Vec<LeaseRequest> {
        let name = self.own_name();
        // A replica that stopped taking part because of an incompatible one deletes its own Lease before it joins
        // again.
        if let Some(own) = self.held.get(&name) {
            let may_send = self.may_send(&name, now);
            return may_send
                .then(|| LeaseRequest::Delete(name, own.record.version.clone()))
                .into_iter()
                .collect();
        }
        let is_pausing =
            self.member_changed > Moment::ZERO && now < self.member_changed + self.rejoin_pause();
        if is_pausing || self.incompatible(now).is_some() || !self.may_send(&name, now) {
            return Vec::new();
        }
        let record = self.own_record(self.others.get(&name), Some(self.shards));
        vec![LeaseRequest::Write(name, record)]
    }

    fn list(&self, now: Moment) -> Vec<LeaseRequest> {
        let is_due = !self.is_listing && self.may_send(&self.own_name(), now);
        is_due.then_some(LeaseRequest::List).into_iter().collect()
    }

    /// Marks a shard to be handed back if this replica has the most shards, and at least two more than the replica with
    /// the fewest. If several replicas have the most shards, only the first by identity hands one back.
    fn balance(&mut self, now: Moment) {
        if self.held.values().any(|lease| lease.is_closing) {
            return;
        }
        let counts = self.shard_counts(now);
        let (Some(fewest), Some(most)) = (counts.values().min(), counts.values().max()) else { return };
        let first = counts.iter().find(|(_, count)| *count == most).map(|(identity, _)| identity);
        let is_shard = |(name, _): &(&LeaseName, &mut HeldLease)| matches!(name, LeaseName::Shard(_));
        if *most >= fewest + 2
            && first == Some(&self.identity())
            && let Some((_, lease)) = self.held.iter_mut().rev().find(is_shard)
        {
            lease.is_closing = true;
        }
    }

    /// Takes free shards if it is this replica's turn. A free shard is for the replica with the fewest shards. If that
    /// replica does not take the shard in time, the shard is for the next replica, because the first one may have died.
    fn take_free_shards(&mut self, now: Moment) -> Vec<LeaseRequest> {
        let mut counts = self.shard_counts(now);
        let mut requests = Vec::new();
        for number in 0..self.shards {
            let name = LeaseName::Shard(number);
            let Some(free_since) = self.free_since(&name, now) else { continue };
            let mut order: Vec<(usize, &String)> = counts.iter().map(|(id, count)| (*count, id)).collect();
            order.sort_unstable();
            let identity = self.identity();
            let Some(rank) = order.iter().position(|(_, id)| **id == identity) else { return requests };
            let first = order[0].1.clone();
            if free_since + self.take_delay(rank) <= now && self.may_send(&name, now) {
                let record = self.own_record(self.others.get(&name), None);
                requests.push(LeaseRequest::Write(name.clone(), record));
                self.unresponsive.extend(order[..rank].iter().map(|(_, id)| (*id).clone()));
            }
            *counts.entry(first).or_default() += 1;
        }
        requests
    }

    /// Renews the Leases that this replica holds, and hands back those that are closed.
    fn renew_and_hand_back(&self, now: Moment) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        let holds_shards = self.held.keys().any(|name| matches!(name, LeaseName::Shard(_)));
        for (name, lease) in self.held.iter().filter(|(name, _)| self.may_send(name, now)) {
            let is_due = lease.renewed + self.timing.retry_period <= now;
            match name {
                LeaseName::Replica(_) if self.membership == Membership::Absent => {}
                // This is the last request: once this Lease is deleted, an incompatible replica may begin.
                LeaseName::Replica(_) if self.membership == Membership::Leaving && !holds_shards => {
                    requests.push(LeaseRequest::Delete(name.clone(), lease.record.version.clone()));
                }
                LeaseName::Shard(_) if lease.is_closed => {
                    let released = LeaseRecord { holder: None, ..lease.record.clone() };
                    requests.push(LeaseRequest::Write(name.clone(), released));
                }
                _ if is_due => requests.push(LeaseRequest::Write(name.clone(), lease.record.clone())),
                _ => {}
            }
        }
        requests
    }

    /// Deletes the Leases of replicas that have ended. The Lease of an incompatible replica is deleted as soon as it
    /// has expired, because this replica waits for the deletion. Any other Lease is deleted after twice its duration.
    fn delete_expired_replicas(&self, now: Moment) -> Vec<LeaseRequest> {
        let mut requests = Vec::new();
        for (name, lease) in self.other_replicas() {
            let durations = if self.is_incompatible(&lease.record) { 1 } else { 2 };
            let is_expired =
                lease.since + durations * self.timing.accepted_duration(lease.record.duration) <= now;
            if is_expired && self.may_send(name, now) && self.membership != Membership::Leaving {
                requests.push(LeaseRequest::Delete(name.clone(), lease.record.version.clone()));
            }
        }
        requests
    }

    /// The record with which this replica takes a Lease, or creates it if there is none.
    fn own_record(&self, before: Option<&ObservedLease>, shards: Option<u32>) -> LeaseRecord {
        let before = before.map(|lease| &lease.record);
        let holder = Some(self.identity());
        let is_same = before.is_none_or(|record| record.holder == holder);
        let transitions = before.map_or(0, |record| record.transitions);
        // Only people read the count. Anyone who may write Leases can set it to any value, so after the highest number
        // it starts at 0 again.
        let transitions = transitions.checked_add(i32::from(!is_same)).unwrap_or(0);
        LeaseRecord {
            holder,
            duration: self.timing.lease_duration,
            transitions,
            shards,
            version: before.map(|record| record.version.clone()).unwrap_or_default(),
            is_terminating: false,
        }
    }

    /// Returns since when a shard has been free, or `None` if the shard is not free.
    fn free_since(&self, name: &LeaseName, now: Moment) -> Option<Moment> {
        if self.held.contains_key(name) {
            return None;
        }
        let Some(ObservedLease { record, since }) = self.others.get(name) else {
            return Some(self.member_changed);
        };
        match &record.holder {
            None => Some(*since),
            // This replica took the shard, and the answer was lost.
            Some(holder) if *holder == self.identity() => Some(*since),
            Some(_) => {
                Some(*since + self.timing.accepted_duration(record.duration)).filter(|end| *end <= now)
            }
        }
    }

    /// The Leases of the other replicas.
    fn other_replicas(&self) -> impl Iterator<Item = (&LeaseName, &ObservedLease)> {
        let own = self.own_name();
        self.others.iter().filter(move |(name, _)| matches!(name, LeaseName::Replica(_)) && **name != own)
    }

    /// Whether a replica splits pipelines over another number of shards than this one.
    fn is_incompatible(&self, record: &LeaseRecord) -> bool {
        record.shards != Some(self.shards)
    }

    /// Returns a replica with another number of shards that may still act, because its Lease has not expired.
    fn incompatible(&self, now: Moment) -> Option<(&str, &ObservedLease)> {
        let may_act = |lease: &ObservedLease| {
            self.is_incompatible(&lease.record)
                && now < lease.since + self.timing.accepted_duration(lease.record.duration)
        };
        self.other_replicas().find_map(|(name, lease)| match name {
            LeaseName::Replica(identity) if may_act(lease) => Some((identity.as_str(), lease)),
            _ => None,
        })
    }

    /// The identities of the replicas that take part, as far as is known.
    fn members(&self, now: Moment) -> BTreeSet<String> {
        let member = |(name, lease): (&LeaseName, &ObservedLease)| match name {
            LeaseName::Replica(identity)
                if !self.is_incompatible(&lease.record)
                    && now < lease.since + self.timing.accepted_duration(lease.record.duration) =>
            {
                Some(identity.clone())
            }
            _ => None,
        };
        let own = self.held.contains_key(&self.own_name()).then(|| self.identity());
        self.other_replicas().filter_map(member).chain(own).collect()
    }

    /// How many shards each replica holds, without the unresponsive replicas.
    fn shard_counts(&self, now: Moment) -> BTreeMap<String, usize> {
        let members = self.members(now).into_iter().filter(|m| !self.unresponsive.contains(m));
        let mut counts: BTreeMap<String, usize> = members.map(|m| (m, 0)).collect();
        for number in 0..self.shards {
            let name = LeaseName::Shard(number);
            let held = self.held.get(&name).filter(|lease| !lease.is_closing).map(|lease| &lease.record);
            let other = || self.others.get(&name).map(|lease| &lease.record);
            let is_free = self.free_since(&name, now).is_some();
            let record = held.or_else(other).filter(|_| !is_free);
            if let Some(count) = record.and_then(|r| r.holder.as_ref()).and_then(|h| counts.get_mut(h)) {
                *count += 1;
            }
        }
        counts
    }

    /// Returns how long this replica waits before it takes a free shard, so that the `rank` replicas whose turn comes
    /// first can take it. A replica that takes a shard too early has too many shards, and hands one back.
    fn take_delay(&self, rank: usize) -> Duration {
        self.timing.retry_period / 8 * u32::try_from(rank).unwrap_or(u32::MAX)
    }

    /// How long a replica that stopped being a member waits before it joins again. The pause is computed from the
    /// identity, so it differs between replicas.
    fn rejoin_pause(&self) -> Duration {
        let hash =
            self.identity().bytes().fold(7_u32, |n, byte| n.wrapping_mul(31).wrapping_add(u32::from(byte)));
        self.timing.retry_period / 4 + self.timing.retry_period.mul_f64(f64::from(hash % 1000) / 1000.0)
    }
}
