//! Properties of every pipeline and every history: the promises P2, P7 and P8. Each property is a function that returns an
//! error, so that a planted bug can show that the property finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_core::Revision;
use sluice_core::decide::{Action, Transition};
use sluice_core::evidence::Evidence;
use sluice_core::observed::Health;
use sluice_core::pipeline::MinReady;
use sluice_core::promotion::{Phase, Promotion, RecordedRequest};

use crate::simulation::{Simulation, revision};

/// An event of a history.
#[derive(Clone, Debug)]
enum Event {
    /// A target (by number) runs a version, with a health.
    Runs(usize, usize, Health),
    /// A target cannot be read.
    Unreadable(usize),
    /// A person merges the open change request of an environment; its targets then run it.
    Merge(usize, bool),
    /// A person closes the open change request of an environment.
    Close(usize),
    /// A person approves all waiting promotions into an environment.
    Approve(usize),
    /// A person requests another try of all promotions into an environment.
    Retry(usize),
    /// An approver rejects all promotions into an environment.
    Reject(usize),
    /// The owner names another repository for an environment.
    Moves(usize),
    /// The owner has the targets of an environment promoted into one by one, or together again.
    Regroups(usize),
    /// The status with all that was proven is lost.
    Forgets,
    /// The pipeline is suspended or resumed.
    Suspend(bool),
    /// Time passes, or the clock is set back.
    Clock(i64),
    /// Nothing happens.
    Nothing,
}

const VERSIONS: [&str; 5] = ["1.0.0", "1.1.0", "1.2.0", "0.9.0", "main-7"];

fn event() -> impl Strategy<Value = Event> {
    let health = prop_oneof![
        4 => Just(Health::Ready),
        1 => Just(Health::Progressing),
        1 => Just(Health::Failed),
        1 => Just(Health::Suspended),
    ];
    prop_oneof![
        6 => (0..9usize, 0..VERSIONS.len(), health).prop_map(|(t, v, h)| Event::Runs(t, v, h)),
        1 => (0..9usize).prop_map(Event::Unreadable),
        4 => (0..4usize, any::<bool>()).prop_map(|(e, healthy)| Event::Merge(e, healthy)),
        1 => (0..4usize).prop_map(Event::Close),
        2 => (0..4usize).prop_map(Event::Approve),
        1 => (0..4usize).prop_map(Event::Retry),
        1 => (0..4usize).prop_map(Event::Reject),
        1 => (0..4usize).prop_map(Event::Moves),
        1 => (0..4usize).prop_map(Event::Regroups),
        1 => Just(Event::Forgets),
        1 => any::<bool>().prop_map(Event::Suspend),
        1 => (-7200..7200i64).prop_map(Event::Clock),
        1 => Just(Event::Nothing),
    ]
}

/// A pipeline of one to four environments with one to three targets each.
fn pipeline() -> impl Strategy<Value = Simulation> {
    let environment = (1..4usize, any::<bool>(), any::<bool>(), 0..3u32);
    prop::collection::vec(environment, 1..5).prop_map(|shapes| {
        let names = ["dev", "qa", "perf", "prod"];
        let targets = ["a", "b", "c"];
        let list: Vec<(&str, &[&str])> =
            shapes.iter().enumerate().map(|(i, (n, ..))| (names[i], &targets[..*n])).collect();
        let mut sim = Simulation::new(&list);
        for (i, (_, manual, all, after)) in shapes.iter().enumerate() {
            let environment = &mut sim.pipeline.environments[i];
            if *after > 0 && i > 1 {
                // A graph instead of a line.
                let first = i.saturating_sub(*after as usize);
                environment.depends_on = names[first.min(i - 1)..i].iter().map(|n| n.to_string()).collect();
            }
            let policy = environment.policy.as_mut().unwrap();
            policy.manual = *manual;
            policy.min_ready = if *all { MinReady::Percent(100) } else { MinReady::Count(1) };
        }
        sim
    })
}

