//! Targets with `observe: Push` with a real API server: signed events of Flux about them promote revisions, and
//! their reports survive a restart and are merged from all replicas.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use serde_json::{Value, json};
use sluice_api::pipeline::{Health, Pipeline};
use sluice_api::promotion::{Phase, Promotion};
use sluice_controller::hook::event::ReceivedEvent;
use sluice_controller::hook::store::{ChangeOutcome, Store};
use sluice_controller::pipeline_key::PipelineKey;
use sluice_testkit::eventually;

use crate::server::{HookFixture, run, serve, sign};

/// The event of Flux on a cluster about a release that happened `ago` seconds before now.
pub(crate) fn event(cluster: &str, reason: &str, revision: &str, ago: i64) -> Value {
    let at = Timestamp::now() - SignedDuration::from_secs(ago);
    json!({
        "involvedObject": {"kind": "HelmRelease", "namespace": "podinfo", "name": "podinfo",
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "resourceVersion": "7"},
        "severity": if reason.ends_with("Failed") { "error" } else { "info" },
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "message": format!("{reason} {revision}"), "reason": reason,
        "metadata": {"revision": revision, "cluster": cluster}})
}

impl HookFixture {
    pub(crate) async fn send_event(&self, environment: &str, event: &Value) -> Result<u16> {
        let body = event.to_string();
        let key = match event["metadata"]["cluster"].as_str() {
            Some(cluster) if ["eu", "us", "ap"].contains(&cluster) => format!("test-report-key-{cluster}"),
            _ => "test-hmac-key".into(),
        };
        let signature = sign(&key, body.as_bytes());
        self.status(&format!("/promotion/apps/push/{environment}"), body.as_bytes(), Some(&signature)).await
    }

    async fn pipeline(&self) -> Result<Pipeline> {
        let api: Api<Pipeline> = Api::namespaced(self.cluster.client().await?, "apps");
        Ok(api.get("push").await?)
    }

    async fn promotions(&self) -> Result<Api<Promotion>> {
        Ok(Api::namespaced(self.cluster.client().await?, "apps"))
    }

