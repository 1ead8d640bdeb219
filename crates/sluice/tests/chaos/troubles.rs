//! The troubles around Sluice while it works, and their order, which a seed draws.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::fault_injection::{ApiServerProxy, TcpProxy, WriteFault, draw};
use sluice_testkit::{Leaves, Scratch, Shared};

use crate::process::Controller;
use crate::proxied_cluster::behind_proxy;

/// One trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The controller is killed and started again with its files.
    Kill,
    /// The controller is killed and started again without its files.
    KillAndWipe,
    /// The API server of the hub is killed and started again.
    HubRestarts,
    /// The API server of a leaf cluster is killed and started again.
    TargetRestarts,
    /// The etcd of all clusters is killed and started again.
    EtcdRestarts,
    /// All connections of the controller to API servers are closed.
    Disconnect,
    /// The connections stall for a while: watches are stale, and calls are not answered.
    Stall,
    /// A second controller acts as the leader too; then the first is killed.
    TwoLeaders,
    /// The clock of the controller jumps forward by an hour.
    ClockForward,
    /// The clock of the controller jumps back by an hour.
    ClockBack,
}

impl Trouble {
    const ALL: [Trouble; 10] = [
        Trouble::Kill,
        Trouble::TwoLeaders,
        Trouble::HubRestarts,
        Trouble::ClockForward,
        Trouble::Disconnect,
        Trouble::EtcdRestarts,
        Trouble::KillAndWipe,
        Trouble::Stall,
        Trouble::ClockBack,
        Trouble::TargetRestarts,
    ];

    /// Returns all troubles, in an order that the seed draws.
    pub fn shuffled(seed: u64) -> Vec<Trouble> {
        let mut all = Trouble::ALL.to_vec();
        all.sort_by_key(|trouble| draw(seed, *trouble as u64));
        all
    }
}

/// The controllers, with proxies between them and the API servers. Every write to the hub meets conflicts.
pub struct ChaosFixture {
    shared: &'static Shared,
    leaves: &'static Leaves,
    namespace: String,
    proxies: Vec<TcpProxy>,
    conflicts: ApiServerProxy,
    scratch: Scratch,
    controller: Option<Controller>,
    /// How far the clock of the controller is ahead.
    hours: i64,
    /// The time between two troubles, and the duration of a stall. There are two leaders for twice as long.
    pause: Duration,
    pub counts: Counts,
}

/// The number of troubles so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub kills: usize,
    pub restarts: usize,
    pub disconnects: usize,
    pub two_leaders: usize,
    pub clock_jumps: usize,
}

impl ChaosFixture {
    /// Starts the proxies and the controller.
    pub async fn start(place: &crate::place::TestNamespace, pause: Duration) -> Result<ChaosFixture> {
        let (shared, scratch) = (place.shared, Scratch::new("chaos")?);
        let mut proxies = Vec::new();
        for leaf in [&place.leaves.dev, &place.leaves.staging, &place.leaves.prod] {
            let (proxy, kubeconfig) = behind_proxy(leaf)?;
            place.gitops_cluster(leaf.name(), &kubeconfig).await?;
            proxies.push(proxy);
        }
        let conflicts = ApiServerProxy::in_front_of(&shared.hub, &[WriteFault::Conflict, WriteFault::Lost])?;
        let proxy = TcpProxy::to(conflicts.port())?;
        std::fs::write(scratch.path().join("hub"), conflicts.kubeconfig_at(proxy.port()))?;
        std::fs::write(scratch.path().join("clock"), "0")?;
        proxies.push(proxy);
        let namespace = place.namespace.clone();
        let (counts, hours) = (Counts::default(), 0);
        let controller = None;
        let mut fixture = ChaosFixture {
            shared,
            leaves: place.leaves,
            namespace,
            proxies,
            conflicts,
            scratch,
            controller,
            hours,
            pause,
            counts,
        };
        fixture.controller = Some(fixture.start_controller()?);
        Ok(fixture)
    }

    fn start_controller(&self) -> Result<Controller> {
        let file = |name: &str| -> PathBuf { self.scratch.path().join(name) };
        let flags = ["--poll-interval=1s", "--delivery-timeout=8s", "--observe=all"];
        Controller::start_at(file("hub"), &self.namespace, &flags, &[("SLUICE_CLOCK_FILE", &file("clock"))])
    }