fn place(sim: &Simulation, number: usize) -> (String, String) {
    let all: Vec<(String, String)> = sim
        .pipeline
        .environments
        .iter()
        .flat_map(|e| e.targets.iter().map(|t| (e.name.clone(), t.clone())))
        .collect();
    all[number % all.len()].clone()
}

fn environment(sim: &Simulation, number: usize) -> String {
    sim.pipeline.environments[number % sim.pipeline.environments.len()].name.clone()
}

/// Applies an event, without a decision.
fn happen(sim: &mut Simulation, event: &Event) {
    match event {
        Event::Runs(target, version, health) => {
            let (environment, target) = place(sim, *target);
            sim.runs(&environment, &target, VERSIONS[*version], *health);
        }
        Event::Unreadable(target) => {
            let (environment, target) = place(sim, *target);
            sim.cannot_be_read(&environment, &target);
        }
        Event::Merge(number, healthy) => merge(sim, *number, *healthy),
        Event::Close(number) => {
            let name = environment(sim, *number);
            if let Some(open) = sim.requests.iter_mut().find(|r| r.environment == name && r.state == "open") {
                open.state = "closed";
                let promotion = open.promotion.clone();
                let promotion = sim.promotion(&promotion);
                promotion.phase = Phase::Rejected;
                promotion.request.as_mut().unwrap().open = false;
            }
        }
        Event::Approve(number) => {
            let name = environment(sim, *number);
            let waiting =
                sim.promotions.iter_mut().filter(|p| p.environment == name && p.phase == Phase::Pending);
            waiting.for_each(|p| p.approved = true);
        }
        Event::Retry(number) => {
            let name = environment(sim, *number);
            let all = sim.promotions.iter_mut().filter(|p| p.environment == name);
            all.for_each(|p| (p.retry, p.rejected) = (Some("again".into()), None));
        }
        Event::Reject(number) => {
            let name = environment(sim, *number);
            let all = sim.promotions.iter_mut().filter(|p| p.environment == name);
            all.for_each(|p| p.rejected = Some("rejected by ann: no".into()));
        }
        Event::Moves(number) => {
            let name = environment(sim, *number);
            *sim.places.entry(name).or_default() += 1;
        }
        Event::Regroups(number) => {
            let name = environment(sim, *number);
            let policy = sim.policy_of(&name);
            policy.per_target = !policy.per_target;
        }
        Event::Forgets => sim.evidence = Evidence::default(),
        Event::Suspend(suspended) => sim.pipeline.suspended = *suspended,
        Event::Clock(seconds) => sim.now += jiff::SignedDuration::from_secs(*seconds),
        Event::Nothing => {}
    }
}

fn merge(sim: &mut Simulation, number: usize, healthy: bool) {
    let name = environment(sim, number);
    let now = sim.now;
    let Some(open) = sim.requests.iter_mut().find(|r| r.environment == name && r.state == "open") else {
        return;
    };
    open.state = "merged";
    let (promotion, version, alone) = (open.promotion.clone(), open.version.clone(), open.target.clone());
    let promotion = sim.promotion(&promotion);
    (promotion.phase, promotion.delivered) = (Phase::Delivered, Some(now));
    promotion.request.as_mut().unwrap().open = false;
    let health = if healthy { Health::Ready } else { Health::Failed };
    let targets = sim.pipeline.environments.iter().find(|e| e.name == name).unwrap().targets.clone();
    let of = targets.iter().filter(|t| alone.as_ref().is_none_or(|alone| alone == *t));
    of.for_each(|t| sim.runs(&name, t, &version, health));
}

/// What the targets have run, recorded independently of the tested evidence.
#[derive(Default)]
struct Runs {
    /// All revisions that every target has ever run healthily.
    healthy: Vec<(String, String, Revision)>,
    /// The revision that each target has run last, and whether it was healthy with it since it began to run it.
    last: BTreeMap<(String, String), (Revision, bool)>,
}

