//! Three replicas that share the pipelines: one is killed, stopped for longer than its Lease, or told
//! to end, each time in the middle of deliveries. Nothing is lost, nothing is made twice. And two that
//! both believe to be the only one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use sluice_controller::key::PipelineKey;
use sluice_controller::shard::shard_of;
use sluice_testkit::fault_injection::{ConflictInjector, WriteFault};
use sluice_testkit::{Cluster, GitServer, Repo, eventually, shared_gitea};

use crate::crash::{marked, pipeline};
use crate::place::{Place, SOON, revision};
use crate::process::Controller;
use crate::{releases, run};

const SHARDS: u32 = 3;
/// Of each shard so many pipelines are in the middle of a delivery.
const OF_EACH: usize = 2;

/// An application in dev and prod, at 1.0.0, with its pipeline.
async fn application(place: &Place, repo: &Repo, name: &str, strategy: &str) -> Result<()> {
    let n = &place.namespace;
    repo.commit("main", "add", &[(&format!("{name}.yaml"), &marked(n, name, "1.0.0"))])?;
    for leaf in ["dev", "prod"] {
        releases::create(place.leaf(leaf), n, name, json!({})).await?;
        releases::runs(place.leaf(leaf), n, name, "1.0.0", true).await?;
    }
    place.apply(&pipeline(n, name, strategy)).await?;
    let at_rest = |p: &sluice_api::Pipeline| revision(p, "prod") == "1.0.0" && revision(p, "dev") == "1.0.0";
    place.until(name, "all runs 1.0.0", at_rest).await.map(drop)
}

fn by_commit(repo: &Repo) -> String {
    format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: git}}}}}}", repo.url())
}

struct Scene {
    place: Place,
    repo: Repo,
    replicas: Vec<Controller>,
    /// What is between the replicas and the hub, if anything.
    conflicts: Option<ConflictInjector>,
}

impl Scene {
    async fn new(conflicts: impl FnOnce(&Cluster) -> Result<Option<ConflictInjector>>) -> Result<Scene> {
        let place = Place::new("replicas").await?;
        let repo = place.shared.git.create_repo(&place.namespace, &[("README.md", "fleet\n")])?;
        place.secret("git", &[("username", GitServer::USER), ("password", GitServer::PASSWORD)]).await?;
        let conflicts = conflicts(&place.shared.hub)?;
        let mut scene = Scene { place, repo, replicas: Vec::new(), conflicts };
        for place in 0..3 {
            let replica = scene.replica(place)?;
            scene.replicas.push(replica);
        }
        Ok(scene)
    }

    fn replica(&self, place: usize) -> Result<Controller> {
        let shards = format!("--shards={SHARDS}");
        let hub = match &self.conflicts {
            Some(conflicts) => conflicts.kubeconfig_path(),
            None => self.place.shared.hub.kubeconfig_path(),
        };
        Controller::replica(&format!("host-{place}"), hub, &self.place.namespace, &[&shards])
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.place.client.clone(), &self.place.namespace)
    }

    /// Who holds each of the shards.
    async fn holders(&self) -> Result<Vec<String>> {
        let mut holders = Vec::new();
        for shard in 0..SHARDS {
            let lease = self.leases().get(&format!("sluice.{}.shard-{shard}", self.place.namespace)).await?;
            holders.push(lease.spec.and_then(|s| s.holder_identity).unwrap_or_default());
        }
        Ok(holders)
    }

    /// Waits until each replica holds a shard.
    async fn until_even(&self) -> Result<Vec<String>> {
        eventually(SOON, || async {
            let holders = self.holders().await?;
            let all: BTreeSet<&String> = holders.iter().filter(|h| !h.is_empty()).collect();
            ensure!(all.len() == 3, "held by {holders:?}");
            Ok(holders)
        })
        .await
    }

    /// Pipelines of every shard that are delivering, which hangs, and who holds the first shard.
    async fn amid_deliveries(&self, round: &str) -> Result<(Vec<String>, String, usize)> {
        let key = |name: &String| PipelineKey { namespace: self.place.namespace.clone(), name: name.clone() };
        let mut names: Vec<String> = Vec::new();
        for shard in 0..SHARDS {
            let of = (0..).map(|i| format!("{round}-{i}x")).filter(|n| shard_of(&key(n), SHARDS) == shard);
            names.extend(of.take(OF_EACH));
        }
        let strategy = by_commit(&self.repo);
        for name in &names {
            application(&self.place, &self.repo, name, &strategy).await?;
        }
        let holders = self.until_even().await?;
        self.repo.tap().hang(true);
        for name in &names {
            releases::runs(self.place.leaf("dev"), &self.place.namespace, name, "1.1.0", true).await?;
        }
        // Recorded, and begun a moment later: what hangs is fetched from git.
        for name in &names {
            self.place.until_story(name, "prod", &["1.1.0 Pending"]).await?;
        }
        let place = holders[0].strip_prefix("host-").and_then(|rest| rest.get(..1)).context("a host")?;
        Ok((names, holders[0].clone(), place.parse()?))
    }

    /// Waits until others hold what one has held, and says how long it took.
    async fn until_taken_over(&self, from: &str, since: Instant) -> Result<Duration> {
        eventually(SOON, || async {
            let holders = self.holders().await?;
            ensure!(
                holders.iter().all(|h| h != from && !h.is_empty()),
                "held by {holders:?}, not all by others"
            );
            Ok(since.elapsed())
        })
        .await
    }

    /// Everything was delivered, and once.
    async fn delivered(&self, names: &[String]) -> Result<()> {
        for name in names {
            let story = self.place.until_story(name, "prod", &["1.1.0 Delivered"]).await;
            let tails: Vec<String> = self.replicas.iter().map(Controller::tail).collect();
            story.with_context(|| tails.join("\n---\n"))?;
        }
        self.once(names)
    }

    fn once(&self, names: &[String]) -> Result<()> {
        let log = self.repo.log("main")?;
        for name in names {
            let commits = log.iter().filter(|c| c.subject.contains(&format!("Promote {name} "))).count();
            ensure!(commits == 1, "{name}: {commits} commits of {log:?}");
        }
        Ok(())
    }
}

