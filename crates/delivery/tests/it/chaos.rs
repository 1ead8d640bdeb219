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
use sluice_testkit::fault_injection::{ChaosForge, Fault, FaultPlan, HostedRepo, PullState};

use crate::fixture::{Bench, FILE, again, bench, bench_with, git, order, yaml};

/// The time limit of one run of git or one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of tries after one fault, with a few more for a slow machine.
const MAX_TRIES: usize = 12;

/// Something to deliver, and the state of the forge before.
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

/// One run of a scenario, with its own repository.
struct ScenarioRun<'a> {
    scenario: Scenario,
    forge: &'a ChaosForge,
    hosted: HostedRepo,
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

/// Returns a delivery without state, as after a restart of the controller.
fn new_process() -> Bench {
    bench_with(|o| o.deadline = CALL_TIMEOUT)
}

/// The start of a scenario: made once, and copied for each run.
struct ScenarioStart {
    scenario: Scenario,
    hosted: HostedRepo,
    order: Order,
    request: Option<ChangeRequest>,
    /// The operations of the calls without a fault.
    calls: Vec<String>,
}

impl ScenarioStart {
    /// Prepares a repository for the scenario, and runs it once.
    async fn prepare(scenario: Scenario, forge: &ChaosForge) -> ScenarioStart {
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
        let mut deliver = async |order: &Order| match bench.delivery.deliver(order).await.unwrap() {
            Delivered::Proposed { request: made, .. } => request = Some(made),
            _ => request = None,
        };
        let order = match scenario {
            Scenario::Opens | Scenario::Commits => this,
            Scenario::Replaces => {
                deliver(&earlier).await;
                this
            }
            Scenario::FindsItNeedless => {
                deliver(&earlier).await;
                hosted.repo.commit("main", "by hand", &[(FILE, &yaml("6.2.0"))]).unwrap();
                this
            }
            Scenario::Finds | Scenario::FindsMerged | Scenario::FindsClosed | Scenario::FindsCommit => {
                deliver(&this).await;
                again(&this)
            }
            Scenario::Withdraws
            | Scenario::Follows
            | Scenario::FollowsMerged
            | Scenario::Merges
            | Scenario::LeavesUnreviewed => {
                deliver(&this).await;
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
        let mut start = ScenarioStart { scenario, hosted, order, request, calls: Vec::new() };
        forge.fault_proxy().set_plan(FaultPlan::Quiet);
        start.new_run(forge).run(false).await.unwrap();
        start.calls =
            forge.fault_proxy().set_plan(FaultPlan::Quiet).into_iter().map(|call| call.operation).collect();
        start
    }

    /// Copies the repository for a run.
    fn new_run<'a>(&self, forge: &'a ChaosForge) -> ScenarioRun<'a> {
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
        let in_path = |name: &str| format!("/{name}/");
        request.iter_mut().for_each(|r| {
            r.url = r.url.replace(&in_path(self.hosted.repo.name()), &in_path(hosted.repo.name()))
        });
        ScenarioRun { scenario: self.scenario, forge, hosted, bench: new_process(), order, request }
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
                delivery.advance(order, request()).await.map(|look| End::Followed(look.status))
            }
            _ => delivery.deliver(order).await.map(End::Delivered),
        }
    }

    /// Tries until the scenario is done. Returns the number of tries.
    async fn run(&mut self, restarts: bool) -> Result<usize, String> {
        let mut errors = Vec::new();
        for tries in 1..=MAX_TRIES {
            match self.act().await {
                // An open change request is checked again.
                Ok(End::Followed(ChangeRequestStatus::Waits { why, .. }))
                    if self.scenario == Scenario::Merges =>
                {
                    errors.push(why)
                }
                Ok(end) => return self.check(&end).map(|()| tries).map_err(|e| format!("{e}; {errors:?}")),
                Err(error) if error.retry() == Retry::OnChange => {
                    return Err(format!("the error is not retried: {error}"));
                }
                Err(error) => errors.push(error.to_string()),
            }
            self.order.retried = true;
            if restarts {
                self.bench = new_process();
            }
        }
        Err(format!("not done after {MAX_TRIES} tries: {errors:?}"))
    }

    /// Checks the result of a scenario that is done.
    fn check(&self, end: &End) -> Result<(), String> {
        let calls = self.forge.fault_proxy().calls();
        let denied = calls.iter().any(|call| {
            call.operation == "GET git/commits/n" && matches!(call.fault, Some(Fault::Refused(404 | 422)))
        });
        let requests = self.forge.requests(&self.hosted);
        let open: Vec<_> = requests.iter().filter(|r| r.state == PullState::Open).collect();
        let main = self.hosted.repo.read("main", FILE).unwrap();
        let log = self.hosted.repo.log("main").unwrap();
        let deliveries =
            log.iter().filter(|c| c.body.contains(&format!("{}\n", self.order.promotion))).count();
        let proposes =
            |merged| matches!(end, End::Delivered(Delivered::Proposed { merged: m, .. }) if *m == merged);
        let new = yaml("6.2.0");
        let (is_right, expected) = match self.scenario {
            Scenario::Opens | Scenario::Replaces | Scenario::Finds => {
                let is_shown = open.first().is_some_and(|r| {
                    r.title.contains("6.2.0 ") && self.hosted.repo.read(&r.head, FILE).unwrap() == new
                });
                (proposes(false) && is_shown, (1, 1, 0))
            }
            // If the forge denies the merge commit, the base shows that the revision is delivered.
            Scenario::FindsMerged => {
                let already_set = matches!(end, End::Delivered(Delivered::AlreadySet { .. }));
                ((proposes(true) || denied && already_set) && main == new, (1, 0, 1))
            }
            Scenario::FollowsMerged | Scenario::Merges => {
                let is_expected = |ours: &bool| *ours || denied;
                (
                    matches!(end, End::Followed(ChangeRequestStatus::Merged { ours, .. }) if is_expected(ours)),
                    (1, 0, 1),
                )
            }
            Scenario::FindsClosed => (matches!(end, End::Delivered(Delivered::Rejected { .. })), (1, 0, 0)),
            Scenario::FindsItNeedless => {
                (matches!(end, End::Delivered(Delivered::AlreadySet { .. })), (1, 0, 0))
            }
            Scenario::Withdraws => {
                let one_comment = requests[0].comments.len() <= 1;
                (*end == End::Followed(ChangeRequestStatus::Closed) && one_comment, (1, 0, 0))
            }
            Scenario::LeavesUnreviewed => {
                (matches!(end, End::Followed(ChangeRequestStatus::Waits { .. })), (1, 1, 0))
            }
            Scenario::Follows => (matches!(end, End::Followed(ChangeRequestStatus::Open { .. })), (1, 1, 0)),
            Scenario::Commits | Scenario::FindsCommit => {
                (matches!(end, End::Delivered(Delivered::Committed { .. })) && main == new, (0, 0, 1))
            }
        };
        let counts = (requests.len(), open.len(), deliveries);
        if !is_right || counts != expected {
            return Err(format!(
                "{counts:?}, not {expected:?} (change requests, open, deliveries): {end:?} {requests:#?}"
            ));
        }
        self.forge.check_invariants().map_err(|e| e.to_string())
    }
}

