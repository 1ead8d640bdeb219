//! A simulation that carries out decisions immediately: targets whose state a test sets, and a forge on which each
//! environment has at most one change request.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_core::Revision;
use sluice_core::decide::{Action, Decision, Facts, NewPromotion, Transition, decide};
use sluice_core::evidence::Evidence;
use sluice_core::observed::{Health, Member, ObservedTarget, ObservedTargets};
use sluice_core::pipeline::{Environment, MinReady, Pipeline, Policy};
use sluice_core::promotion::{Phase, Promotion, RecordedRequest};
use sluice_core::revision::{Facet, FacetKey};
use sluice_core::tracks::DefaultFacet;

/// A revision of the one HelmRelease that these pipelines deliver.
pub fn revision(version: &str) -> Revision {
    let key = FacetKey { kind: "HelmRelease".into(), name: "app".into(), facet: Facet::Chart };
    Revision::new(BTreeMap::from([(key, version.to_string())])).unwrap()
}

/// Returns a target that runs a version with a health.
pub fn shows(version: &str, health: Health) -> ObservedTarget {
    let member = Member {
        kind: "HelmRelease".into(),
        name: "app".into(),
        health,
        message: if health == Health::Ready { String::new() } else { format!("{health:?} at {version}") },
        not_applied: None,
        since: None,
        version: version.into(),
        gave_up: BTreeMap::new(),
        facets: BTreeMap::from([(Facet::Chart, version.to_string())]),
        default_facet: DefaultFacet::Chart,
        source: None,
        workloads: Vec::new(),
    };
    ObservedTarget::of(vec![member.into()])
}

/// Returns the first member of a target.
pub fn member(target: &mut ObservedTarget) -> &mut Member {
    Arc::make_mut(&mut target.members[0])
}

/// A change request on the forge.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgeRequest {
    pub environment: String,
    /// The one target that it is for.
    pub target: Option<String>,
    pub promotion: String,
    pub version: String,
    pub state: &'static str,
    /// The number of the environment's repository.
    pub place: u32,
}

/// A side effect outside of Sluice.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Opened(String, String),
    Updated(String, String),
    Closed(String),
}

#[derive(Clone, Debug)]
pub struct Simulation {
    pub pipeline: Pipeline,
    pub observed: ObservedTargets,
    pub evidence: Evidence,
    pub promotions: Vec<Promotion>,
    pub requests: Vec<ForgeRequest>,
    pub effects: Vec<Effect>,
    pub now: Timestamp,
    pub last: Decision,
    /// True if deliveries fail.
    pub refuses: bool,
    /// The promotions whose commits a forced push has removed.
    pub lost: Vec<String>,
    /// True if a promotion is delivered immediately by a commit, before the targets run it.
    pub commits: bool,
    /// The versions that were resumed after others had been delivered.
    pub undone: Vec<String>,
    /// How many times the owner of each environment has named another repository.
    pub places: BTreeMap<String, u32>,
}

pub fn policy() -> Policy {
    Policy {
        manual: false,
        min_ready: MinReady::Count(1),
        allow_downgrade: false,
        per_target: false,
        timeout: SignedDuration::from_mins(30),
        writes_to: None,
        commits: false,
        refused: None,
    }
}

impl Simulation {
    /// Returns environments that follow each other, with their targets. All have proven version A.
    pub fn new(environments: &[(&str, &[&str])]) -> Self {
        let mut before: Option<String> = None;
        let mut observed = ObservedTargets::default();
        let mut list = Vec::new();
        for (name, targets) in environments {
            let depends_on = before.iter().cloned().collect();
            before = Some(name.to_string());
            let targets: Vec<String> = targets.iter().map(|t| t.to_string()).collect();
            targets.iter().for_each(|t| observed.insert(name, t, shows("1.0.0", Health::Ready)));
            let name = name.to_string();
            list.push(Environment { name, targets, depends_on, policy: Some(policy()), only_target: None });
        }
        let pipeline = Pipeline {
            namespace: "apps".into(),
            name: "app".into(),
            uid: "uid".into(),
            suspended: false,
            tracks: Vec::new(),
            environments: list,
        };
        let mut sim = Self {
            pipeline,
            observed,
            evidence: Evidence::default(),
            promotions: Vec::new(),
            requests: Vec::new(),
            effects: Vec::new(),
            now: "2026-11-21T10:00:00Z".parse().unwrap(),
            last: Decision::default(),
            refuses: false,
            lost: Vec::new(),
            commits: false,
            undone: Vec::new(),
            places: BTreeMap::new(),
        };
        sim.settle();
        assert_eq!(sim.promotions, []);
        sim
    }

