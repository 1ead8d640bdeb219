//! Attackers replay every approval that they have seen, all the time and at every address, while revisions come, go and
//! come back. What nobody has approved is not delivered.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_testkit::{ForgeRepo, eventually, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::strategies::hmac;
use crate::{releases, run};

const KEY: &str = "what approvers sign with";
const ATTACKERS: usize = 4;
/// How many hostile calls each waiting promotion must withstand.
const CALLS: usize = 150;

/// A signed approval, as somebody on the way of the call sees it.
#[derive(Clone)]
struct SignedApproval {
    revision: String,
    body: String,
    signature: String,
}

struct RaceFixture {
    place: TestNamespace,
    repo: ForgeRepo,
    controller: Controller,
    address: String,
    seen: Arc<Mutex<Vec<SignedApproval>>>,
}

impl RaceFixture {
    async fn new() -> Result<RaceFixture> {
        let place = TestNamespace::new("race").await?;
        let n = place.namespace.clone();
        let file = format!("version: 1.0.0 # {{\"$promotion\": \"{n}:app:prod\"}}\n");
        let repo = shared_gitea().await?.create_repo(&n, &[("prod.yaml", &file)]).await?;
        place.forge_secret().await?;
        place.secret("keys", &[("approval-key", KEY)]).await?;
        for leaf in ["dev", "prod"] {
            releases::create_running(place.leaf(leaf), &n, "app", "1.0.0").await?;
        }
        let target =
            |name: &str| format!("[{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {name}}}}}]");
        place
            .apply(&format!(
                "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: app, namespace: {n}}}\n\
                 spec:\n  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: app}}\n  \
                 environments:\n  - {{name: dev, targets: {}}}\n  - {{name: prod, targets: {}}}\n  \
                 promotion: {{manual: true, strategy: {{secretRef: {{name: keys}}, \
                 commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}}}\n",
                target("dev"),
                target("prod"),
                repo.url()
            ))
            .await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let hook = format!("--hook-addr={address}");
        let flags = [&*hook, "--hook-peer-rate=0", "--hook-pipeline-rate=0"];
        let controller = Controller::start(&place.shared.hub, &n, &flags)?;
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "dev") == "1.0.0" && revision(p, "prod") == "1.0.0";
        place.until("app", "all run 1.0.0", at_rest).await.with_context(|| controller.tail())?;
        Ok(RaceFixture { place, repo, controller, address, seen: Arc::default() })
    }

    fn sign(&self, revision: &str) -> SignedApproval {
        let body = json!({"pipeline": format!("{}/app", self.place.namespace), "environment": "prod",
            "revision": revision, "at": Timestamp::now()})
        .to_string();
        let signature = format!("sha256={}", hmac(KEY.as_bytes(), body.as_bytes()));
        SignedApproval { revision: revision.into(), body, signature }
    }

    async fn dev_runs(&self, version: &str) -> Result<()> {
        releases::runs(self.place.leaf("dev"), &self.place.namespace, "app", version, true).await
    }

    /// Returns the newest promotion of a revision into prod.
    async fn newest(&self, revision: &str) -> Result<Option<Promotion>> {
        let mut all = self.place.promotions().list(&Default::default()).await?.items;
        all.retain(|p| p.spec.revision == revision);
        Ok(all.into_iter().max_by_key(|p| p.spec.sequence))
    }

    async fn phase(&self, revision: &str) -> Result<Option<Phase>> {
        Ok(self.newest(revision).await?.map(|p| p.phase()))
    }

    /// Waits until a promotion has a closed gate. Before, it is Pending too, but is not approved by a call.
    async fn until_it_waits(&self, revision: &str) -> Result<()> {
        let found = eventually(SOON, || async {
            let promotion = self.newest(revision).await?.context("there is no promotion yet")?;
            let gates = promotion.status.as_ref().map_or(&[][..], |status| &status.gates);
            ensure!(promotion.phase() == Phase::Pending, "{revision} is {:?}", promotion.phase());
            ensure!(gates.iter().any(|gate| !gate.open), "{revision} has no closed gate: {gates:?}");
            Ok(())
        });
        found.await.with_context(|| self.controller.tail())
    }

    async fn until_phase(&self, revision: &str, phases: &[Phase]) -> Result<Phase> {
        let found = eventually(SOON, || async {
            let phase = self.phase(revision).await?.context("there is no promotion yet")?;
            ensure!(phases.contains(&phase), "{revision} is {phase:?}, not one of {phases:?}");
            Ok(phase)
        });
        found.await.with_context(|| self.controller.tail())
    }

    /// Returns the versions that prod's file had, oldest first.
    fn delivered(&self) -> Result<Vec<String>> {
        let log = self.repo.log("main")?;
        let version =
            |subject: &str| subject.split_whitespace().find(|word| word.starts_with("1.")).map(String::from);
        Ok(log.iter().rev().filter_map(|commit| version(&commit.subject)).collect())
    }
}

