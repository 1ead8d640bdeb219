//! What is done to Sluice while it works, and the order in which a seed draws it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::fire::{Blow, Clash, Wire, draw};
use sluice_testkit::{Cluster, Scratch, Shared};

use crate::process::Controller;

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The controller is killed, and started with its files.
    Kill,
    /// It is killed, and started without them.
    KillAndWipe,
    /// The hub's API server is killed and started.
    HubRestarts,
    /// A target's API server is.
    TargetRestarts,
    /// Etcd is, below all of them.
    EtcdRestarts,
    /// All connections of the controller to API servers end at once.
    WiresCut,
    /// Nothing comes through them for a while: watches are stale, calls are not answered.
    WiresDead,
    /// A second controller believes that it leads, too; then the first is killed.
    TwoLead,
    /// The clock of the controller goes on by an hour.
    ClockForward,
    /// It goes back by an hour.
    ClockBack,
}

impl Trouble {
    const ALL: [Trouble; 10] = [
        Trouble::Kill,
        Trouble::TwoLead,
        Trouble::HubRestarts,
        Trouble::ClockForward,
        Trouble::WiresCut,
        Trouble::EtcdRestarts,
        Trouble::KillAndWipe,
        Trouble::WiresDead,
        Trouble::ClockBack,
        Trouble::TargetRestarts,
    ];

    /// Every one of them, in an order that the seed draws.
    pub fn shuffled(seed: u64) -> Vec<Trouble> {
        let mut all = Trouble::ALL.to_vec();
        all.sort_by_key(|trouble| draw(seed, *trouble as u64));
        all
    }
}

/// The scene of it: the controllers, with wires between them and the API servers. At that of the hub every
/// write clashes with somebody else's, all the time.
pub struct Scene {
    shared: &'static Shared,
    namespace: String,
    wires: Vec<Wire>,
    clash: Clash,
    scratch: Scratch,
    controller: Option<Controller>,
    hours: i64,
    /// How long a wire is dead, and one trouble lasts before the next; two lead for twice as long.
    pause: Duration,
    pub counts: Counts,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub kills: usize,
    pub restarts: usize,
    pub cuts: usize,
    pub double: usize,
    pub clocks: usize,
}

/// The port of a cluster's API server.
fn port(cluster: &Cluster) -> Result<u16> {
    cluster.url().rsplit(':').next().and_then(|port| port.parse().ok()).context("an address without a port")
}

/// A kubeconfig through a wire.
fn through(cluster: &Cluster, wire: &Wire) -> String {
    cluster.kubeconfig().replace(&cluster.url(), &format!("https://127.0.0.1:{}", wire.port()))
}

impl Scene {
    /// Lays the wires and starts the controller.
    pub async fn set(place: &crate::place::TestNamespace, pause: Duration) -> Result<Scene> {
        let (shared, scratch) = (place.shared, Scratch::new("fire")?);
        let mut wires = Vec::new();
        for leaf in [&shared.dev, &shared.staging, &shared.prod] {
            let wire = Wire::to(port(leaf)?)?;
            place.gitops_cluster(leaf.name(), &through(leaf, &wire)).await?;
            wires.push(wire);
        }
        let clash = Clash::before(&shared.hub, &[Blow::Conflict, Blow::Lost])?;
        let wire = Wire::to(clash.port())?;
        std::fs::write(scratch.path().join("hub"), clash.kubeconfig_at(wire.port()))?;
        std::fs::write(scratch.path().join("clock"), "0")?;
        wires.push(wire);
        let namespace = place.namespace.clone();
        let (counts, hours) = (Counts::default(), 0);
        let controller = None;
        let mut scene = Scene { shared, namespace, wires, clash, scratch, controller, hours, pause, counts };
        scene.controller = Some(scene.start()?);
        Ok(scene)
    }

    fn start(&self) -> Result<Controller> {
        let file = |name: &str| -> PathBuf { self.scratch.path().join(name) };
        let flags = ["--poll-interval=1s", "--delivery-timeout=8s"];
        Controller::start_at(file("hub"), &self.namespace, &flags, &[("SLUICE_CLOCK_FILE", &file("clock"))])
    }