    /// Returns dev → staging → prod with one target each.
    pub fn three() -> Self {
        Self::new(&[("dev", &["d"]), ("staging", &["s"]), ("prod", &["p"])])
    }

    pub fn policy_of(&mut self, environment: &str) -> &mut Policy {
        let found = self.pipeline.environments.iter_mut().find(|e| e.name == environment);
        found.unwrap().policy.as_mut().unwrap()
    }

    pub fn runs(&mut self, environment: &str, target: &str, version: &str, health: Health) {
        self.observed.insert(environment, target, shows(version, health));
    }

    pub fn cannot_be_read(&mut self, environment: &str, target: &str) {
        self.observed.insert(environment, target, ObservedTarget::unreadable("the cluster is gone"));
    }

    /// Decides once and carries the decision out. Returns the number of actions.
    pub fn step(&mut self) -> usize {
        self.evidence = self.evidence.updated(&self.pipeline, &self.observed, &self.promotions, self.now);
        for promotion in &mut self.promotions {
            let now = self.places.get(&promotion.environment).copied().unwrap_or_default();
            if let Some(request) = promotion.request.as_mut() {
                request.outdated |= self.requests[request.number as usize].place != now;
            }
        }
        let facts = Facts {
            pipeline: &self.pipeline,
            observed: &self.observed,
            evidence: &self.evidence,
            promotions: &self.promotions,
            unguarded: None,
            now: self.now,
        };
        self.last = decide(facts);
        let actions = self.last.actions.clone();
        // Actions that only read the forge and branches are repeated by every decision.
        let is_look = |a: &&Action| match a {
            Action::Follow { .. } => true,
            Action::CheckDelivered { promotion, is_last } => !is_last && !self.lost.contains(promotion),
            _ => false,
        };
        let done = actions.iter().filter(|a| !is_look(a)).count();
        actions.into_iter().for_each(|action| self.apply(action));
        done
    }