impl Runs {
    fn look(&mut self, sim: &Simulation) {
        for environment in &sim.pipeline.environments {
            for target in &environment.targets {
                let (place, shown) = (
                    (environment.name.clone(), target.clone()),
                    sim.observed.target(&environment.name, target),
                );
                if let Some(revision) = shown.and_then(|t| t.revision(&[])) {
                    let is_healthy = shown.is_some_and(|t| t.health() == Health::Ready);
                    let was_healthy = self.last.get(&place).is_some_and(|(r, was)| *r == revision && *was);
                    self.last.insert(place, (revision, is_healthy || was_healthy));
                }
                let proven = shown.and_then(|t| t.proves(&[]));
                self.healthy.extend(proven.map(|r| (environment.name.clone(), target.clone(), r)));
            }
        }
    }

    /// What was known of targets that cannot be read is lost with the status.
    fn forget(&mut self, sim: &Simulation) {
        self.last.retain(|(environment, target), _| {
            sim.observed.target(environment, target).is_some_and(|shown| shown.error.is_none())
        });
    }

    /// Returns what is known of the targets that a promotion is for.
    fn of<'a>(&'a self, sim: &'a Simulation, promotion: &'a Promotion) -> Vec<Option<&'a (Revision, bool)>> {
        let environment = sim.pipeline.environments.iter().find(|e| e.name == promotion.environment).unwrap();
        let own = |target: &&String| promotion.target.as_ref().is_none_or(|own| own == *target);
        let place = |target: &String| (environment.name.clone(), target.clone());
        environment.targets.iter().filter(own).map(|target| self.last.get(&place(target))).collect()
    }

    /// P9: a promotion succeeds only if all its targets were healthy with it, and have run nothing else since.
    fn check_success(&self, before: &Simulation, name: &str) -> Result<(), String> {
        let promotion = before.promotions.iter().find(|p| p.name == name).unwrap();
        let is_healthy = |last: &Option<&(Revision, bool)>| {
            last.is_none_or(|(r, healthy)| *healthy && promotion.revision.is_run_by(r))
        };
        let last = self.of(before, promotion);
        // The record of an unwanted request for another try keeps its phase.
        if promotion.phase == Phase::Succeeded || last.iter().all(is_healthy) {
            return Ok(());
        }
        Err(format!("P9: {name} succeeded with {}, and its targets last ran {last:?}", promotion.revision))
    }

    /// P2: enough targets of each environment before it have run this very revision, healthily.
    fn justifies(&self, sim: &Simulation, into: &str, revision: &Revision) -> Result<(), String> {
        let environment = sim.pipeline.environments.iter().find(|e| e.name == into).unwrap();
        let needed = environment.policy.as_ref().unwrap().min_ready;
        if environment.depends_on.is_empty() {
            return Err(format!("{into} comes after nothing, and {revision} was promoted into it"));
        }
        for before in &environment.depends_on {
            let targets = &sim.pipeline.environments.iter().find(|e| e.name == *before).unwrap().targets;
            let proven = targets.iter().filter(|t| {
                self.healthy.iter().any(|(e, target, r)| e == before && target == *t && r == revision)
            });
            if proven.count() < needed.of(targets.len()) {
                return Err(format!("{revision} went into {into} and was not proven in {before}"));
            }
        }
        Ok(())
    }
}

/// Runs a history and checks every action.
fn play(sim: &mut Simulation, events: &[Event], planted: fn(&mut Simulation)) -> Result<(), String> {
    let mut seen = Runs::default();
    seen.look(sim);
    // The revisions that run at the start were proven before the history began.
    VERSIONS[..1].iter().for_each(|v| {
        for e in &sim.pipeline.environments {
            e.targets.iter().for_each(|t| seen.healthy.push((e.name.clone(), t.clone(), revision(v))));
        }
    });
    for event in events {
        happen(sim, event);
        if let Event::Forgets = event {
            seen.forget(sim);
        }
        seen.look(sim);
        for _ in 0..40 {
            planted(sim);
            let before = sim.clone();
            let n = sim.step();
            check(&before, sim, &seen)?;
            if n == 0 {
                break;
            }
        }
        if sim.step() > 0 {
            return Err(format!("does not come to rest: {:?}", sim.last.actions));
        }
    }
    Ok(())
}