    /// How many of its writes to the hub were refused, or done without an answer.
    pub fn clashes(&self) -> usize {
        self.clash.dealt()
    }

    /// The last words of the controller.
    pub fn tail(&self) -> String {
        self.controller.as_ref().map(Controller::tail).unwrap_or_default()
    }

    /// Does one thing, and lets it last.
    pub async fn meets(&mut self, trouble: Trouble) -> Result<()> {
        let controller = self.controller.as_mut().context("no controller")?;
        match trouble {
            Trouble::Kill | Trouble::KillAndWipe => {
                controller.restart(trouble == Trouble::Kill)?;
                self.counts.kills += 1;
            }
            Trouble::HubRestarts => self.shared.hub.start().await?,
            Trouble::TargetRestarts => self.shared.staging.start().await?,
            Trouble::EtcdRestarts => self.shared.plane.restart_etcd().await?,
            Trouble::WiresCut => self.wires.iter().for_each(Wire::cut),
            Trouble::WiresDead => {
                self.wires.iter().for_each(|wire| wire.dead(true));
                tokio::time::sleep(self.pause).await;
                self.wires.iter().for_each(|wire| wire.dead(false));
            }
            Trouble::TwoLead => {
                let other = self.start()?;
                tokio::time::sleep(self.pause * 2).await;
                self.controller = Some(other);
                self.counts.kills += 1;
                self.counts.double += 1;
            }
            Trouble::ClockForward => self.step_clock(1)?,
            Trouble::ClockBack => self.step_clock(-1)?,
        }
        match trouble {
            Trouble::HubRestarts | Trouble::TargetRestarts | Trouble::EtcdRestarts => {
                self.counts.restarts += 1;
            }
            Trouble::WiresCut | Trouble::WiresDead => self.counts.cuts += 1,
            _ => {}
        }
        tokio::time::sleep(self.pause).await;
        Ok(())
    }

    fn step_clock(&mut self, hours: i64) -> Result<()> {
        self.hours += hours;
        self.counts.clocks += 1;
        // In one piece, for it is read all the time.
        let (next, file) = (self.scratch.path().join("next"), self.scratch.path().join("clock"));
        std::fs::write(&next, (self.hours * 3600).to_string())?;
        Ok(std::fs::rename(next, file)?)
    }
}

/// What somebody writes over what Sluice says of a promotion.
const LIE: &str = "none of it is true";

/// Somebody who writes to everything that Sluice writes to, all the time: every version that it has
/// seen is out of date when it writes, and its status is not what it wrote.
pub async fn meddle(client: Client, namespace: String, written: Arc<std::sync::atomic::AtomicUsize>) {
    let pipelines: Api<Pipeline> = Api::namespaced(client.clone(), &namespace);
    let promotions: Api<Promotion> = Api::namespaced(client, &namespace);
    for round in 0u64.. {
        let touch = json!({"metadata": {"annotations": {"example.com/touched": round.to_string()}}});
        let (touch, params) = (Patch::Merge(touch), PatchParams::default());
        let all = promotions.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        let lie = Patch::Merge(json!({"status": {"message": LIE}}));
        for promotion in all {
            // The API server may be away: then nobody writes.
            let name = promotion.name_any();
            let done = promotions.patch(&name, &params, &touch).await;
            let lied = promotions.patch_status(&name, &params, &lie).await;
            let count = usize::from(done.is_ok()) + usize::from(lied.is_ok());
            written.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
        let all = pipelines.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        for pipeline in all {
            let name = pipeline.name_any();
            let lie = Patch::Merge(json!({"status": {"summary": LIE}}));
            let done = pipelines.patch(&name, &params, &touch).await;
            let lied = pipelines.patch_status(&name, &params, &lie).await;
            let count = usize::from(done.is_ok()) + usize::from(lied.is_ok());
            written.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
