//! Three replicas share the pipelines: one is killed, stopped for longer than its Lease, or terminated, each time
//! during deliveries. No promotion is lost, and none is made twice. Also, two controllers without an election act
//! for the same pipelines at the same time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sluice_controller::pipeline_key::PipelineKey;
use sluice_controller::shard::shard_of;
use sluice_testkit::fault_injection::{ApiServerProxy, WriteFault};
use sluice_testkit::{Cluster, GitServer, Repo, eventually, shared_gitea};

use crate::crash::{marked, pipeline};
use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

const SHARDS: u32 = 3;
/// How many pipelines of each shard have a delivery in flight.
const PIPELINES_PER_SHARD: usize = 2;

/// Creates an application at 1.0.0 in dev and prod, with a pipeline.
async fn application(place: &TestNamespace, repo: &Repo, name: &str, strategy: &str) -> Result<()> {
    let n = &place.namespace;
    repo.commit("main", "add", &[(&format!("{name}.yaml"), &marked(n, name, "1.0.0"))])?;
    for leaf in ["dev", "prod"] {
        releases::create_running(place.leaf(leaf), n, name, "1.0.0").await?;
    }
    place.apply(&pipeline(n, name, strategy)).await?;
    let at_rest = |p: &sluice_api::Pipeline| revision(p, "prod") == "1.0.0" && revision(p, "dev") == "1.0.0";
    place.until(name, "all runs 1.0.0", at_rest).await.map(drop)
}

fn commit_strategy(repo: &Repo) -> String {
    format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: git}}}}}}", repo.url())
}

struct ReplicaFixture {
    place: TestNamespace,
    repo: Repo,
    replicas: Vec<Controller>,
    /// Injects faults between the replicas and the hub, if the test wants them.
    conflicts: Option<ApiServerProxy>,
    /// More flags of all replicas.
    flags: &'static [&'static str],
}

impl ReplicaFixture {
    async fn new(
        flags: &'static [&'static str],
        conflicts: impl FnOnce(&Cluster) -> Result<Option<ApiServerProxy>>,
    ) -> Result<ReplicaFixture> {
        let place = TestNamespace::new("replicas").await?;
        let repo = place.shared.git.create_repo(&place.namespace, &[("README.md", "fleet\n")])?;
        place.secret("git", &[("username", GitServer::USER), ("password", GitServer::PASSWORD)]).await?;
        let conflicts = conflicts(&place.shared.hub)?;
        let mut fixture = ReplicaFixture { place, repo, replicas: Vec::new(), conflicts, flags };
        for index in 0..3 {
            let replica = fixture.replica(index)?;
            fixture.replicas.push(replica);
        }
        Ok(fixture)
    }

    fn replica(&self, index: usize) -> Result<Controller> {
        let shards = format!("--shards={SHARDS}");
        let hub = match &self.conflicts {
            Some(conflicts) => conflicts.kubeconfig_path(),
            None => self.place.shared.hub.kubeconfig_path(),
        };
        Controller::replica(
            &format!("host-{index}"),
            hub,
            &self.place.namespace,
            &[&[shards.as_str()], self.flags].concat(),
        )
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.place.client.clone(), &self.place.namespace)
    }

    /// Returns the holder of each shard.
    async fn holders(&self) -> Result<Vec<String>> {
        let mut holders = Vec::new();
        for shard in 0..SHARDS {
            let lease = self.leases().get(&format!("sluice.{}.shard-{shard}", self.place.namespace)).await?;
            holders.push(lease.spec.and_then(|s| s.holder_identity).unwrap_or_default());
        }
        Ok(holders)
    }

    /// Waits until each replica holds a shard.
    async fn until_each_holds_a_shard(&self) -> Result<Vec<String>> {
        eventually(SOON, || async {
            let holders = self.holders().await?;
            let all: BTreeSet<&String> = holders.iter().filter(|h| !h.is_empty()).collect();
            ensure!(all.len() == 3, "held by {holders:?}");
            Ok(holders)
        })
        .await
    }

    /// Starts deliveries, which hang, for pipelines of every shard. Returns the names of the pipelines, the holder
    /// of the first shard, and the number of that holder.
    async fn start_deliveries(&self, round: &str) -> Result<(Vec<String>, String, usize)> {
        let key = |name: &String| PipelineKey { namespace: self.place.namespace.clone(), name: name.clone() };
        let mut names: Vec<String> = Vec::new();
        for shard in 0..SHARDS {
            let of = (0..).map(|i| format!("{round}-{i}x")).filter(|n| shard_of(&key(n), SHARDS) == shard);
            names.extend(of.take(PIPELINES_PER_SHARD));
        }
        let strategy = commit_strategy(&self.repo);
        for name in &names {
            application(&self.place, &self.repo, name, &strategy).await?;
        }
        let holders = self.until_each_holds_a_shard().await?;
        self.repo.tap().hang(true);
        for name in &names {
            releases::runs(self.place.leaf("dev"), &self.place.namespace, name, "1.1.0", true).await?;
        }
        // The promotions are recorded, and their deliveries hang at the fetch a moment later.
        for name in &names {
            self.place.until_promotions(name, "prod", &["1.1.0 Pending"]).await?;
        }
        let index = holders[0].strip_prefix("host-").and_then(|rest| rest.get(..1)).context("a host")?;
        Ok((names, holders[0].clone(), index.parse()?))
    }

    /// Waits until other replicas hold all shards, and returns how long that took.
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

    /// Checks that 1.1.0 was delivered for all pipelines, once for each.
    async fn check_delivered(&self, names: &[String]) -> Result<()> {
        for name in names {
            let delivered = self.place.until_promotions(name, "prod", &["1.1.0 Delivered"]).await;
            let tails: Vec<String> = self.replicas.iter().map(Controller::tail).collect();
            delivered.with_context(|| tails.join("\n---\n"))?;
        }
        self.check_delivered_once(names)
    }

    fn check_delivered_once(&self, names: &[String]) -> Result<()> {
        let log = self.repo.log("main")?;
        for name in names {
            let commits = log.iter().filter(|c| c.subject.contains(&format!("Promote {name} "))).count();
            ensure!(commits == 1, "{name}: {commits} commits of {log:?}");
        }
        Ok(())
    }
}