/// Sends what was seen to the address of each revision that was seen or waits, until it is told to stop.
async fn replay(
    (address, namespace): (String, String),
    seen: Arc<Mutex<Vec<SignedApproval>>>,
    waiting: Arc<Mutex<String>>,
    (calls, stop): (Arc<AtomicUsize>, Arc<AtomicBool>),
) {
    let http = reqwest::Client::new();
    while !stop.load(Ordering::Relaxed) {
        let known = seen.lock().unwrap().clone();
        for approval in known {
            let pending = waiting.lock().unwrap().clone();
            for revision in [&approval.revision, &pending] {
                let url = format!("http://{address}/approval/{namespace}/app/prod/{revision}");
                let call =
                    http.post(url).header("x-signature", &approval.signature).body(approval.body.clone());
                if call.send().await.is_ok() {
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn replayed_approvals_deliver_nothing_that_nobody_approved() -> Result<()> {
    run(async {
        let fixture = RaceFixture::new().await?;
        let (waiting, calls, stop) = (Arc::new(Mutex::new(String::new())), Arc::default(), Arc::default());
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                let place = (fixture.address.clone(), fixture.place.namespace.clone());
                let counters = (Arc::clone(&calls), Arc::clone(&stop));
                tokio::spawn(replay(place, fixture.seen.clone(), waiting.clone(), counters))
            })
            .collect();
        let http = reqwest::Client::new();
        let mut approved = Vec::new();
        for round in 1..=6 {
            // Somebody approves a revision, and then or at the same moment a newer one comes that nobody approves.
            let (wanted, unwanted) = (format!("1.{round}.0"), format!("1.{round}.1"));
            fixture.dev_runs(&wanted).await?;
            fixture.until_it_waits(&wanted).await?;
            *waiting.lock().unwrap() = unwanted.clone();
            let approval = fixture.sign(&wanted);
            fixture.seen.lock().unwrap().push(approval.clone());
            let url =
                format!("http://{}/approval/{}/app/prod/{wanted}", fixture.address, fixture.place.namespace);
            let call = http.post(url).header("x-signature", approval.signature).body(approval.body);
            let approve = async {
                let answer = call.send().await?;
                let (status, text) = (answer.status(), answer.text().await?);
                ensure!(status.is_success(), "{wanted} was not approved, {status}: {text}");
                Ok(())
            };
            if round % 2 == 0 {
                approve.await?;
                fixture.until_phase(&wanted, &[Phase::Delivered]).await?;
                fixture.dev_runs(&unwanted).await?;
            } else {
                // The approval may come too late, and is refused then.
                let (_, moved) = tokio::join!(approve, fixture.dev_runs(&unwanted));
                moved?;
            }
            approved.push(wanted.clone());
            let ended = fixture.until_phase(&wanted, &[Phase::Delivered, Phase::Superseded]).await?;
            fixture.until_it_waits(&unwanted).await?;
            let before = calls.load(Ordering::Relaxed);
            eventually(SOON, || async {
                let made = calls.load(Ordering::Relaxed) - before;
                ensure!(made >= CALLS, "only {made} calls");
                Ok(())
            })
            .await?;
            ensure!(fixture.phase(&unwanted).await? == Some(Phase::Pending), "{unwanted} was approved");
            // An approved revision comes back: its approval was for the first time only.
            if ended == Phase::Delivered {
                releases::runs(fixture.place.leaf("prod"), &fixture.place.namespace, "app", &wanted, true)
                    .await?;
            }
        }
        let first = approved.first().context("no revision was approved")?.clone();
        let delivered = fixture.delivered()?;
        *waiting.lock().unwrap() = first.clone();
        fixture.dev_runs(&first).await?;
        fixture.until_it_waits(&first).await?;
        let before = calls.load(Ordering::Relaxed);
        eventually(SOON, || async {
            ensure!(calls.load(Ordering::Relaxed) - before >= CALLS, "too few calls");
            Ok(())
        })
        .await?;
        ensure!(fixture.phase(&first).await? == Some(Phase::Pending), "{first} came back and was approved");
        stop.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.await?;
        }
        ensure!(fixture.delivered()? == delivered, "something was delivered after the last approval");
        let foreign: Vec<_> = delivered.iter().filter(|version| !approved.contains(version)).collect();
        ensure!(foreign.is_empty(), "{foreign:?} were delivered, and only {approved:?} were approved");
        ensure!(!delivered.is_empty(), "no approval arrived in time, so nothing was tried");
        Ok(())
    })
}