#[test]
fn one_of_three_is_killed_stopped_or_told_to_end_amid_deliveries() -> Result<()> {
    run(async {
        let mut scene = Scene::new(|_| Ok(None)).await?;

        let (names, victim, place) = scene.amid_deliveries("kill").await?;
        let since = Instant::now();
        scene.replicas[place].kill();
        let took = scene.until_taken_over(&victim, since).await?;
        println!("after a kill others held its shards within {took:?}");
        // The Lease of 10 seconds has to run out; what a busy machine adds is less than another one.
        ensure!(took < Duration::from_secs(30), "{took:?}");
        scene.repo.tap().hang(false);
        scene.delivered(&names).await?;
        scene.replicas[place] = scene.replica(place)?;

        let (names, victim, place) = scene.amid_deliveries("stop").await?;
        let since = Instant::now();
        scene.replicas[place].freeze()?;
        let took = scene.until_taken_over(&victim, since).await?;
        println!("of one that was stopped others held its shards within {took:?}");
        scene.repo.tap().hang(false);
        scene.delivered(&names).await?;
        let before = scene.place.promotions().list(&ListParams::default()).await?.items;
        let pushed = scene.repo.requests().push;
        scene.replicas[place].thaw()?;
        // It comes back as somebody else, and has its share again.
        let (life, old) =
            (victim.split('-').take(2).collect::<Vec<_>>().join("-"), format!("replica-{victim}"));
        let is_reborn = |name: &str| name.contains(&format!(".replica-{life}")) && !name.ends_with(&old);
        eventually(SOON, || async {
            let leases = scene.leases().list(&ListParams::default()).await?.items;
            let names: Vec<String> = leases.iter().map(ResourceExt::name_any).collect();
            ensure!(names.iter().any(|name| is_reborn(name)), "{names:?}, and none of {life} but {old}");
            Ok(())
        })
        .await?;
        scene.until_even().await?;
        scene.once(&names)?;
        // What it had begun did and wrote nothing more anywhere, not even what would have changed nothing.
        ensure!(scene.repo.requests().push == pushed, "it pushed: {}", scene.replicas[place].tail());
        let version = |p: &sluice_api::Promotion| (p.name_any(), p.resource_version());
        let after = scene.place.promotions().list(&ListParams::default()).await?.items;
        let (before, after): (Vec<_>, Vec<_>) =
            (before.iter().map(version).collect(), after.iter().map(version).collect());
        ensure!(before == after, "{before:?} became {after:?}: {}", scene.replicas[place].tail());

        let (names, victim, place) = scene.amid_deliveries("term").await?;
        let since = Instant::now();
        scene.replicas[place].terminate()?;
        let took = scene.until_taken_over(&victim, since).await?;
        println!("of one that was told to end others held its shards within {took:?}");
        // It gives them back: nothing has to run out.
        ensure!(took < Duration::from_secs(8), "{took:?}");
        scene.repo.tap().hang(false);
        scene.delivered(&names).await?;
        scene.replicas[place].dies(SOON).await
    })
}

/// Longer than a Lease lasts.
const LONGER: Duration = Duration::from_secs(15);