#[test]
fn nothing_is_lost_or_made_twice_if_one_of_three_replicas_is_killed_stopped_or_terminated() -> Result<()> {
    run(async {
        let mut fixture = ReplicaFixture::new(&[], |_| Ok(None)).await?;

        let (names, victim, index) = fixture.start_deliveries("kill").await?;
        let since = Instant::now();
        fixture.replicas[index].kill();
        let took = fixture.until_taken_over(&victim, since).await?;
        println!("after a kill others held its shards within {took:?}");
        // The Lease of 10 seconds must expire, and a busy machine may take longer.
        ensure!(took < Duration::from_secs(30), "{took:?}");
        fixture.repo.tap().hang(false);
        fixture.check_delivered(&names).await?;
        fixture.replicas[index] = fixture.replica(index)?;

        let (names, victim, index) = fixture.start_deliveries("stop").await?;
        let since = Instant::now();
        fixture.replicas[index].freeze()?;
        let took = fixture.until_taken_over(&victim, since).await?;
        println!("after a stop others held its shards within {took:?}");
        fixture.repo.tap().hang(false);
        fixture.check_delivered(&names).await?;
        let before = fixture.place.promotions().list(&ListParams::default()).await?.items;
        let pushed = fixture.repo.requests().push;
        fixture.replicas[index].thaw()?;
        // The replica continues under a new name, and holds a shard again.
        let (life, old) =
            (victim.split('-').take(2).collect::<Vec<_>>().join("-"), format!("replica-{victim}"));
        let is_reborn = |name: &str| name.contains(&format!(".replica-{life}")) && !name.ends_with(&old);
        eventually(SOON, || async {
            let leases = fixture.leases().list(&ListParams::default()).await?.items;
            let names: Vec<String> = leases.iter().map(ResourceExt::name_any).collect();
            ensure!(names.iter().any(|name| is_reborn(name)), "{names:?}, and none of {life} but {old}");
            Ok(())
        })
        .await?;
        fixture.until_each_holds_a_shard().await?;
        fixture.check_delivered_once(&names)?;
        // Its interrupted deliveries wrote nothing more, not even a write without a change.
        ensure!(
            fixture.repo.requests().push == pushed,
            "the stopped replica has pushed: {}",
            fixture.replicas[index].tail()
        );
        let version = |p: &sluice_api::Promotion| (p.name_any(), p.resource_version());
        let after = fixture.place.promotions().list(&ListParams::default()).await?.items;
        let (before, after): (Vec<_>, Vec<_>) =
            (before.iter().map(version).collect(), after.iter().map(version).collect());
        ensure!(before == after, "{before:?} became {after:?}: {}", fixture.replicas[index].tail());

        let (names, victim, index) = fixture.start_deliveries("term").await?;
        let since = Instant::now();
        fixture.replicas[index].terminate()?;
        let took = fixture.until_taken_over(&victim, since).await?;
        println!("after a termination others held its shards within {took:?}");
        // It releases its Leases, so that others need not wait until they expire.
        ensure!(took < Duration::from_secs(8), "{took:?}");
        fixture.repo.tap().hang(false);
        fixture.check_delivered(&names).await?;
        fixture.replicas[index].dies(SOON).await
    })
}

