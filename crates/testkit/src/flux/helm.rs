//! Replaces helm-controller: installs or upgrades a release and writes its status.

use super::chart::{Chart, config_digest, workload};
use super::condition::{Condition, conditions, find, is_ready, now};
use super::context::StandInContext;
use super::digest::digest;
use super::go_duration::{format_duration, format_timeout, parse_duration};
use super::health::is_current;
use super::inventory::{inventory, prune};
use super::kind;
use super::kustomization::{
    FAILURE_CHECK_INTERVAL, FINALIZER, HEALTH_CHECK_INTERVAL, current_object, set_finalizers, with_finalizer,
};
use super::requested_failures::FluxFailure;
use super::source::requested_at;
use super::write_status::write_status;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MANAGER: &str = "helm-controller";

/// The number of releases in the history after a success.
const MAX_RELEASES: usize = 2;

/// Installs or upgrades a HelmRelease, if its chart or values changed.
pub(crate) async fn reconcile(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let api = context.api(&kind::helm_release(), &namespace);
    if cached.metadata.deletion_timestamp.is_some() {
        return finalize(cached, &api, context).await;
    }
    if cached.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let chart = Chart::of(cached, context).await;
    let failures = context.failures.description("HelmRelease", &namespace, &name);
    let attempt = format!("{chart:?} {:?} {} {failures}", cached.metadata.generation, requested_at(cached));
    let next =
        if failures.is_empty() { Action::await_change() } else { Action::requeue(FAILURE_CHECK_INTERVAL) };
    if context.is_attempted(cached, &attempt) {
        return Ok(next);
    }
    let object = api.get(&name).await?;
    let object = with_finalizer(&object, &api, context).await?;
    match chart {
        Err(e) => write_no_chart(&api, &object, &format!("{e:#}")).await?,
        Ok(chart) if is_released(&object, &chart) => confirm(&api, &object).await?,
        Ok(chart) => ReleaseRun::new(context, &api, object, &chart).run().await?,
    }
    context.record_attempt(cached, &attempt);
    Ok(next)
}

/// Returns true if the deployed release has this chart and the object's values.
fn is_released(object: &DynamicObject, chart: &Chart) -> bool {
    let last = &object.data["status"]["history"][0];
    let is_ready = find(object, "Ready").is_some_and(|c| c["status"] == "True");
    is_ready
        && last["status"] == "deployed"
        && last["chartVersion"] == chart.version.as_str()
        && last["configDigest"] == config_digest(object).as_str()
}

/// Updates the generation in the status of a release that needs no upgrade.
async fn confirm(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    let status = &object.data["status"];
    let handled = requested_at(object).is_null() || status["lastHandledReconcileAt"] == requested_at(object);
    if is_ready(object) && status["observedGeneration"].as_i64() == object.metadata.generation && handled {
        return Ok(());
    }
    let unchanged = |kind: &'static str| {
        let old = find(object, kind)?;
        Some(Condition::yes(kind, old["reason"].as_str()?, old["message"].as_str()?))
    };
    let wanted: Vec<Condition> = ["Ready", "Released"].into_iter().filter_map(unchanged).collect();
    let fields = json!({
        "conditions": conditions(object, &wanted),
        "lastAttemptedGeneration": object.metadata.generation,
        "observedGeneration": object.metadata.generation,
        "lastHandledReconcileAt": requested_at(object),
    });
    write_status(api, MANAGER, object, fields).await?;
    Ok(())
}

async fn write_no_chart(api: &Api<DynamicObject>, object: &DynamicObject, cause: &str) -> Result<()> {
    let chart = format!("{0}/{0}-{1}", object.namespace().unwrap_or_default(), object.name_any());
    let wanted = [
        Condition::yes("Reconciling", "ProgressingWithRetry", "Fulfilling prerequisites"),
        Condition::no("Ready", "SourceNotReady", &format!("HelmChart '{chart}' is not ready: {cause}")),
    ];
    write_status(api, MANAGER, object, json!({"conditions": conditions(object, &wanted)})).await?;
    Ok(())
}

async fn finalize(
    cached: &DynamicObject,
    api: &Api<DynamicObject>,
    context: &StandInContext,
) -> Result<Action> {
    if cached.finalizers().iter().any(|f| f == FINALIZER) {
        if cached.data["spec"]["suspend"] != true {
            prune(context, &cached.data["status"]["inventory"], &Value::Null).await?;
        }
        set_finalizers(cached, api, |finalizers| finalizers.retain(|f| f != FINALIZER)).await?;
    }
    Ok(Action::await_change())
}

