//! What one replica holds and what it does about it: a fold over what it sees of the Leases, and
//! over how its own writes ended. Pure: the time comes in, steps come out.
//!
//! Time is that of this machine alone. Whether a Lease has run out is judged by how long it has not
//! changed before these eyes, and whoever takes it does so on the condition that it has not changed
//! until then: so neither another's clock nor a watch that lags behind can make two holders. A holder
//! counts from before it asked, and stops earlier than others may begin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::claim::{Claim, Name};
use super::lease_timing::Pace;

/// A moment on this machine's own clock.
pub type Moment = Duration;

/// What is to be done at the API server. How it ended is told to [`Roster::ended`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put this claim in place of the version that it names, or make the Lease where it names none.
    Write(Name, Claim),
    /// Remove a Lease, if it is still at this version.
    Remove(Name, String),
    /// Read all Leases, as they are now or later: told to [`Roster::surveyed`].
    Survey,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So it stands now.
    Stands(Claim),
    /// Nothing was done: it is otherwise by now, or not there. Or it was removed.
    Otherwise(Option<Claim>),
    /// It is not known whether anything was done.
    Failed,
}

/// A shard that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Until when its holder may act.
    pub until: Moment,
    /// It is to be handed back as soon as nothing is under way for it.
    pub closing: bool,
}

/// A Lease of somebody else, or of nobody.
#[derive(Clone, Debug)]
struct Seen {
    claim: Claim,
    /// When it was first seen so.
    since: Moment,
}

/// A Lease that this replica has.
#[derive(Clone, Debug)]
struct Own {
    claim: Claim,
    /// When the last renewal that stands was asked for.
    renewed: Moment,
    closing: bool,
    /// Nothing is done under it any more.
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It takes no part.
    Out,
    /// It has said that it is there, and has not looked since who else is.
    New,
    /// It takes part.
    Member,
    /// It is on its way out.
    Leaving,
}

/// Replicas of one installation differ in their durations by this factor at most. A Lease with a longer duration was
/// written by someone else, and would stop all replicas for as long.
const MAX_DURATION_FACTOR: u32 = 20;

/// One replica's view.
#[derive(Debug)]
pub struct Roster {
    base: String,
    lives: u32,
    shards: u32,
    pace: Pace,
    stage: Stage,
    listed: bool,
    leases: BTreeMap<Name, Seen>,
    own: BTreeMap<Name, Own>,
    /// What is being written or removed.
    writing: BTreeSet<Name>,
    surveying: bool,
    /// When something that failed was tried last.
    tried: BTreeMap<Name, Moment>,
    /// Who has let a shard go by that fell to it, and has not been heard of since: it may be dead, with a Lease
    /// that has not run out. What it does not take it is not offered again.
    silent: BTreeSet<String>,
    /// When it last became a member, or was sent away.
    turned: Moment,
}

impl Roster {
    /// One that has seen nothing yet. `base` is this process' own, and no other's ever.
    pub fn new(base: impl Into<String>, shards: u32, pace: Pace) -> Self {
        Self {
            base: base.into(),
            lives: 1,
            shards: shards.max(1),
            pace,
            stage: Stage::Out,
            listed: false,
            leases: BTreeMap::new(),
            own: BTreeMap::new(),
            writing: BTreeSet::new(),
            surveying: false,
            tried: BTreeMap::new(),
            silent: BTreeSet::new(),
            turned: Moment::ZERO,
        }
    }

    /// As whom it takes part. One that was taken for gone comes back as somebody else: what it was
    /// promised before counts no more.
    pub fn me(&self) -> String {
        match self.lives {
            1 => self.base.clone(),
            n => format!("{}-{n}", self.base),
        }
    }

    fn own_name(&self) -> Name {
        Name::Replica(self.me())
    }

    /// The shards that it holds.
    pub fn held(&self) -> BTreeMap<u32, Tenure> {
        let Some(there) = self.own.get(&self.own_name()) else { return BTreeMap::new() };
        let held = |(name, own): (&Name, &Own)| match name {
            Name::Shard(number) if !own.closed => {
                let until = own.renewed.min(there.renewed) + self.pace.renew_deadline;
                Some((*number, Tenure { until, closing: own.closing }))
            }
            _ => None,
        };
        self.own.iter().filter_map(held).collect()
    }

