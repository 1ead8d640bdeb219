//! Every fault at every single call of a delivery, one at a time: after it, a few more tries have the same result as
//! without the fault, and nothing happens twice.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, DeliveryError, DeliveryStrategy, ForgeKind, MergeMode,
    Order, Retry, Settings,
};
use sluice_testkit::fire::{Fault, Forge, Hosted, Plan, State};

use crate::fixture::{Bench, FILE, again, bench, bench_with, order, yaml};

/// How long one run of git or one call may take here.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most tries after one fault, with a few more for a slow machine.
const TRIES: usize = 12;

/// Work at a forge, and its state before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    /// The first change request for an environment.
    Opens,
    /// A change request is open for an earlier revision.
    Replaces,
    /// An earlier try has opened it, without an answer.
    Finds,
    /// An earlier try has opened it, and it was merged since.
    FindsMerged,
    /// An earlier try has opened it, and a person closed it since.
    FindsClosed,
    /// A change request is open for an earlier revision, and a person committed this one.
    FindsItNeedless,
    /// A change request is open, and is withdrawn.
    Withdraws,
    /// A change request is open, and its status is read.
    Follows,
    /// A change request was merged, and its status is read.
    FollowsMerged,
    /// A change request is open and reviewed, and Sluice merges it.
    Merges,
    /// The same, but a person has pushed to it since.
    LeavesUnreviewed,
    /// A commit.
    Commits,
    /// A commit that an earlier try has made; another one came after it.
    FindsCommit,
}

const SCENARIOS: [Scenario; 13] = [
    Scenario::Opens,
    Scenario::Replaces,
    Scenario::Finds,
    Scenario::FindsMerged,
    Scenario::FindsClosed,
    Scenario::FindsItNeedless,
    Scenario::Withdraws,
    Scenario::Follows,
    Scenario::FollowsMerged,
    Scenario::Merges,
    Scenario::LeavesUnreviewed,
    Scenario::Commits,
    Scenario::FindsCommit,
];

/// One scenario with a repository of its own.
struct ScenarioRun<'a> {
    scenario: Scenario,
    forge: &'a Forge,
    hosted: Hosted,
    bench: Bench,
    order: Order,
    request: Option<ChangeRequest>,
}

/// How a try ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Delivered(Delivered),
    Followed(ChangeRequestStatus),
}

fn process() -> Bench {
    bench_with(|o| o.deadline = DEADLINE)
}

/// A scenario as it is before it begins: made once, and copied for each time it is played.
struct ScenarioStart {
    scenario: Scenario,
    hosted: Hosted,
    order: Order,
    request: Option<ChangeRequest>,
    /// What is called when nothing goes wrong.
    calls: Vec<String>,
}

impl ScenarioStart {
    /// Brings a repository to where the scenario begins, and plays it once.
    async fn make(scenario: Scenario, forge: &Forge) -> ScenarioStart {
        let hosted = forge.create_repo(&format!("{scenario:?}"), &[(FILE, &yaml("6.1.5"))]).unwrap();
        let url = hosted.url.clone();
        let strategy = match scenario {
            Scenario::Commits | Scenario::FindsCommit => {
                DeliveryStrategy::Commit { url, branch: "main".into() }
            }
            _ => DeliveryStrategy::PullRequest {
                forge: ForgeKind::GitHub,
                url,
                base: "main".into(),
                settings: Box::new(Settings {
                    merge: match scenario {
                        Scenario::Merges | Scenario::LeavesUnreviewed => MergeMode::WhenGreen,
                        _ => MergeMode::Never,
                    },
                    ..Settings::default()
                }),
            },
        };
        let (earlier, this) = (order(strategy.clone(), "6.1.8"), order(strategy, "6.2.0"));
        let (bench, mut request) = (bench(), None);
        let mut stage = async |order: &Order| match bench.delivery.deliver(order).await.unwrap() {
            Delivered::Proposed { request: made, .. } => request = Some(made),
            _ => request = None,
        };
        let order = match scenario {
            Scenario::Opens | Scenario::Commits => this,
            Scenario::Replaces => {
                stage(&earlier).await;
                this
            }
            Scenario::FindsItNeedless => {
                stage(&earlier).await;
                hosted.repo.commit("main", "by hand", &[(FILE, &yaml("6.2.0"))]).unwrap();
                this
            }
            Scenario::Finds | Scenario::FindsMerged | Scenario::FindsClosed | Scenario::FindsCommit => {
                stage(&this).await;
                again(&this)
            }
            Scenario::Withdraws
            | Scenario::Follows
            | Scenario::FollowsMerged
            | Scenario::Merges
            | Scenario::LeavesUnreviewed => {
                stage(&this).await;
                this
            }
        };
        match scenario {
            Scenario::FindsMerged | Scenario::FollowsMerged => assert_eq!(forge.merge(&hosted), 1),
            Scenario::FindsClosed => forge.close(&hosted, 1),
            Scenario::Merges => forge.review(&hosted),
            Scenario::LeavesUnreviewed => {
                forge.review(&hosted);
                hosted.repo.commit(&order.branch(), "by hand", &[("a.yaml", "a: b\n")]).unwrap();
            }
            Scenario::FindsCommit => {
                drop(hosted.repo.commit("main", "other", &[("a.yaml", "a: b\n")]).unwrap())
            }
            _ => {}
        }
        let mut model = ScenarioStart { scenario, hosted, order, request, calls: Vec::new() };
        forge.door().plan(Plan::Quiet);
        model.stage(forge).play(false).await.unwrap();
        model.calls = forge.door().plan(Plan::Quiet).into_iter().map(|call| call.operation).collect();
        model
    }