/// One install or upgrade.
struct ReleaseRun<'a> {
    context: &'a StandInContext,
    api: &'a Api<DynamicObject>,
    object: DynamicObject,
    chart: &'a Chart,
    /// `install` or `upgrade`.
    action: &'static str,
    /// The version of the release, from 1.
    number: i64,
    started: Instant,
}

impl<'a> ReleaseRun<'a> {
    fn new(
        context: &'a StandInContext,
        api: &'a Api<DynamicObject>,
        object: DynamicObject,
        chart: &'a Chart,
    ) -> ReleaseRun<'a> {
        let history = object.data["status"]["history"].as_array();
        let deployed = history.is_some_and(|h| h.iter().any(|r| r["status"] != "failed"));
        let newest = object.data["status"]["history"][0]["version"].as_i64().unwrap_or_default();
        let action = if deployed { "upgrade" } else { "install" };
        ReleaseRun { context, api, object, chart, action, number: newest + 1, started: Instant::now() }
    }

    async fn run(mut self) -> Result<()> {
        self.write_progress().await?;
        tokio::time::sleep(self.context.options.progressing).await;
        let namespace = self.object.namespace().unwrap_or_default();
        let manifest = workload(&self.object, self.chart);
        let text = json!([self.chart.version, manifest]).to_string();
        match self.context.failures.matching("HelmRelease", &namespace, &self.object.name_any(), &text) {
            Some(FluxFailure::BuildFailed) => {
                let message = "execution error at (templates/deployment.yaml:4:49): made to fail by the test";
                return self.fail(message, false).await;
            }
            Some(FluxFailure::UpgradeFailed) => return self.fail("made to fail by the test", true).await,
            Some(FluxFailure::HealthCheckFailed) => {
                return self.fail("context deadline exceeded", true).await;
            }
            Some(FluxFailure::Stalled) => return self.stall().await,
            Some(FluxFailure::NeverHealthy) | None => {}
        }
        let applied =
            match crate::apply::apply_in(&self.context.client, MANAGER, &namespace, vec![manifest]).await {
                Ok(applied) => applied,
                Err(e) => return self.fail(&format!("{e:#}"), true).await,
            };
        let inventory = inventory(&applied);
        prune(self.context, &self.object.data["status"]["inventory"], &inventory).await?;
        match self.wait_until_healthy(&applied).await? {
            Some(timeout) => self.fail(&timeout, true).await,
            None => self.succeed(inventory).await,
        }
    }

    fn timeout(&self) -> Duration {
        let spec = self.object.data["spec"]["timeout"].as_str();
        spec.and_then(parse_duration).unwrap_or(self.context.options.health_timeout)
    }

    async fn write_progress(&mut self) -> Result<()> {
        let message =
            format!("Running '{}' action with timeout of {}", self.action, format_timeout(self.timeout()));
        let mut wanted = vec![
            Condition::yes("Reconciling", "Progressing", &message),
            Condition::unknown("Ready", "Progressing", &message),
        ];
        wanted.extend(unchanged(&self.object, "Released"));
        let has_template = !self.object.data["spec"]["chart"].is_null();
        let namespace = self.object.namespace().unwrap_or_default();
        let chart = format!("{namespace}/{namespace}-{}", self.object.name_any());
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "helmChart": if has_template { json!(chart) } else { Value::Null },
            "lastAttemptedConfigDigest": config_digest(&self.object),
            "lastAttemptedGeneration": self.object.metadata.generation,
            "lastAttemptedReleaseAction": self.action,
            "lastAttemptedRevision": self.chart.version,
            "lastAttemptedRevisionDigest": self.chart.digest,
            "storageNamespace": namespace,
        });
        self.object = write_status(self.api, MANAGER, &self.object, fields).await?;
        Ok(())
    }

    /// Waits until the objects of the release are healthy. Returns the message of a timeout.
    async fn wait_until_healthy(&self, applied: &[DynamicObject]) -> Result<Option<String>> {
        let end = Instant::now() + self.timeout();
        for object in applied {
            while !is_current(&current_object(object, self.context).await?) {
                if Instant::now() > end {
                    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
                    let message = format!("resource Deployment/{name} not ready. status: InProgress");
                    return Ok(Some(format!("{message}\ncontext deadline exceeded")));
                }
                tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
            }
        }
        Ok(None)
    }

    /// Returns the release as in messages: `podinfo/podinfo.v2 with chart podinfo@6.1.6`; the number is optional.
    fn release_text(&self, numbered: bool) -> String {
        let (namespace, name) = (self.object.namespace().unwrap_or_default(), self.object.name_any());
        let number = if numbered { format!(".v{}", self.number) } else { String::new() };
        format!("{namespace}/{name}{number} with chart {}@{}", self.chart.name, self.chart.version)
    }

    /// Returns a reason such as `UpgradeSucceeded`.
    fn reason(&self, outcome: &str) -> String {
        format!("{}{outcome}", if self.action == "install" { "Install" } else { "Upgrade" })
    }

    /// Returns the history record of the release.
    fn record(&self, status: &str) -> Value {
        let first = self.object.data["status"]["history"][0]["firstDeployed"].as_str().map(str::to_owned);
        let mut record = json!({
            "action": self.action,
            "apiVersion": "v2",
            "appVersion": self.chart.app_version,
            "chartName": self.chart.name,
            "chartVersion": self.chart.version,
            "configDigest": config_digest(&self.object),
            "digest": digest(format!("{} {status} {}", self.release_text(true), now()).as_bytes()),
            "firstDeployed": first.unwrap_or_else(now),
            "lastDeployed": now(),
            "name": self.object.name_any(),
            "namespace": self.object.namespace(),
            "status": status,
            "version": self.number,
        });
        if let Some(digest) = &self.chart.digest {
            record["ociDigest"] = json!(digest);
        }
        record
    }

    fn history(&self, status: &str) -> Value {
        let mut records = self.object.data["status"]["history"].as_array().cloned().unwrap_or_default();
        if status == "deployed" {
            records.retain(|r| r["status"] != "failed");
            for record in records.iter_mut().filter(|r| r["status"] == "deployed") {
                record["status"] = json!("superseded");
                record.as_object_mut().map(|fields| fields.remove("action"));
            }
        }
        records.insert(0, self.record(status));
        records.truncate(if status == "deployed" { MAX_RELEASES } else { MAX_RELEASES + 2 });
        Value::Array(records)
    }

    async fn succeed(self, inventory: Value) -> Result<()> {
        let message = format!("Helm {} succeeded for release {}", self.action, self.release_text(true));
        let reason = self.reason("Succeeded");
        let wanted =
            [Condition::yes("Ready", &reason, &message), Condition::yes("Released", &reason, &message)];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "history": self.history("deployed"),
            "inventory": inventory,
            "observedGeneration": self.object.metadata.generation,
            "failures": null,
            "installFailures": null,
            "upgradeFailures": null,
        });
        self.write_outcome(fields).await
    }

    /// Writes a failure. `recorded` is true if Helm stored the failed release in its history.
    async fn fail(self, cause: &str, recorded: bool) -> Result<()> {
        let message =
            format!("Helm {} failed for release {}: {cause}", self.action, self.release_text(false));
        let reason = self.reason("Failed");
        let action =
            format!("Running '{}' action with timeout of {}", self.action, format_timeout(self.timeout()));
        let wanted = [
            Condition::yes("Reconciling", "Progressing", &action),
            Condition::no("Ready", &reason, &message),
            Condition::no("Released", &reason, &message),
        ];
        let mut fields =
            json!({"conditions": conditions(&self.object, &wanted), "failures": self.failures()});
        if recorded {
            fields["history"] = self.history("failed");
            fields[format!("{}Failures", self.action)] = json!(1);
        }
        self.write_outcome(fields).await
    }

    async fn stall(self) -> Result<()> {
        let message =
            format!("Helm {} failed for release {}: made to fail", self.action, self.release_text(false));
        let reason = self.reason("Failed");
        let retries = format!("Failed to {} after 1 attempt(s)", self.action);
        let wanted = [
            Condition::yes("Stalled", "RetriesExceeded", &retries),
            Condition::no("Ready", &reason, &message),
            Condition::no("Released", &reason, &message),
        ];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "failures": self.failures(),
            "history": self.history("failed"),
            "observedGeneration": self.object.metadata.generation,
        });
        self.write_outcome(fields).await
    }

    fn failures(&self) -> i64 {
        self.object.data["status"]["failures"].as_i64().unwrap_or_default() + 1
    }

    async fn write_outcome(self, mut fields: Value) -> Result<()> {
        fields["lastAttemptedReleaseActionDuration"] = json!(format_duration(self.started.elapsed()));
        if !requested_at(&self.object).is_null() {
            fields["lastHandledReconcileAt"] = requested_at(&self.object);
        }
        write_status(self.api, MANAGER, &self.object, fields).await?;
        Ok(())
    }
}

/// Returns a condition of an object unchanged.
fn unchanged(object: &DynamicObject, kind: &'static str) -> Option<Condition> {
    let old = find(object, kind)?;
    let (reason, message) = (old["reason"].as_str()?, old["message"].as_str()?);
    Some(match old["status"].as_str()? {
        "True" => Condition::yes(kind, reason, message),
        "False" => Condition::no(kind, reason, message),
        _ => Condition::unknown(kind, reason, message),
    })
}