fn check(before: &Simulation, after: &Simulation, seen: &Runs) -> Result<(), String> {
    for action in &after.last.actions {
        let effect = matches!(action, Action::Start(_) | Action::Deliver { .. } | Action::Withdraw { .. });
        if before.pipeline.suspended && effect {
            return Err(format!("P7: suspended, and yet {action:?}"));
        }
        match action {
            Action::Start(intent) => seen.justifies(before, &intent.environment, &intent.revision)?,
            Action::Deliver { promotion } => {
                let promotion = before.promotions.iter().find(|p| p.name == *promotion).unwrap();
                let of =
                    before.pipeline.environments.iter().find(|e| e.name == promotion.environment).unwrap();
                if of.policy.as_ref().unwrap().manual && !promotion.approved {
                    return Err(format!("P7: {} was delivered without approval", promotion.name));
                }
                seen.justifies(before, &promotion.environment, &promotion.revision)?;
                let is_older = |(r, _): &(Revision, bool)| promotion.revision.is_older_than(r) == Some(true);
                if !promotion.approved && seen.of(before, promotion).into_iter().flatten().any(is_older) {
                    return Err(format!("P7: {} went back without approval", promotion.name));
                }
                let same = before.promotions.iter().filter(|p| {
                    (&p.environment, &p.target, &p.revision)
                        == (&promotion.environment, &promotion.target, &promotion.revision)
                });
                if same.clone().all(|p| p.delivered.is_none())
                    && same.clone().any(|p| p.is_rejected())
                    && !promotion.approved
                {
                    return Err(format!("P7: {} was delivered after a rejection", promotion.name));
                }
            }
            Action::Move(Transition { promotion, to: Phase::Succeeded, .. }) => {
                seen.check_success(before, promotion)?;
            }
            _ => {}
        }
    }
    for environment in &after.pipeline.environments {
        let own = || after.requests.iter().filter(|r| r.environment == environment.name && r.state == "open");
        for lane in environment.lanes() {
            let open = after.promotions.iter().filter(|p| lane.is_of(p) && p.phase.is_open());
            if open.count() > 1 || own().filter(|r| r.target == lane.only_target).count() > 1 {
                return Err(format!("P1: two things are open for {} {:?}", lane.name, lane.only_target));
            }
        }
        if own().any(|r| r.target.is_none()) && own().any(|r| r.target.is_some()) {
            return Err(format!(
                "P1: one is open for all of {} and one for a target of it",
                environment.name
            ));
        }
    }
    Ok(())
}

/// The phases of a simulation by environment, without any names.
fn phases(sim: &Simulation) -> Vec<Vec<String>> {
    sim.pipeline.environments.iter().map(|e| sim.phases(&e.name)).collect()
}

/// Returns the same pipeline with other names, in another alphabetical order.
fn renamed(sim: &Simulation) -> Simulation {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for (i, e) in sim.pipeline.environments.iter().enumerate() {
        let targets = (0..e.targets.len()).map(|t| format!("{}", (b'z' - t as u8) as char)).collect();
        names.push((format!("{}x", (b'z' - i as u8) as char), targets));
    }
    let borrowed: Vec<(&str, Vec<&str>)> =
        names.iter().map(|(n, t)| (n.as_str(), t.iter().map(String::as_str).collect())).collect();
    let list: Vec<(&str, &[&str])> = borrowed.iter().map(|(n, t)| (*n, t.as_slice())).collect();
    let mut other = Simulation::new(&list);
    (other.pipeline.name, other.pipeline.uid) = ("zzz".into(), "another".into());
    for (i, e) in sim.pipeline.environments.iter().enumerate() {
        let number = |name: &String| sim.pipeline.environments.iter().position(|e| e.name == *name).unwrap();
        other.pipeline.environments[i].depends_on =
            e.depends_on.iter().map(|a| names[number(a)].0.clone()).collect();
        other.pipeline.environments[i].policy = e.policy.clone();
    }
    other
}