    fn stage<'a>(&self, forge: &'a Forge) -> ScenarioRun<'a> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("fleet-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let hosted = forge.copy_repo(&self.hosted, &name).unwrap();
        let (mut order, mut request) = (self.order.clone(), self.request.clone());
        match &mut order.strategy {
            DeliveryStrategy::PullRequest { url, .. } | DeliveryStrategy::Commit { url, .. } => {
                url.clone_from(&hosted.url)
            }
            _ => {}
        }
        let full = |name: &str| format!("/{name}/");
        request
            .iter_mut()
            .for_each(|r| r.url = r.url.replace(&full(self.hosted.repo.name()), &full(hosted.repo.name())));
        ScenarioRun { scenario: self.scenario, forge, hosted, bench: process(), order, request }
    }
}

impl ScenarioRun<'_> {
    async fn act(&self) -> Result<End, DeliveryError> {
        let (delivery, order) = (&self.bench.delivery, &self.order);
        let request = || self.request.as_ref().unwrap();
        match self.scenario {
            Scenario::Withdraws => delivery.withdraw(order, request(), "no more").await.map(End::Followed),
            Scenario::Follows | Scenario::FollowsMerged => {
                delivery.follow(order, request()).await.map(End::Followed)
            }
            Scenario::Merges | Scenario::LeavesUnreviewed => {
                delivery.advance(order, request()).await.map(End::Followed)
            }
            _ => delivery.deliver(order).await.map(End::Delivered),
        }
    }

    /// Tries until it is done; says how often, and what failed first.
    async fn play(&mut self, restarts: bool) -> Result<usize, String> {
        let mut said = Vec::new();
        for tries in 1..=TRIES {
            match self.act().await {
                // It is looked at again, as long as it is open.
                Ok(End::Followed(ChangeRequestStatus::Waits { why, .. }))
                    if self.scenario == Scenario::Merges =>
                {
                    said.push(why)
                }
                Ok(end) => return self.judge(&end).map(|()| tries).map_err(|e| format!("{e}; {said:?}")),
                Err(error) if error.retry() == Retry::OnChange => {
                    return Err(format!("only a person could help: {error}"));
                }
                Err(error) => said.push(error.to_string()),
            }
            self.order.retried = true;
            if restarts {
                self.bench = process();
            }
        }
        Err(format!("not done after {TRIES} tries: {said:?}"))
    }

    /// How it must be when it is done.
    fn judge(&self, end: &End) -> Result<(), String> {
        let calls = self.forge.door().calls();
        let denied = calls.iter().any(|call| {
            call.operation == "GET git/commits/n" && matches!(call.fault, Some(Fault::Refused(404 | 422)))
        });
        let requests = self.forge.requests(&self.hosted);
        let open: Vec<_> = requests.iter().filter(|r| r.state == State::Open).collect();
        let main = self.hosted.repo.read("main", FILE).unwrap();
        let log = self.hosted.repo.log("main").unwrap();
        let carried = log.iter().filter(|c| c.body.contains(&format!("{}\n", self.order.promotion))).count();
        let proposes =
            |merged| matches!(end, End::Delivered(Delivered::Proposed { merged: m, .. }) if *m == merged);
        let new = yaml("6.2.0");
        let (right, counts) = match self.scenario {
            Scenario::Opens | Scenario::Replaces | Scenario::Finds => {
                let shown = open.first().is_some_and(|r| {
                    r.title.contains("6.2.0 ") && self.hosted.repo.read(&r.head, FILE).unwrap() == new
                });
                (proposes(false) && shown, (1, 1, 0))
            }
            // A forge that does not show the merge is answered by the base: what it holds is delivered.
            Scenario::FindsMerged => {
                let set = matches!(end, End::Delivered(Delivered::AlreadySet { .. }));
                ((proposes(true) || denied && set) && main == new, (1, 0, 1))
            }
            Scenario::FollowsMerged | Scenario::Merges => {
                let right = |ours: &bool| *ours || denied;
                (
                    matches!(end, End::Followed(ChangeRequestStatus::Merged { ours, .. }) if right(ours)),
                    (1, 0, 1),
                )
            }
            Scenario::FindsClosed => (matches!(end, End::Delivered(Delivered::Rejected { .. })), (1, 0, 0)),
            Scenario::FindsItNeedless => {
                (matches!(end, End::Delivered(Delivered::AlreadySet { .. })), (1, 0, 0))
            }
            Scenario::Withdraws => {
                let said = requests[0].comments.len() <= 1;
                (*end == End::Followed(ChangeRequestStatus::Closed) && said, (1, 0, 0))
            }
            Scenario::LeavesUnreviewed => {
                (matches!(end, End::Followed(ChangeRequestStatus::Waits { .. })), (1, 1, 0))
            }
            Scenario::Follows => (matches!(end, End::Followed(ChangeRequestStatus::Open { .. })), (1, 1, 0)),
            Scenario::Commits | Scenario::FindsCommit => {
                (matches!(end, End::Delivered(Delivered::Committed { .. })) && main == new, (0, 0, 1))
            }
        };
        let found = (requests.len(), open.len(), carried);
        if !right || found != counts {
            return Err(format!("{found:?}, not {counts:?} (all, open, carried): {end:?} {requests:#?}"));
        }
        self.forge.unbroken().map_err(|e| e.to_string())
    }
}