    /// Waits until there is exactly one promotion, with this revision, this phase and this part of its message.
    async fn wait_for_promotion(&self, revision: &str, phase: Phase, part: &str) -> Result<()> {
        let promotions = self.promotions().await?;
        eventually(Duration::from_secs(60), async || {
            let all = promotions.list(&Default::default()).await?.items;
            let [one] = all.as_slice() else { bail!("{all:?}") };
            let status = one.status.clone().unwrap_or_default();
            let is_there = one.spec.revision == revision && status.phase == phase;
            ensure!(is_there && status.message.contains(part), "{one:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the status has this health and revision for the first target of an environment.
    async fn wait_for_target(&self, environment: &str, health: Health, revision: Option<&str>) -> Result<()> {
        eventually(Duration::from_secs(60), async || {
            let status = self.pipeline().await?.status.context("no status")?;
            let target = status.environments.get(environment).and_then(|e| e.targets.first()).cloned();
            let target = target.context("no target")?;
            ensure!(target.health == health && target.revision.as_deref() == revision, "{target:?}");
            ensure!(target.reported.is_some(), "no time: {target:?}");
            Ok(())
        })
        .await
    }
}

#[test]
fn a_signed_report_is_evidence_even_after_a_restart() -> Result<()> {
    run(async {
        let mut fixture = serve(|_, _| {}).await?;
        let success = event("eu", "UpgradeSucceeded", "6.1.8", 60);
        // The pipeline accepts unsigned events, but not as reports.
        let unsigned = success.to_string();
        ensure!(fixture.status("/promotion/apps/push/dev", unsigned.as_bytes(), None).await? == 401);
        for (wrong, status) in [
            (event("eu", "UpgradeSucceeded", "6.1.8", -120), 422),
            (event("eu", "UpgradeSucceeded", "6.1.8", 4000), 422),
            (event("xx", "UpgradeSucceeded", "6.1.8", 60), 422),
            (event("eu", "DriftCorrected", "6.1.8", 60), 200),
        ] {
            ensure!(fixture.send_event("dev", &wrong).await? == status, "{wrong}");
        }
        ensure!(fixture.pipeline().await?.status.is_none_or(|s| s.reports.is_empty()));

        ensure!(fixture.send_event("dev", &success).await? == 202);
        // The report is stored before the call is answered.
        let reports = fixture.pipeline().await?.status.context("no status")?.reports;
        ensure!(reports["dev/eu-podinfo/HelmRelease/podinfo"].revision == "6.1.8", "{reports:?}");
        fixture.wait_for_target("dev", Health::Ready, Some("6.1.8")).await?;
        // prod has not reported what it runs, which may be newer.
        fixture.wait_for_promotion("6.1.8", Phase::Pending, "it is unknown what prod/").await?;
        for cluster in ["us", "ap"] {
            ensure!(
                fixture.send_event("prod", &event(cluster, "UpgradeSucceeded", "6.1.0", 50)).await? == 202
            );
        }
        fixture.wait_for_promotion("6.1.8", Phase::Delivered, "").await?;

        // dev reports an older revision, and an earlier event does not change that, neither now nor after a
        // restart.
        ensure!(fixture.send_event("dev", &event("eu", "UpgradeSucceeded", "6.1.7", 30)).await? == 202);
        ensure!(fixture.send_event("dev", &success).await? == 200);
        fixture.wait_for_target("dev", Health::Ready, Some("6.1.7")).await?;
        fixture.restart().await?;
        ensure!(fixture.send_event("dev", &success).await? == 200);
        fixture.wait_for_target("dev", Health::Ready, Some("6.1.7")).await?;

        ensure!(fixture.send_event("dev", &event("eu", "UpgradeFailed", "6.1.9", 20)).await? == 202);
        fixture.wait_for_target("dev", Health::Failed, Some("6.1.7")).await?;

        // Both targets of prod report: the promotion has arrived.
        for cluster in ["us", "ap"] {
            ensure!(
                fixture.send_event("prod", &event(cluster, "InstallSucceeded", "6.1.7", 10)).await? == 202
            );
        }
        let promotions = fixture.promotions().await?;
        eventually(Duration::from_secs(60), async || {
            let all = promotions.list(&Default::default()).await?.items;
            let mut phases: Vec<_> =
                all.into_iter().map(|p| (p.spec.revision, p.status.map(|s| s.phase))).collect();
            phases.sort();
            let wanted = [("6.1.7", Phase::Succeeded), ("6.1.8", Phase::Superseded)];
            ensure!(phases == wanted.map(|(r, p)| (r.to_string(), Some(p))), "{phases:?}");
            Ok(())
        })
        .await?;

        fixture.cluster.stop();
        eventually(Duration::from_secs(60), async || {
            let body = event("eu", "UpgradeSucceeded", "6.2.0", 0).to_string();
            let signature = sign("test-report-key-eu", body.as_bytes());
            let answer =
                fixture.post("/promotion/apps/push/dev", body.as_bytes(), Some(&signature)).send().await?;
            ensure!(answer.status() == 503 && answer.headers()["retry-after"] == "3", "{answer:?}");
            Ok(())
        })
        .await
    })
}

#[test]
fn reports_to_several_replicas_are_merged() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let key = PipelineKey { namespace: "apps".into(), name: "push".into() };
        let mut replicas = tokio::task::JoinSet::new();
        let now = Timestamp::now();
        for replica in 0..4i64 {
            let store = Store::new(fixture.cluster.client().await?);
            let key = key.clone();
            replicas.spawn(async move {
                for nth in 0..5 {
                    // Each replica receives a part of the same events, in its own order.
                    let ago = 100 - (nth * 7 + replica * 3) % 20;
                    for cluster in ["us", "ap"] {
                        let mut event = event(cluster, "UpgradeSucceeded", &format!("1.0.{ago}"), ago);
                        // The time does not depend on when the event is sent.
                        event["timestamp"] = json!((now - SignedDuration::from_secs(ago)).to_string());
                        let event: ReceivedEvent = serde_json::from_value(event)?;
                        // A report that cannot be stored now is sent again.
                        eventually(Duration::from_secs(60), async || {
                            store
                                .record_report(&key, "prod", &event)
                                .await
                                .map_err(|e| anyhow::anyhow!("{e:?}"))
                        })
                        .await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = replicas.join_next().await {
            ended??;
        }
        let newest = (0..4i64).flat_map(|r| (0..5).map(move |n| 100 - (n * 7 + r * 3) % 20)).min().unwrap();
        let reports = fixture.pipeline().await?.status.context("no status")?.reports;
        for target in ["us", "ap"] {
            let report = &reports[&format!("prod/{target}/HelmRelease/podinfo")];
            ensure!(report.revision == format!("1.0.{newest}"), "{target}: {reports:?}");
        }
        let unknown = PipelineKey { name: "none".into(), ..key };
        let event: ReceivedEvent = serde_json::from_value(event("us", "UpgradeSucceeded", "1", 0))?;
        let outcome =
            Store::new(fixture.cluster.client().await?).record_report(&unknown, "prod", &event).await;
        ensure!(matches!(outcome, Ok(ChangeOutcome::Gone)));
        Ok(())
    })
}