#[test]
fn leases_are_kept_and_handed_back_where_each_write_of_them_clashes() -> Result<()> {
    run(async {
        let scene =
            Scene::new(|hub| ConflictInjector::in_front_of(hub, &[WriteFault::Conflict]).map(Some)).await?;
        scene.until_even().await?;
        // Held by the same for so long that it was renewed again and again.
        let holders = eventually(SOON, || async {
            let leases = scene.leases().list(&ListParams::default()).await?.items;
            let shards = leases.iter().filter(|lease| lease.name_any().contains(".shard-"));
            for spec in shards.filter_map(|lease| lease.spec.as_ref()) {
                let since = spec.acquire_time.as_ref().context("acquired")?.0;
                let until = spec.renew_time.as_ref().context("renewed")?.0;
                let kept = Duration::try_from(until.duration_since(since))?;
                ensure!(kept > LONGER, "kept for {kept:?}: {spec:?}");
            }
            scene.holders().await
        })
        .await?;
        let all: BTreeSet<&String> = holders.iter().collect();
        ensure!(all.len() == 3, "held by {holders:?}");

        let name = "clashing";
        application(&scene.place, &scene.repo, name, &by_commit(&scene.repo)).await?;
        let key = PipelineKey { namespace: scene.place.namespace.clone(), name: name.into() };
        let holder = holders[shard_of(&key, SHARDS) as usize].clone();
        releases::runs(scene.place.leaf("dev"), &scene.place.namespace, name, "1.1.0", true).await?;
        let place: usize =
            holder.strip_prefix("host-").and_then(|rest| rest.get(..1)).context("a host")?.parse()?;
        let since = Instant::now();
        scene.replicas[place].terminate()?;
        let took = scene.until_taken_over(&holder, since).await?;
        println!("of one that was told to end others held its shards within {took:?}");
        scene.delivered(&[name.to_owned()]).await
    })
}

#[test]
fn two_that_both_believe_to_be_alone_make_nothing_twice() -> Result<()> {
    run(async {
        let place = Place::new("alone").await?;
        let n = place.namespace.clone();
        let repo = place.shared.git.create_repo(&n, &[("README.md", "fleet\n")])?;
        place.secret("git", &[("username", GitServer::USER), ("password", GitServer::PASSWORD)]).await?;
        let gitea = shared_gitea().await?;
        let forge = gitea.create_repo(&n, &[("README.md", "fleet\n")]).await?;
        place.forge_secret().await?;
        let by_request =
            format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", forge.url());
        let (hub, alone) = (&place.shared.hub, ["--leader-elect=false"]);
        let (one, two) = (Controller::start(hub, &n, &alone)?, Controller::start(hub, &n, &alone)?);
        let (commits, requests) = (["c-0x", "c-1x", "c-2x", "c-3x"], ["r-0x", "r-1x"]);
        for name in commits {
            application(&place, &repo, name, &by_commit(&repo)).await?;
        }
        for name in requests {
            application(&place, &forge, name, &by_request).await?;
        }
        let tails = || format!("{}\n---\n{}", one.tail(), two.tail());
        let mut stories: Vec<String> = Vec::new();
        for version in ["1.1.0", "1.2.0"] {
            for name in commits.iter().chain(&requests) {
                releases::runs(place.leaf("dev"), &n, name, version, true).await?;
            }
            let story = |phase: &str| [&stories[..], &[format!("{version} {phase}")]].concat();
            for name in requests {
                let wanted = story("Proposed");
                let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
                place.until_story(name, "prod", &wanted).await.with_context(tails)?;
                let branch = format!("sluice/{n}/{name}/prod");
                let pulls = forge.pulls("all").await?;
                let open: Vec<_> =
                    pulls.iter().filter(|p| p.head.branch == branch && p.state == "open").collect();
                let all = pulls.iter().filter(|p| p.head.branch == branch).count();
                ensure!(open.len() == 1 && all == stories.len() + 1, "{name}: {pulls:?}");
                forge.merge(open[0].number).await?;
            }
            for name in commits.iter().chain(&requests) {
                let wanted = story("Delivered");
                let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
                place.until_story(name, "prod", &wanted).await.with_context(tails)?;
                releases::runs(place.leaf("prod"), &n, name, version, true).await?;
            }
            stories = story("Succeeded");
            let wanted: Vec<&str> = stories.iter().map(String::as_str).collect();
            for name in commits.iter().chain(&requests) {
                place.until_story(name, "prod", &wanted).await.with_context(tails)?;
            }
        }
        for (repo, names) in [(&repo, &commits[..]), (&*forge, &requests[..])] {
            let log = repo.log("main")?;
            for name in names {
                let carries =
                    |c: &&sluice_testkit::LoggedCommit| c.subject.contains(&format!("Promote {name} "));
                let made = log.iter().filter(carries).count();
                ensure!(made == 2, "{name}: {made} commits of {log:?}");
            }
        }
        Ok(())
    })
}