/// Returns how many histories a property is tried with: `PROPTEST_CASES` in a longer run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// P1, P2 and P7 hold at every step of every history.
    #[test]
    fn only_proven_revisions_are_promoted_and_none_while_suspended(
        mut sim in pipeline(), events in prop::collection::vec(event(), 1..40)
    ) {
        prop_assert_eq!(play(&mut sim, &events, |_| {}), Ok(()));
    }

    /// P8: names, repetition and the order in which records are listed change nothing.
    #[test]
    fn names_order_and_repetition_change_nothing(
        sim in pipeline(), events in prop::collection::vec(event(), 1..25)
    ) {
        let (mut one, mut other) = (sim.clone(), renamed(&sim));
        for event in &events {
            happen(&mut one, event);
            one.settle();
            happen(&mut other, event);
            other.promotions.reverse();
            other.settle();
            other.step();
        }
        prop_assert_eq!(phases(&one), phases(&other));
    }

    /// P8: clocks do not change what is promoted. Only deadlines depend on them, and none passes here, and whether a revision
    /// is older than the last delivered one: a clock that is set back holds more, which the table of cases shows.
    #[test]
    fn clock_jumps_change_nothing(
        mut sim in pipeline(), events in prop::collection::vec(event(), 1..25), jumps in prop::collection::vec(-90..90i64, 25)
    ) {
        for environment in &mut sim.pipeline.environments {
            environment.policy.as_mut().unwrap().allow_downgrade = true;
        }
        let (mut one, mut other) = (sim.clone(), sim);
        for (event, jump) in events.iter().zip(jumps) {
            if matches!(event, Event::Clock(_)) {
                continue;
            }
            happen(&mut one, event);
            one.settle();
            other.now += jiff::SignedDuration::from_mins(jump.min(0));
            happen(&mut other, event);
            other.settle();
        }
        prop_assert_eq!(phases(&one), phases(&other));
    }
}

/// Runs generated histories with a planted bug, until a property fails.
fn finds(planted: fn(&mut Simulation)) -> bool {
    let config = ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let histories = (pipeline(), prop::collection::vec(event(), 1..40));
    let found = runner
        .run(&histories, |(mut sim, events)| play(&mut sim, &events, planted).map_err(TestCaseError::fail));
    found.is_err()
}

/// The properties find planted bugs.
#[test]
fn planted_bugs_are_found() {
    // Bug: every observed revision counts as healthy.
    assert!(finds(|sim| {
        for environment in sim.pipeline.environments.clone() {
            for target in &environment.targets {
                let Some(mut shown) = sim.observed.target(&environment.name, target).cloned() else {
                    continue;
                };
                shown.members.iter_mut().for_each(|m| Arc::make_mut(m).health = Health::Ready);
                sim.evidence = {
                    let mut observed = sim.observed.clone();
                    observed.insert(&environment.name, target, shown);
                    sim.evidence.updated(&sim.pipeline, &observed, &[], sim.now)
                };
            }
        }
    }));
    // Bug: what a target has run without being healthy is forgotten.
    assert!(finds(|sim| {
        let mut evidence = Evidence::default();
        for environment in &sim.pipeline.environments {
            for target in &environment.targets {
                let proofs = sim.evidence.of(&environment.name, target).to_vec();
                evidence.insert(&environment.name, target, proofs);
            }
        }
        sim.evidence = evidence;
    }));
    // Bug: an approval also counts for the next revision.
    assert!(finds(|sim| {
        let approved = sim.promotions.iter().any(|p| p.approved);
        sim.promotions.iter_mut().for_each(|p| {
            if approved && p.phase == Phase::Pending {
                p.phase = Phase::Proposed;
                p.request =
                    Some(RecordedRequest { number: sim.requests.len() as u64, open: true, outdated: false });
                sim.requests.push(crate::simulation::ForgeRequest {
                    environment: p.environment.clone(),
                    target: p.target.clone(),
                    promotion: p.name.clone(),
                    version: p.revision.to_string(),
                    state: "open",
                    place: 0,
                });
            }
        });
    }));
}