/// The results of all workers.
#[derive(Default)]
struct Tally {
    cases: usize,
    rebuilds: u64,
    slowest: Duration,
    tries: BTreeMap<usize, usize>,
    wrong: Vec<String>,
}

/// Returns true if the small chaos test skips a fault of a call, because the case equals another: statuses make no
/// difference for git, and a fetch is the same in several scenarios.
fn is_like_another(scenario: Scenario, operation: Option<&String>, fault: Fault) -> bool {
    let Some(operation) = operation.filter(|operation| operation.starts_with("git ") && !is_large()) else {
        return false;
    };
    let like = [403, 404, 409, 422, 429, 500, 502].map(Fault::Refused);
    let fetches =
        operation.ends_with("fetch") && matches!(scenario, Scenario::Replaces | Scenario::FindsItNeedless);
    fetches || like.contains(&fault) || matches!(fault, Fault::Hidden | Fault::Slow)
}

/// Returns true in the large chaos test.
pub fn is_large() -> bool {
    std::env::var_os("SLUICE_CHAOS_ROUNDS").is_some()
}

/// Runs a scenario with one fault at each of its calls, one run for each call.
async fn inject_fault(
    start: &ScenarioStart,
    fault: Fault,
    restarts: bool,
    forge: &ChaosForge,
    tally: &Mutex<Tally>,
) {
    let scenario = start.scenario;
    for call in 1.. {
        if is_like_another(scenario, start.calls.get(call - 1), fault) {
            continue;
        }
        let mut run = start.new_run(forge);
        forge.fault_proxy().set_plan(FaultPlan::Once { call, fault });
        let started = Instant::now();
        let outcome = run.run(restarts).await;
        let calls = forge.fault_proxy().set_plan(FaultPlan::Quiet);
        let Some(met) = calls.get(call - 1) else { return };
        let mut tally = tally.lock().unwrap();
        tally.cases += 1;
        tally.rebuilds += run.bench.delivery.stats().git_rebuilds;
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

/// The number of parallel workers, each with its own forge: they mostly wait for git.
const WORKERS: usize = 4;

#[test]
fn every_delivery_survives_every_fault_at_every_call() {
    let mut cases = Vec::new();
    for scenario in SCENARIOS {
        for fault in Fault::ALL {
            cases.push((scenario, fault, false));
            if fault == Fault::Lost || is_large() && fault == Fault::Half {
                cases.push((scenario, fault, true));
            }
        }
    }
    // The slowest cases first, so that they run in parallel.
    cases.sort_by_key(|(_, fault, _)| *fault != Fault::Silent);
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let forge = ChaosForge::start().unwrap();
        let mut starts = BTreeMap::new();
        while let Some((scenario, fault, restarts)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(async {
                if !starts.contains_key(scenario) {
                    starts.insert(*scenario, ScenarioStart::prepare(*scenario, &forge).await);
                }
                inject_fault(&starts[scenario], *fault, *restarts, &forge, &tally).await;
            });
        }
    };
    let started = Instant::now();
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let Tally { cases, rebuilds, slowest, tries, wrong } = tally.into_inner().unwrap();
    let took = started.elapsed();
    println!(
        "{cases} faults, one at a time, in {took:?}: tries {tries:?}, slowest {slowest:?}, caches rebuilt {rebuilds}"
    );
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 300, "only {cases} cases");
}

/// Another process has acted for the same promotion: with two leaders, neither sees what the other has done.
#[tokio::test]
async fn a_change_request_that_another_process_merged_is_not_opened_again() {
    let forge = ChaosForge::start().unwrap();
    let hosted = forge.create_repo("fleet", &[(FILE, &yaml("6.1.5"))]).unwrap();
    let (url, base) = (hosted.url.clone(), "main".to_string());
    let settings = Box::default();
    let strategy = DeliveryStrategy::PullRequest { forge: ForgeKind::GitHub, url, base, settings };
    let order = order(strategy, "6.2.0");
    let before = hosted.repo.head("main").unwrap();
    bench().delivery.deliver(&order).await.unwrap();
    assert_eq!(forge.merge(&hosted), 1);
    // The second process has read the branch before the merge, and asks the forge after it.
    git(hosted.repo.folder(), &["update-ref", "refs/heads/main", &before], "");
    let done = bench().delivery.deliver(&order).await.unwrap();
    assert!(matches!(done, Delivered::Proposed { merged: true, .. }), "{done:?}");
    assert_eq!(forge.requests(&hosted).len(), 1);
}