/// Longer than the duration of a Lease.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(15);

#[test]
fn leases_are_kept_and_released_even_if_each_write_conflicts_once() -> Result<()> {
    run(async {
        let fixture = ReplicaFixture::new(&[], |hub| {
            ApiServerProxy::in_front_of(hub, &[WriteFault::Conflict]).map(Some)
        })
        .await?;
        fixture.until_each_holds_a_shard().await?;
        // The same replica has held each Lease for so long that it was renewed several times.
        let holders = eventually(SOON, || async {
            let leases = fixture.leases().list(&ListParams::default()).await?.items;
            let shards = leases.iter().filter(|lease| lease.name_any().contains(".shard-"));
            for spec in shards.filter_map(|lease| lease.spec.as_ref()) {
                let since = spec.acquire_time.as_ref().context("acquired")?.0;
                let until = spec.renew_time.as_ref().context("renewed")?.0;
                let kept = Duration::try_from(until.duration_since(since))?;
                ensure!(kept > LONGER_THAN_A_LEASE, "kept for {kept:?}: {spec:?}");
            }
            fixture.holders().await
        })
        .await?;
        let all: BTreeSet<&String> = holders.iter().collect();
        ensure!(all.len() == 3, "held by {holders:?}");

        let name = "clashing";
        application(&fixture.place, &fixture.repo, name, &commit_strategy(&fixture.repo)).await?;
        let key = PipelineKey { namespace: fixture.place.namespace.clone(), name: name.into() };
        let holder = holders[shard_of(&key, SHARDS) as usize].clone();
        releases::runs(fixture.place.leaf("dev"), &fixture.place.namespace, name, "1.1.0", true).await?;
        let index: usize =
            holder.strip_prefix("host-").and_then(|rest| rest.get(..1)).context("a host")?.parse()?;
        let since = Instant::now();
        fixture.replicas[index].terminate()?;
        let took = fixture.until_taken_over(&holder, since).await?;
        println!("after a termination others held its shards within {took:?}");
        fixture.check_delivered(&[name.to_owned()]).await
    })
}

/// How long a stranger writes to the Leases.
const ATTACK: Duration = Duration::from_secs(10);
/// Short Leases: a strange Lease counts for at most twenty times their duration.
const SHORT_LEASES: &[&str] = &[
    "--leader-election-lease-duration=3s",
    "--leader-election-renew-deadline=2s",
    "--leader-election-retry-period=500ms",
];