    /// Returns the number of write faults injected on the hub.
    pub fn injected_conflicts(&self) -> usize {
        self.conflicts.injected()
    }

    /// Returns the end of the controller's log.
    pub fn log_tail(&self) -> String {
        self.controller.as_ref().map(Controller::tail).unwrap_or_default()
    }

    /// Applies a trouble, and waits for the pause after it.
    pub async fn apply(&mut self, trouble: Trouble) -> Result<()> {
        let controller = self.controller.as_mut().context("no controller")?;
        match trouble {
            Trouble::Kill | Trouble::KillAndWipe => {
                controller.restart(trouble == Trouble::Kill)?;
                self.counts.kills += 1;
            }
            Trouble::HubRestarts => self.shared.hub.start().await?,
            Trouble::TargetRestarts => self.leaves.staging.start().await?,
            Trouble::EtcdRestarts => self.shared.plane.restart_etcd().await?,
            Trouble::Disconnect => self.proxies.iter().for_each(TcpProxy::disconnect),
            Trouble::Stall => {
                self.proxies.iter().for_each(|proxy| proxy.stall(true));
                tokio::time::sleep(self.pause).await;
                self.proxies.iter().for_each(|proxy| proxy.stall(false));
            }
            Trouble::TwoLeaders => {
                let other = self.start_controller()?;
                tokio::time::sleep(self.pause * 2).await;
                self.controller = Some(other);
                self.counts.kills += 1;
                self.counts.two_leaders += 1;
            }
            Trouble::ClockForward => self.move_clock(1)?,
            Trouble::ClockBack => self.move_clock(-1)?,
        }
        match trouble {
            Trouble::HubRestarts | Trouble::TargetRestarts | Trouble::EtcdRestarts => {
                self.counts.restarts += 1;
            }
            Trouble::Disconnect | Trouble::Stall => self.counts.disconnects += 1,
            _ => {}
        }
        tokio::time::sleep(self.pause).await;
        Ok(())
    }

    fn move_clock(&mut self, hours: i64) -> Result<()> {
        self.hours += hours;
        self.counts.clock_jumps += 1;
        // By a rename, because the controller reads the file at any time.
        let (next, file) = (self.scratch.path().join("next"), self.scratch.path().join("clock"));
        std::fs::write(&next, (self.hours * 3600).to_string())?;
        Ok(std::fs::rename(next, file)?)
    }
}

/// The text that the other writer puts into the statuses of Sluice's objects.
const FOREIGN_TEXT: &str = "written by someone else";

/// Writes to every object that Sluice writes, all the time: Sluice's resource versions are outdated when it writes, and
/// its statuses are changed.
pub async fn write_everywhere(
    client: Client,
    namespace: String,
    written: Arc<std::sync::atomic::AtomicUsize>,
) {
    let pipelines: Api<Pipeline> = Api::namespaced(client.clone(), &namespace);
    let promotions: Api<Promotion> = Api::namespaced(client, &namespace);
    for round in 0u64.. {
        let annotation = json!({"metadata": {"annotations": {"example.com/touched": round.to_string()}}});
        let (annotation, params) = (Patch::Merge(annotation), PatchParams::default());
        let all = promotions.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        let status = Patch::Merge(json!({"status": {"message": FOREIGN_TEXT}}));
        for promotion in all {
            // Errors are ignored: the API server may be stopped.
            let name = promotion.name_any();
            let annotated = promotions.patch(&name, &params, &annotation).await;
            let status_written = promotions.patch_status(&name, &params, &status).await;
            let count = usize::from(annotated.is_ok()) + usize::from(status_written.is_ok());
            written.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
        let all = pipelines.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        for pipeline in all {
            let name = pipeline.name_any();
            let status = Patch::Merge(json!({"status": {"summary": FOREIGN_TEXT}}));
            let annotated = pipelines.patch(&name, &params, &annotation).await;
            let status_written = pipelines.patch_status(&name, &params, &status).await;
            let count = usize::from(annotated.is_ok()) + usize::from(status_written.is_ok());
            written.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