    /// Whether it takes part.
    pub fn is_member(&self) -> bool {
        self.stage == Stage::Member
    }

    /// Whether it has left, with nothing more to be done.
    pub fn has_left(&self) -> bool {
        self.stage == Stage::Leaving && self.own.is_empty() && self.writing.is_empty()
    }

    /// A replica that splits pipelines in another way, and over how many shards: as long as it is
    /// there, this one stands by.
    pub fn stands_by_for(&self) -> Option<(&str, u32)> {
        self.foreign().map(|(identity, seen)| (identity, seen.claim.shards.unwrap_or_default()))
    }

    /// Who holds a shard, as far as is known.
    pub fn holder(&self, shard: u32) -> Option<&str> {
        let name = Name::Shard(shard);
        let claim = self.own.get(&name).map(|own| &own.claim);
        claim.or_else(|| self.leases.get(&name).map(|seen| &seen.claim))?.holder.as_deref()
    }

    /// How many replicas are there.
    pub fn replicas(&self, now: Moment) -> usize {
        self.members(now).len()
    }

    /// A Lease was seen. Its own are not looked at: how it wrote them tells more.
    pub fn seen(&mut self, name: Name, claim: Claim, now: Moment) {
        if self.own.contains_key(&name) {
            return;
        }
        if self.leases.get(&name).is_some_and(|seen| seen.claim.version == claim.version) {
            return;
        }
        if let Some(holder) = &claim.holder {
            self.silent.remove(holder);
        }
        self.leases.insert(name, Seen { claim, since: now });
    }

    /// A Lease is gone.
    pub fn gone(&mut self, name: &Name, now: Moment) {
        match (name, self.leases.get_mut(name)) {
            // Somebody has removed it by hand, and its holder may not know yet.
            (Name::Shard(_), Some(seen)) if seen.claim.holder.is_some() => {
                if !seen.claim.version.is_empty() {
                    (seen.claim.version, seen.since) = (String::new(), now);
                }
            }
            (Name::Replica(identity), _) => {
                self.silent.remove(identity);
                self.leases.remove(name);
            }
            _ => drop(self.leases.remove(name)),
        }
    }