/// What a stranger writes into a Lease, in turn.
fn hostile_patches() -> Vec<Value> {
    let far = "9999-12-31T23:59:59.000000Z";
    vec![
        json!({"spec": {"leaseTransitions": i32::MAX}}),
        json!({"spec": {"holderIdentity": "eve", "leaseDurationSeconds": i32::MAX, "renewTime": far}}),
        json!({"spec": {"holderIdentity": "e".repeat(100_000), "acquireTime": far}}),
        json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": null, "renewTime": null}}),
        json!({"metadata": {"annotations": {"pipelines.weave.works/shards": "4294967295"}}}),
        json!({"metadata": {"annotations": {"pipelines.weave.works/shards": "-1"}}}),
        json!({"metadata": {"finalizers": ["example.com/eve"], "labels": null}}),
        json!({"metadata": {"managedFields": [{"manager": "eve", "operation": "Update",
            "apiVersion": "coordination.k8s.io/v1", "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]}}),
    ]
}

impl ReplicaFixture {
    /// Writes to all Leases, deletes some, and creates Leases with similar names. Returns the number of writes.
    async fn attack_leases(&self) -> Result<usize> {
        let (client, namespace) = (&self.place.client, &self.place.namespace);
        // Answers are read as plain JSON: the times in them cannot be parsed.
        let request = || Request::new(Lease::url_path(&(), Some(namespace)));
        for name in ["shard-00", "shard-99", "shard-4294967296", "replica-eve"] {
            let lease = json!({"metadata": {"name": format!("sluice.{namespace}.{name}")},
                "spec": {"holderIdentity": "eve", "leaseDurationSeconds": i32::MAX, "leaseTransitions": i32::MAX}});
            let create = request().create(&PostParams::default(), serde_json::to_vec(&lease)?)?;
            client.request::<Value>(create).await?;
        }
        let (began, mut writes) = (Instant::now(), 0);
        while began.elapsed() < ATTACK {
            for patch in hostile_patches() {
                let all: Value = client.request(request().list(&ListParams::default())?).await?;
                for lease in all["items"].as_array().context("items")? {
                    let name = lease["metadata"]["name"].as_str().context("a name")?;
                    let patched = request().patch(name, &PatchParams::default(), &Patch::Merge(&patch))?;
                    // A replica may have deleted it meanwhile.
                    writes += usize::from(client.request::<Value>(patched).await.is_ok());
                    if writes % 11 == 0 {
                        let _ =
                            client.request::<Value>(request().delete(name, &DeleteParams::default())?).await;
                    }
                }
            }
        }
        Ok(writes)
    }
}

#[test]
fn foreign_writes_to_the_leases_stop_promotions_only_for_a_while() -> Result<()> {
    run(async {
        let fixture = ReplicaFixture::new(SHORT_LEASES, |_| Ok(None)).await?;
        let names = ["strange-0x", "strange-1x", "strange-2x", "strange-3x"].map(String::from);
        for name in &names {
            application(&fixture.place, &fixture.repo, name, &commit_strategy(&fixture.repo)).await?;
        }
        fixture.until_each_holds_a_shard().await?;
        let writes = fixture.attack_leases().await?;
        println!("a stranger wrote {writes} times to the Leases");
        for name in &names {
            releases::runs(fixture.place.leaf("dev"), &fixture.place.namespace, name, "1.1.0", true).await?;
        }
        let since = Instant::now();
        fixture.check_delivered(&names).await?;
        println!("all was delivered {:?} after the last write", since.elapsed());
        Ok(())
    })
}

#[test]
fn two_controllers_without_an_election_make_no_promotion_twice() -> Result<()> {
    run(async {
        let place = TestNamespace::new("alone").await?;
        let n = place.namespace.clone();
        let repo = place.shared.git.create_repo(&n, &[("README.md", "fleet\n")])?;
        place.secret("git", &[("username", GitServer::USER), ("password", GitServer::PASSWORD)]).await?;
        let gitea = shared_gitea().await?;
        let forge = gitea.create_repo(&n, &[("README.md", "fleet\n")]).await?;
        place.forge_secret().await?;
        let pull_request_strategy =
            format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", forge.url());
        let (hub, alone) = (&place.shared.hub, ["--leader-elect=false"]);
        let (one, two) = (Controller::start(hub, &n, &alone)?, Controller::start(hub, &n, &alone)?);
        let (commits, requests) = (["c-0x", "c-1x", "c-2x", "c-3x"], ["r-0x", "r-1x"]);
        for name in commits {
            application(&place, &repo, name, &commit_strategy(&repo)).await?;
        }
        for name in requests {
            application(&place, &forge, name, &pull_request_strategy).await?;
        }
        let tails = || format!("{}\n---\n{}", one.tail(), two.tail());
        let mut ended: Vec<String> = Vec::new();
        for version in ["1.1.0", "1.2.0"] {
            for name in commits.iter().chain(&requests) {
                releases::runs(place.leaf("dev"), &n, name, version, true).await?;
            }
            let promotions = |phase: &str| [&ended[..], &[format!("{version} {phase}")]].concat();
            for name in requests {
                let wanted = promotions("Proposed");
                let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
                place.until_promotions(name, "prod", &wanted).await.with_context(tails)?;
                let branch = format!("sluice/{n}/{name}/prod");
                let pulls = forge.pulls("all").await?;
                let open: Vec<_> =
                    pulls.iter().filter(|p| p.head.branch == branch && p.state == "open").collect();
                let all = pulls.iter().filter(|p| p.head.branch == branch).count();
                ensure!(open.len() == 1 && all == ended.len() + 1, "{name}: {pulls:?}");
                forge.merge(open[0].number).await?;
            }
            for name in commits.iter().chain(&requests) {
                let wanted = promotions("Delivered");
                let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
                place.until_promotions(name, "prod", &wanted).await.with_context(tails)?;
                releases::runs(place.leaf("prod"), &n, name, version, true).await?;
            }
            ended = promotions("Succeeded");
            let wanted: Vec<&str> = ended.iter().map(String::as_str).collect();
            for name in commits.iter().chain(&requests) {
                place.until_promotions(name, "prod", &wanted).await.with_context(tails)?;
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
