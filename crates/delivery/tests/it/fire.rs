//! Every fault at every single call of a delivery, one at a time: when it is over, a few more tries
//! bring what there would have been without it, and nothing twice.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_delivery::{
    ChangeRequest, Delivered, DeliveryError, Followed, ForgeKind, Merge, Order, Retry, Settings, Strategy,
};
use sluice_testkit::fire::{Fault, Forge, Hosted, Plan, State};

use crate::fixture::{Bench, FILE, again, bench, bench_with, order, yaml};

/// How long one git or one call may take here: what is silent is waited for so long.
const DEADLINE: Duration = Duration::from_secs(3);
/// So many tries are enough for one fault, also where a slow machine adds a few of its own.
const TRIES: usize = 12;

/// Something that is done at a forge, and how it was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scene {
    /// The first change request for an environment.
    Opens,
    /// One is open for an earlier revision.
    Replaces,
    /// An earlier try has opened it, and nobody knows.
    Finds,
    /// An earlier try has opened it, and it was merged since.
    FindsMerged,
    /// An earlier try has opened it, and a person closed it since.
    FindsClosed,
    /// One is open for an earlier revision, and somebody brought this one by hand.
    FindsItNeedless,
    /// One is open, and not wanted any more.
    Withdraws,
    /// One is open, and looked at.
    Follows,
    /// One was merged, and is looked at.
    FollowsMerged,
    /// One is open, somebody has reviewed it, and Sluice is to merge it.
    Merges,
    /// The same, and somebody has pushed to it since.
    LeavesUnreviewed,
    /// A commit.
    Commits,
    /// A commit that an earlier try has made; another one came after it.
    FindsCommit,
}

const SCENES: [Scene; 13] = [
    Scene::Opens,
    Scene::Replaces,
    Scene::Finds,
    Scene::FindsMerged,
    Scene::FindsClosed,
    Scene::FindsItNeedless,
    Scene::Withdraws,
    Scene::Follows,
    Scene::FollowsMerged,
    Scene::Merges,
    Scene::LeavesUnreviewed,
    Scene::Commits,
    Scene::FindsCommit,
];

/// One scene with a repository of its own.
struct Stage<'a> {
    scene: Scene,
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
    Followed(Followed),
}

fn process() -> Bench {
    bench_with(|o| o.deadline = DEADLINE)
}

/// A scene as it is before it begins: made once, and copied for each time it is played.
struct Model {
    scene: Scene,
    hosted: Hosted,
    order: Order,
    request: Option<ChangeRequest>,
    /// What is called when nothing goes wrong.
    calls: Vec<String>,
}