    /// Decides until no action follows.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            if self.step() == 0 {
                return;
            }
        }
        panic!("the decisions do not end: {:?}", self.last);
    }

    pub fn promotion(&mut self, name: &str) -> &mut Promotion {
        self.promotions.iter_mut().find(|p| p.name == name).unwrap()
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Start(intent) => {
                assert!(!self.promotions.iter().any(|p| p.name == intent.name), "recorded twice: {intent:?}");
                self.promotions.push(Promotion {
                    name: intent.name,
                    environment: intent.environment,
                    target: intent.target,
                    revision: intent.revision,
                    run: intent.run,
                    arrival: intent.arrival,
                    sequence: intent.sequence,
                    trigger: None,
                    phase: Phase::Pending,
                    approved: false,
                    retries: 0,
                    rejected: None,
                    gates: Vec::new(),
                    retry: None,
                    next_attempt: None,
                    resumes: false,
                    delivered: None,
                    request: None,
                    is_checked: false,
                    report: None,
                    reason: String::new(),
                    message: String::new(),
                });
            }
            Action::Deliver { promotion } => self.deliver(&promotion),
            Action::Withdraw { promotion } => {
                let environment = self.promotion(&promotion).environment.clone();
                let request = self.promotion(&promotion).request.as_mut().unwrap();
                request.open = false;
                let number = request.number as usize;
                if self.requests[number].state == "open" {
                    self.requests[number].state = "closed";
                    self.effects.push(Effect::Closed(environment));
                }
            }
            Action::Move(to) => self.apply_transition(to),
            Action::Pass { promotion, gates } => self.promotion(&promotion).gates = gates,
            Action::Wait { promotion, gates, message } => {
                let promotion = self.promotion(&promotion);
                promotion.gates = gates;
                promotion.message = message;
            }
            Action::Follow { .. } => {}
            Action::FindDelivery { promotion } => self.promotion(&promotion).is_checked = true,
            Action::CheckDelivered { promotion, is_last } => {
                self.promotion(&promotion).is_checked = is_last;
                if let Some(at) = self.lost.iter().position(|lost| *lost == promotion) {
                    self.lost.remove(at);
                    self.apply(Action::Move(Transition::of_lost(promotion, "abc")));
                }
            }
        }
    }

    fn apply_transition(&mut self, to: Transition) {
        let promotion = self.promotion(&to.promotion);
        let version = promotion.revision.to_string();
        promotion.phase = to.to;
        promotion.message = to.message;
        promotion.reason = to.reason.into();
        if to.to == Phase::Pending {
            promotion.next_attempt = None;
            promotion.delivered = None;
            promotion.gates.clear();
            promotion.retries += u32::from(to.spends_approval);
        }
        if to.answers.is_some() {
            promotion.retry = None;
        }
        promotion.approved &= !to.spends_approval;
        self.undone.extend(to.is_undone.then_some(version));
    }

    fn deliver(&mut self, name: &str) {
        self.promotion(name).is_checked = false;
        if self.refuses {
            let again = self.now + SignedDuration::from_mins(1);
            let promotion = self.promotion(name);
            (promotion.phase, promotion.next_attempt) = (Phase::Promoting, Some(again));
            promotion.message = "no file has the marker".into();
            return;
        }
        if self.commits {
            let now = Some(self.now);
            let promotion = self.promotion(name);
            (promotion.phase, promotion.delivered) = (Phase::Delivered, now);
            let effect = Effect::Updated(promotion.environment.clone(), promotion.revision.to_string());
            return self.effects.push(effect);
        }
        let promotion = self.promotion(name);
        let (environment, target) = (promotion.environment.clone(), promotion.target.clone());
        let version = promotion.revision.to_string();
        let here = self.places.get(&environment).copied().unwrap_or_default();
        let takes = |r: &ForgeRequest| {
            r.environment == environment && r.target == target && r.state == "open" && r.place == here
        };
        let place = self.requests.iter().position(takes);
        let number = place.unwrap_or(self.requests.len()) as u64;
        let promotion = self.promotion(name);
        (promotion.phase, promotion.request) =
            (Phase::Proposed, Some(RecordedRequest { number, open: true, outdated: false }));
        let open = place.map(|i| &mut self.requests[i]);
        match open {
            Some(request) => {
                (request.promotion, request.version) = (name.into(), version.clone());
                self.effects.push(Effect::Updated(environment.clone(), version));
            }
            None => {
                let promotion = name.into();
                let state = "open";
                self.requests.push(ForgeRequest {
                    environment: environment.clone(),
                    target,
                    promotion,
                    version: version.clone(),
                    state,
                    place: here,
                });
                self.effects.push(Effect::Opened(environment.clone(), version));
            }
        }
    }

    /// A caller of `/trigger` requests a version in an environment, with a key.
    pub fn trigger(&mut self, environment: &str, version: &str, key: &str) {
        let of = self.pipeline.environments.iter().find(|e| e.name == environment).unwrap();
        for lane in of.lanes() {
            let sequence = self.promotions.iter().filter(|p| lane.is_of(p)).map(|p| p.sequence).max();
            let alone = lane.only_target.iter().map(|target| format!("{target}-")).collect::<String>();
            let name = format!("{environment}-{alone}{key}");
            self.apply(Action::Start(NewPromotion {
                name: name.clone(),
                environment: environment.into(),
                target: lane.only_target,
                revision: revision(version),
                run: 0,
                arrival: 0,
                sequence: sequence.unwrap_or(0) + 1,
                replaces: String::new(),
                proven_by: Vec::new(),
            }));
            self.promotion(&name).trigger = Some(key.into());
        }
        self.settle();
    }

    /// A person merges the environment's change request.
    pub fn merge(&mut self, environment: &str) {
        let now = self.now;
        let open =
            self.requests.iter_mut().find(|r| r.environment == environment && r.state == "open").unwrap();
        open.state = "merged";
        let name = open.promotion.clone();
        let promotion = self.promotion(&name);
        (promotion.phase, promotion.delivered) = (Phase::Delivered, Some(now));
        promotion.request.as_mut().unwrap().open = false;
        self.settle();
    }

    /// A person closes the environment's change request.
    pub fn close(&mut self, environment: &str) {
        let open =
            self.requests.iter_mut().find(|r| r.environment == environment && r.state == "open").unwrap();
        open.state = "closed";
        let name = open.promotion.clone();
        let promotion = self.promotion(&name);
        promotion.phase = Phase::Rejected;
        promotion.request.as_mut().unwrap().open = false;
        promotion.message = "closed".into();
        self.settle();
    }

    /// Returns the promotions into an environment, oldest first, as `version phase`.
    pub fn phases(&self, environment: &str) -> Vec<String> {
        let mut of: Vec<_> = self.promotions.iter().filter(|p| p.environment == environment).collect();
        let all = self.pipeline.environments.iter().find(|e| e.name == environment).map(|e| &e.targets);
        of.sort_by_key(|p| {
            let place = p.target.as_ref().zip(all).and_then(|(t, all)| all.iter().position(|x| x == t));
            (place, p.sequence)
        });
        of.iter().map(|p| format!("{} {:?}", p.revision, p.phase)).collect()
    }

    pub fn open_requests(&self, environment: &str) -> Vec<&str> {
        let open = self.requests.iter().filter(|r| r.environment == environment && r.state == "open");
        open.map(|r| r.version.as_str()).collect()
    }

    pub fn note(&self, environment: &str) -> &str {
        self.last.notes.get(environment).map_or("", |n| n.message.as_str())
    }
}