    /// These are all.
    pub fn listed(&mut self, all: Vec<(Name, Claim)>, now: Moment) {
        let there: BTreeSet<&Name> = all.iter().map(|(name, _)| name).collect();
        let gone: Vec<Name> = self.leases.keys().filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.gone(name, now));
        all.into_iter().for_each(|(name, claim)| self.seen(name, claim, now));
        self.listed = true;
    }

    /// The answer to [`Step::Survey`]; nothing where there was none.
    pub fn surveyed(&mut self, all: Option<Vec<(Name, Claim)>>, asked: Moment, now: Moment) {
        self.surveying = false;
        let name = self.own_name();
        let Some(all) = all else {
            self.tried.insert(name, asked);
            return;
        };
        self.listed(all, now);
        // Whoever came before it was there to be seen. Of two that came at the same time and want it
        // otherwise both may turn back; they do not come again at the same time.
        if self.stage == Stage::New && self.foreign().is_none() {
            (self.stage, self.turned) = (Stage::Member, now);
        } else if self.stage == Stage::New {
            (self.stage, self.turned) = (Stage::Out, now);
        }
    }

    /// How a write or a removal ended that was asked for at a moment.
    pub fn ended(&mut self, name: &Name, asked: Moment, outcome: Outcome, now: Moment) {
        self.writing.remove(name);
        self.tried.remove(name);
        let me = self.me();
        match outcome {
            Outcome::Stands(claim) if claim.holder.as_ref() == Some(&me) => {
                self.leases.remove(name);
                let (closing, closed) =
                    self.own.get(name).map_or((false, false), |own| (own.closing, own.closed));
                let closing = closing || self.stage == Stage::Leaving;
                self.own.insert(name.clone(), Own { claim, renewed: asked, closing, closed });
                if self.stage == Stage::Out && *name == self.own_name() {
                    self.stage = Stage::New;
                }
            }
            // Somebody has written something else into it, or an answer was lost on the way.
            Outcome::Otherwise(Some(claim)) if claim.holder.as_ref() == Some(&me) => {
                match self.own.get_mut(name) {
                    Some(own) => own.claim = claim,
                    None => self.seen(name.clone(), claim, now),
                }
            }
            Outcome::Stands(claim) | Outcome::Otherwise(Some(claim)) => {
                self.lose(name, now);
                self.seen(name.clone(), claim, now);
            }
            Outcome::Otherwise(None) => {
                self.lose(name, now);
                self.leases.remove(name);
            }
            Outcome::Failed => drop(self.tried.insert(name.clone(), asked)),
        }
    }

    /// Nothing is done for a shard any more, and nothing will be.
    pub fn closed(&mut self, shard: u32) {
        if let Some(own) = self.own.get_mut(&Name::Shard(shard)) {
            (own.closing, own.closed) = (true, true);
        }
    }

    /// Hands back everything that it holds, and goes.
    pub fn leave(&mut self) {
        self.stage = Stage::Leaving;
        self.own.values_mut().for_each(|own| own.closing = true);
    }

    /// A Lease is not its own any more. Without the one that says that it is there it has none.
    fn lose(&mut self, name: &Name, now: Moment) {
        let is_me = *name == self.own_name();
        if let Some(own) = self.own.remove(name) {
            self.leases.insert(name.clone(), Seen { claim: own.claim, since: now });
        }
        if is_me {
            let shards: Vec<Name> = self.own.keys().cloned().collect();
            shards.iter().for_each(|shard| self.lose(shard, now));
            self.lives += 1;
            self.surveying = false;
            if self.stage != Stage::Leaving {
                (self.stage, self.turned) = (Stage::Out, now);
            }
        }
    }

    /// What is to be done now; each is under way until its end is told.
    pub fn steps(&mut self, now: Moment) -> Vec<Step> {
        self.lapse(now);
        if !self.listed {
            return Vec::new();
        }
        let mut steps = match self.stage {
            Stage::Out => self.join(now),
            Stage::New => self.survey(now),
            Stage::Member => {
                self.balance(now);
                self.take(now)
            }
            Stage::Leaving => Vec::new(),
        };
        steps.extend(self.renew(now));
        steps.extend(self.tidy(now));
        for step in &steps {
            match step {
                Step::Write(name, _) | Step::Remove(name, _) => drop(self.writing.insert(name.clone())),
                Step::Survey => self.surveying = true,
            }
        }
        steps
    }

    /// When there may be something to do again, if nothing happens until then.
    pub fn next(&self, now: Moment) -> Option<Moment> {
        let own = self
            .own
            .values()
            .flat_map(|own| [own.renewed + self.pace.retry_period, own.renewed + self.pace.renew_deadline]);
        let others = self.leases.values().flat_map(|seen| {
            let duration = self.duration(&seen.claim);
            [seen.since + duration, seen.since + 2 * duration]
        });
        let again = self.tried.values().map(|tried| *tried + self.pace.retry_period);
        let turned = [self.turned + self.pause()];
        let free = (0..self.shards).filter_map(|number| self.free_since(&Name::Shard(number), now));
        let places = 1..=self.members(now).len();
        let courtesy = free.flat_map(|since| places.clone().map(move |place| since + self.courtesy(place)));
        own.chain(others).chain(again).chain(turned).chain(courtesy).filter(|at| *at > now).min()
    }

    /// Gives up what it could not renew in time.
    fn lapse(&mut self, now: Moment) {
        let deadline = self.pace.renew_deadline;
        let lapsed: Vec<Name> = self
            .own
            .iter()
            .filter(|(_, own)| own.renewed + deadline <= now)
            .map(|(n, _)| n.clone())
            .collect();
        lapsed.iter().for_each(|name| self.lose(name, now));
    }

    /// Whether a Lease may be written: not while it is being written, nor right after that failed.
    fn may_try(&self, name: &Name, now: Moment) -> bool {
        let again = self.tried.get(name).is_none_or(|tried| *tried + self.pace.retry_period <= now);
        again && !self.writing.contains(name)
    }

    /// Says that it is there, unless somebody is who splits pipelines in another way.
    fn join(&self, now: Moment) -> Vec<Step> {
        let name = self.own_name();
        // Sent away, it takes back what it said before it says it anew.
        if let Some(own) = self.own.get(&name) {
            let may = self.may_try(&name, now);
            return may.then(|| Step::Remove(name, own.claim.version.clone())).into_iter().collect();
        }
        let early = self.turned > Moment::ZERO && now < self.turned + self.pause();
        if early || self.foreign().is_some() || !self.may_try(&name, now) {
            return Vec::new();
        }
        let claim = self.claim(self.leases.get(&name), Some(self.shards));
        vec![Step::Write(name, claim)]
    }

    fn survey(&self, now: Moment) -> Vec<Step> {
        let due = !self.surveying && self.may_try(&self.own_name(), now);
        due.then_some(Step::Survey).into_iter().collect()
    }

    /// Marks a shard to be handed back when it has two more than the one who has the fewest.
    fn balance(&mut self, now: Moment) {
        if self.own.values().any(|own| own.closing) {
            return;
        }
        let counts = self.counts(now);
        let (Some(least), Some(most)) = (counts.values().min(), counts.values().max()) else { return };
        let first = counts.iter().find(|(_, count)| *count == most).map(|(identity, _)| identity);
        if *most >= least + 2
            && first == Some(&self.me())
            && let Some((_, own)) = self.own.iter_mut().rev().find(|(name, _)| matches!(name, Name::Shard(_)))
        {
            own.closing = true;
        }
    }

    /// Takes the shards that nobody holds, as far as they fall to it: to the one who has the fewest, and where
    /// that one does not take it to the next. It may be dead, and not have been so for long enough to be seen.
    fn take(&mut self, now: Moment) -> Vec<Step> {
        let mut counts = self.counts(now);
        let mut steps = Vec::new();
        for number in 0..self.shards {
            let name = Name::Shard(number);
            let Some(free_since) = self.free_since(&name, now) else { continue };
            let mut order: Vec<(usize, &String)> = counts.iter().map(|(id, count)| (*count, id)).collect();
            order.sort_unstable();
            let me = self.me();
            let Some(place) = order.iter().position(|(_, id)| **id == me) else { return steps };
            let poorest = order[0].1.clone();
            if free_since + self.courtesy(place) <= now && self.may_try(&name, now) {
                steps.push(Step::Write(name.clone(), self.claim(self.leases.get(&name), None)));
                self.silent.extend(order[..place].iter().map(|(_, id)| (*id).clone()));
            }
            *counts.entry(poorest).or_default() += 1;
        }
        steps
    }

    /// Renews what it has, and hands back what is closed.
    fn renew(&self, now: Moment) -> Vec<Step> {
        let mut steps = Vec::new();
        let holds = self.own.keys().any(|name| matches!(name, Name::Shard(_)));
        for (name, own) in self.own.iter().filter(|(name, _)| self.may_try(name, now)) {
            let due = own.renewed + self.pace.retry_period <= now;
            match name {
                Name::Replica(_) if self.stage == Stage::Out => {}
                // The last thing that it does: others count on it that it holds nothing then.
                Name::Replica(_) if self.stage == Stage::Leaving && !holds => {
                    steps.push(Step::Remove(name.clone(), own.claim.version.clone()));
                }
                Name::Shard(_) if own.closed => {
                    let released = Claim { holder: None, ..own.claim.clone() };
                    steps.push(Step::Write(name.clone(), released));
                }
                _ if due => steps.push(Step::Write(name.clone(), own.claim.clone())),
                _ => {}
            }
        }
        steps
    }

    /// Removes what replicas that are no more have left: at once where it stands by for one.
    fn tidy(&self, now: Moment) -> Vec<Step> {
        let mut steps = Vec::new();
        for (name, seen) in self.others() {
            let patience = if self.is_foreign(&seen.claim) { 1 } else { 2 };
            let over = seen.since + patience * self.duration(&seen.claim) <= now;
            if over && self.may_try(name, now) && self.stage != Stage::Leaving {
                steps.push(Step::Remove(name.clone(), seen.claim.version.clone()));
            }
        }
        steps
    }

    /// The claim by which it takes or makes a Lease.
    fn claim(&self, before: Option<&Seen>, shards: Option<u32>) -> Claim {
        let before = before.map(|seen| &seen.claim);
        let me = Some(self.me());
        let same = before.is_none_or(|claim| claim.holder == me);
        Claim {
            holder: me,
            duration: self.pace.lease_duration,
            transitions: before.map_or(0, |claim| claim.transitions) + i32::from(!same),
            shards,
            version: before.map(|claim| claim.version.clone()).unwrap_or_default(),
        }
    }

    /// How long a Lease is left to its holder: as the Lease says, since its holder relies on it, up to
    /// [`MAX_DURATION_FACTOR`] times this replica's own duration.
    fn duration(&self, claim: &Claim) -> Duration {
        let own = self.pace.lease_duration;
        if claim.duration.is_zero() { own } else { claim.duration.min(own * MAX_DURATION_FACTOR) }
    }

    /// Since when a shard has been free, if it is.
    fn free_since(&self, name: &Name, now: Moment) -> Option<Moment> {
        if self.own.contains_key(name) {
            return None;
        }
        let Some(Seen { claim, since }) = self.leases.get(name) else { return Some(self.turned) };
        match &claim.holder {
            None => Some(*since),
            // An answer was lost: what it was asked for stands.
            Some(holder) if *holder == self.me() => Some(*since),
            Some(_) => Some(*since + self.duration(claim)).filter(|end| *end <= now),
        }
    }

    /// The Leases of the other replicas.
    fn others(&self) -> impl Iterator<Item = (&Name, &Seen)> {
        let me = self.own_name();
        self.leases.iter().filter(move |(name, _)| matches!(name, Name::Replica(_)) && **name != me)
    }

    fn is_foreign(&self, claim: &Claim) -> bool {
        claim.shards != Some(self.shards)
    }

    fn foreign(&self) -> Option<(&str, &Seen)> {
        self.others().find_map(|(name, seen)| match name {
            Name::Replica(identity) if self.is_foreign(&seen.claim) => Some((identity.as_str(), seen)),
            _ => None,
        })
    }

    /// Those who take part, as far as is known.
    fn members(&self, now: Moment) -> BTreeSet<String> {
        let alive = |(name, seen): (&Name, &Seen)| match name {
            Name::Replica(identity)
                if !self.is_foreign(&seen.claim) && now < seen.since + self.duration(&seen.claim) =>
            {
                Some(identity.clone())
            }
            _ => None,
        };
        let me = self.own.contains_key(&self.own_name()).then(|| self.me());
        self.others().filter_map(alive).chain(me).collect()
    }

    /// How many shards each of them has, of those who have taken what fell to them.
    fn counts(&self, now: Moment) -> BTreeMap<String, usize> {
        let members = self.members(now).into_iter().filter(|m| !self.silent.contains(m));
        let mut counts: BTreeMap<String, usize> = members.map(|m| (m, 0)).collect();
        for number in 0..self.shards {
            let name = Name::Shard(number);
            let own = self.own.get(&name).filter(|own| !own.closing).map(|own| &own.claim);
            let other = || self.leases.get(&name).map(|seen| &seen.claim);
            let free = self.free_since(&name, now).is_some();
            let claim = own.or_else(other).filter(|_| !free);
            if let Some(count) = claim.and_then(|c| c.holder.as_ref()).and_then(|h| counts.get_mut(h)) {
                *count += 1;
            }
        }
        counts
    }

    /// How long a shard is left to those before the one at this place. Whoever is too quick takes one too many,
    /// and hands it back.
    fn courtesy(&self, place: usize) -> Duration {
        self.pace.retry_period / 8 * u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// How long it stays away after it was sent away: a time of its own.
    fn pause(&self) -> Duration {
        let own = self.me().bytes().fold(7_u32, |n, byte| n.wrapping_mul(31).wrapping_add(u32::from(byte)));
        self.pace.retry_period / 4 + self.pace.retry_period.mul_f64(f64::from(own % 1000) / 1000.0)
    }
}