/// What one worker has seen.
#[derive(Default)]
struct Tally {
    cases: usize,
    rebuilds: u64,
    slowest: Duration,
    tries: BTreeMap<usize, usize>,
    wrong: Vec<String>,
}

/// Whether a call need not meet a fault, unless the large fire is asked for: for git, one status is as
/// good as another, and a fetch is the same whoever makes it.
fn is_like_another(scenario: Scenario, operation: Option<&String>, fault: Fault) -> bool {
    let Some(operation) = operation.filter(|operation| operation.starts_with("git ") && !is_large()) else {
        return false;
    };
    let like = [403, 404, 409, 422, 429, 500, 502].map(Fault::Refused);
    let fetches =
        operation.ends_with("fetch") && matches!(scenario, Scenario::Replaces | Scenario::FindsItNeedless);
    fetches || like.contains(&fault) || matches!(fault, Fault::Hidden | Fault::Slow)
}

/// Whether the large fire is asked for.
pub fn is_large() -> bool {
    std::env::var_os("SLUICE_FIRE_ROUNDS").is_some()
}

/// Plays one fault at each call of a scenario, until there are no more calls.
async fn inject_fault(
    model: &ScenarioStart,
    fault: Fault,
    restarts: bool,
    forge: &Forge,
    tally: &Mutex<Tally>,
) {
    let scenario = model.scenario;
    for call in 1.. {
        if is_like_another(scenario, model.calls.get(call - 1), fault) {
            continue;
        }
        let mut stage = model.stage(forge);
        forge.door().plan(Plan::Once { call, fault });
        let started = Instant::now();
        let outcome = stage.play(restarts).await;
        let calls = forge.door().plan(Plan::Quiet);
        let Some(met) = calls.get(call - 1) else { return };
        let mut tally = tally.lock().unwrap();
        tally.cases += 1;
        tally.rebuilds += stage.bench.delivery.stats().git_rebuilds;
        tally.slowest = tally.slowest.max(started.elapsed());
        match outcome {
            Ok(tries) => *tally.tries.entry(tries).or_default() += 1,
            Err(error) => tally.wrong.push(format!(
                "{scenario:?}, {fault:?} at call {call} ({}), restarts: {restarts}: {error}",
                met.operation
            )),
        }
    }
}

/// How many play side by side, each with a forge of its own: most of them wait for git.
const WORKERS: usize = 4;

#[test]
fn every_fault_at_every_call_of_every_delivery() {
    let mut cases = Vec::new();
    for scenario in SCENARIOS {
        for fault in Fault::ALL {
            cases.push((scenario, fault, false));
            if fault == Fault::Lost || is_large() && fault == Fault::Half {
                cases.push((scenario, fault, true));
            }
        }
    }
    // What waits longest comes first, and is waited for side by side.
    cases.sort_by_key(|(_, fault, _)| *fault != Fault::Silent);
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let forge = Forge::start().unwrap();
        let mut models = BTreeMap::new();
        while let Some((scenario, fault, restarts)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(async {
                if !models.contains_key(scenario) {
                    models.insert(*scenario, ScenarioStart::make(*scenario, &forge).await);
                }
                inject_fault(&models[scenario], *fault, *restarts, &forge, &tally).await;
            });
        }
    };
    let started = Instant::now();
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let Tally { cases, rebuilds, slowest, tries, wrong } = tally.into_inner().unwrap();
    let took = started.elapsed();
    println!(
        "{cases} faults, one at a time, in {took:?}: tries {tries:?}, slowest {slowest:?}, caches built anew {rebuilds}"
    );
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 300, "only {cases} cases");
}