impl Model {
    /// Brings a repository to where the scene begins, and plays it once.
    async fn make(scene: Scene, forge: &Forge) -> Model {
        let hosted = forge.create_repo(&format!("{scene:?}"), &[(FILE, &yaml("6.1.5"))]).unwrap();
        let url = hosted.url.clone();
        let strategy = match scene {
            Scene::Commits | Scene::FindsCommit => Strategy::Commit { url, branch: "main".into() },
            _ => Strategy::PullRequest {
                forge: ForgeKind::GitHub,
                url,
                base: "main".into(),
                settings: Box::new(Settings {
                    merge: match scene {
                        Scene::Merges | Scene::LeavesUnreviewed => Merge::WhenGreen,
                        _ => Merge::Never,
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
        let order = match scene {
            Scene::Opens | Scene::Commits => this,
            Scene::Replaces => {
                stage(&earlier).await;
                this
            }
            Scene::FindsItNeedless => {
                stage(&earlier).await;
                hosted.repo.commit("main", "by hand", &[(FILE, &yaml("6.2.0"))]).unwrap();
                this
            }
            Scene::Finds | Scene::FindsMerged | Scene::FindsClosed | Scene::FindsCommit => {
                stage(&this).await;
                again(&this)
            }
            Scene::Withdraws
            | Scene::Follows
            | Scene::FollowsMerged
            | Scene::Merges
            | Scene::LeavesUnreviewed => {
                stage(&this).await;
                this
            }
        };
        match scene {
            Scene::FindsMerged | Scene::FollowsMerged => assert_eq!(forge.merge(&hosted), 1),
            Scene::FindsClosed => forge.close(&hosted, 1),
            Scene::Merges => forge.review(&hosted),
            Scene::LeavesUnreviewed => {
                forge.review(&hosted);
                hosted.repo.commit(&order.branch(), "by hand", &[("a.yaml", "a: b\n")]).unwrap();
            }
            Scene::FindsCommit => drop(hosted.repo.commit("main", "other", &[("a.yaml", "a: b\n")]).unwrap()),
            _ => {}
        }
        let mut model = Model { scene, hosted, order, request, calls: Vec::new() };
        forge.door().plan(Plan::Quiet);
        model.stage(forge).play(false).await.unwrap();
        model.calls = forge.door().plan(Plan::Quiet).into_iter().map(|call| call.operation).collect();
        model
    }

    fn stage<'a>(&self, forge: &'a Forge) -> Stage<'a> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("fleet-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let hosted = forge.copy_repo(&self.hosted, &name).unwrap();
        let (mut order, mut request) = (self.order.clone(), self.request.clone());
        match &mut order.strategy {
            Strategy::PullRequest { url, .. } | Strategy::Commit { url, .. } => url.clone_from(&hosted.url),
            _ => {}
        }
        let full = |name: &str| format!("/{name}/");
        request
            .iter_mut()
            .for_each(|r| r.url = r.url.replace(&full(self.hosted.repo.name()), &full(hosted.repo.name())));
        Stage { scene: self.scene, forge, hosted, bench: process(), order, request }
    }
}

impl Stage<'_> {
    async fn act(&self) -> Result<End, DeliveryError> {
        let (delivery, order) = (&self.bench.delivery, &self.order);
        let request = || self.request.as_ref().unwrap();
        match self.scene {
            Scene::Withdraws => delivery.withdraw(order, request(), "no more").await.map(End::Followed),
            Scene::Follows | Scene::FollowsMerged => {
                delivery.follow(order, request()).await.map(End::Followed)
            }
            Scene::Merges | Scene::LeavesUnreviewed => {
                delivery.tend(order, request()).await.map(End::Followed)
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
                Ok(End::Followed(Followed::Waits { why, .. })) if self.scene == Scene::Merges => {
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
        let (right, counts) = match self.scene {
            Scene::Opens | Scene::Replaces | Scene::Finds => {
                let shown = open.first().is_some_and(|r| {
                    r.title.contains("6.2.0 ") && self.hosted.repo.read(&r.head, FILE).unwrap() == new
                });
                (proposes(false) && shown, (1, 1, 0))
            }
            // A forge that does not show the merge is answered by the base: what it holds is delivered.
            Scene::FindsMerged => {
                let set = matches!(end, End::Delivered(Delivered::AlreadySet { .. }));
                ((proposes(true) || denied && set) && main == new, (1, 0, 1))
            }
            Scene::FollowsMerged | Scene::Merges => {
                let right = |ours: &bool| *ours || denied;
                (matches!(end, End::Followed(Followed::Merged { ours, .. }) if right(ours)), (1, 0, 1))
            }
            Scene::FindsClosed => (matches!(end, End::Delivered(Delivered::Rejected { .. })), (1, 0, 0)),
            Scene::FindsItNeedless => {
                (matches!(end, End::Delivered(Delivered::AlreadySet { .. })), (1, 0, 0))
            }
            Scene::Withdraws => {
                let said = requests[0].comments.len() <= 1;
                (*end == End::Followed(Followed::Closed) && said, (1, 0, 0))
            }
            Scene::LeavesUnreviewed => (matches!(end, End::Followed(Followed::Waits { .. })), (1, 1, 0)),
            Scene::Follows => (matches!(end, End::Followed(Followed::Open { .. })), (1, 1, 0)),
            Scene::Commits | Scene::FindsCommit => {
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
fn is_like_another(scene: Scene, operation: Option<&String>, fault: Fault) -> bool {
    let Some(operation) = operation.filter(|operation| operation.starts_with("git ") && !is_large()) else {
        return false;
    };
    let like = [403, 404, 409, 422, 429, 500, 502].map(Fault::Refused);
    let fetches = operation.ends_with("fetch") && matches!(scene, Scene::Replaces | Scene::FindsItNeedless);
    fetches || like.contains(&fault) || matches!(fault, Fault::Hidden | Fault::Slow)
}

/// Whether the large fire is asked for.
pub fn is_large() -> bool {
    std::env::var_os("SLUICE_FIRE_ROUNDS").is_some()
}

/// Plays one fault at each call of a scene, until there are no more calls.
async fn burn(model: &Model, fault: Fault, restarts: bool, forge: &Forge, tally: &Mutex<Tally>) {
    let scene = model.scene;
    for call in 1.. {
        if is_like_another(scene, model.calls.get(call - 1), fault) {
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
                "{scene:?}, {fault:?} at call {call} ({}), restarts: {restarts}: {error}",
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
    for scene in SCENES {
        for fault in Fault::ALL {
            cases.push((scene, fault, false));
            if fault == Fault::Lost || is_large() && fault == Fault::Half {
                cases.push((scene, fault, true));
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
        while let Some((scene, fault, restarts)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(async {
                if !models.contains_key(scene) {
                    models.insert(*scene, Model::make(*scene, &forge).await);
                }
                burn(&models[scene], *fault, *restarts, &forge, &tally).await;
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
