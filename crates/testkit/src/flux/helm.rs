//! The part of helm-controller: from a chart version and values to a release and a status.

use super::chart::{Chart, config_digest, release_name, release_namespace, workload};
use super::condition::{Condition, conditions, find, is_ready, now, write};
use super::fault::Failure;
use super::health::is_current;
use super::history::{digest, duration, parse_duration, timeout};
use super::inventory::{inventory, prune};
use super::kind;
use super::kustomization::{AGAIN, FINALIZER, LOOK, look, set_finalizers, with_finalizer};
use super::source::requested;
use super::world::World;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MANAGER: &str = "helm-controller";

/// How many releases are kept in a status when all is well.
const KEPT: usize = 2;

/// Brings a HelmRelease to its chart and values, if it is not there.
pub(crate) async fn reconcile(seen: &DynamicObject, world: &World) -> Result<Action> {
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let api = world.api(&kind::helm_release(), &namespace);
    if seen.metadata.deletion_timestamp.is_some() {
        return finalize(seen, &api, world).await;
    }
    if seen.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let chart = Chart::of(seen, world).await;
    let asked = world.faults.asked("HelmRelease", &namespace, &name);
    let what = format!("{chart:?} {:?} {} {asked}", seen.metadata.generation, requested(seen));
    let next = if asked.is_empty() { Action::await_change() } else { Action::requeue(AGAIN) };
    if world.tried(seen, &what) {
        return Ok(next);
    }
    let object = api.get(&name).await?;
    let object = with_finalizer(&object, &api, world).await?;
    match chart {
        Err(e) => no_chart(&api, &object, &format!("{e:#}")).await?,
        Ok(chart) if released(&object, &chart) => confirm(&api, &object).await?,
        Ok(chart) => Run::new(world, &api, object, &chart).go().await?,
    }
    world.note(seen, &what);
    Ok(next)
}

/// Whether the release that is deployed is the one that is asked for.
fn released(object: &DynamicObject, chart: &Chart) -> bool {
    let last = &object.data["status"]["history"][0];
    let up = find(object, "Ready").is_some_and(|c| c["status"] == "True");
    up && last["status"] == "deployed"
        && last["chartVersion"] == chart.version.as_str()
        && last["configDigest"] == config_digest(object).as_str()
}

/// Says of a new generation that nothing had to be done for it.
async fn confirm(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    let status = &object.data["status"];
    let handled = requested(object).is_null() || status["lastHandledReconcileAt"] == requested(object);
    if is_ready(object) && status["observedGeneration"].as_i64() == object.metadata.generation && handled {
        return Ok(());
    }
    let again = |kind: &'static str| {
        let old = find(object, kind)?;
        Some(Condition::yes(kind, old["reason"].as_str()?, old["message"].as_str()?))
    };
    let wanted: Vec<Condition> = ["Ready", "Released"].into_iter().filter_map(again).collect();
    let fields = json!({
        "conditions": conditions(object, &wanted),
        "lastAttemptedGeneration": object.metadata.generation,
        "observedGeneration": object.metadata.generation,
        "lastHandledReconcileAt": requested(object),
    });
    write(api, MANAGER, object, fields).await?;
    Ok(())
}

async fn no_chart(api: &Api<DynamicObject>, object: &DynamicObject, why: &str) -> Result<()> {
    let place = format!("{0}/{0}-{1}", object.namespace().unwrap_or_default(), object.name_any());
    let wanted = [
        Condition::yes("Reconciling", "ProgressingWithRetry", "Fulfilling prerequisites"),
        Condition::no("Ready", "SourceNotReady", &format!("HelmChart '{place}' is not ready: {why}")),
    ];
    write(api, MANAGER, object, json!({"conditions": conditions(object, &wanted)})).await?;
    Ok(())
}

async fn finalize(seen: &DynamicObject, api: &Api<DynamicObject>, world: &World) -> Result<Action> {
    if seen.finalizers().iter().any(|f| f == FINALIZER) {
        if seen.data["spec"]["suspend"] != true {
            prune(world, &seen.data["status"]["inventory"], &Value::Null).await?;
        }
        set_finalizers(seen, api, |finalizers| finalizers.retain(|f| f != FINALIZER)).await?;
    }
    Ok(Action::await_change())
}

/// One install or upgrade.
struct Run<'a> {
    world: &'a World,
    api: &'a Api<DynamicObject>,
    object: DynamicObject,
    chart: &'a Chart,
    /// `install` or `upgrade`.
    action: &'static str,
    /// The release's number.
    number: i64,
    started: Instant,
}

impl<'a> Run<'a> {
    fn new(
        world: &'a World,
        api: &'a Api<DynamicObject>,
        object: DynamicObject,
        chart: &'a Chart,
    ) -> Run<'a> {
        let history = object.data["status"]["history"].as_array();
        let deployed = history.is_some_and(|h| h.iter().any(|r| r["status"] != "failed"));
        let newest = object.data["status"]["history"][0]["version"].as_i64().unwrap_or_default();
        let action = if deployed { "upgrade" } else { "install" };
        Run { world, api, object, chart, action, number: newest + 1, started: Instant::now() }
    }

    async fn go(mut self) -> Result<()> {
        self.progress().await?;
        tokio::time::sleep(self.world.options.progressing).await;
        let namespace = self.object.namespace().unwrap_or_default();
        let made = workload(&self.object, self.chart);
        let text = json!([self.chart.version, made]).to_string();
        match self.world.faults.of("HelmRelease", &namespace, &self.object.name_any(), &text) {
            Some(Failure::BuildFailed) => {
                let told = "execution error at (templates/deployment.yaml:4:49): made to fail by the test";
                return self.fail(told, false).await;
            }
            Some(Failure::UpgradeFailed) => return self.fail("made to fail by the test", true).await,
            Some(Failure::HealthCheckFailed) => return self.fail("context deadline exceeded", true).await,
            Some(Failure::Stalled) => return self.stall().await,
            Some(Failure::NeverHealthy) | None => {}
        }
        let applied = match crate::apply::apply_in(&self.world.client, MANAGER, &namespace, vec![made]).await
        {
            Ok(applied) => applied,
            Err(e) => return self.fail(&format!("{e:#}"), true).await,
        };
        let inventory = inventory(&applied);
        prune(self.world, &self.object.data["status"]["inventory"], &inventory).await?;
        match self.wait(&applied).await? {
            Some(late) => self.fail(&late, true).await,
            None => self.succeed(inventory).await,
        }
    }

    fn timeout(&self) -> Duration {
        let spec = self.object.data["spec"]["timeout"].as_str();
        spec.and_then(parse_duration).unwrap_or(self.world.options.health_timeout)
    }

    async fn progress(&mut self) -> Result<()> {
        let told = format!("Running '{}' action with timeout of {}", self.action, timeout(self.timeout()));
        let mut wanted = vec![
            Condition::yes("Reconciling", "Progressing", &told),
            Condition::unknown("Ready", "Progressing", &told),
        ];
        wanted.extend(kept(&self.object, "Released"));
        let template = !self.object.data["spec"]["chart"].is_null();
        let namespace = self.object.namespace().unwrap_or_default();
        let place = format!("{namespace}/{namespace}-{}", self.object.name_any());
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "helmChart": if template { json!(place) } else { Value::Null },
            "lastAttemptedConfigDigest": config_digest(&self.object),
            "lastAttemptedGeneration": self.object.metadata.generation,
            "lastAttemptedReleaseAction": self.action,
            "lastAttemptedRevision": self.chart.version,
            "lastAttemptedRevisionDigest": self.chart.digest,
            "storageNamespace": self.object.data["spec"]["storageNamespace"].as_str().unwrap_or(&namespace),
        });
        self.object = write(self.api, MANAGER, &self.object, fields).await?;
        Ok(())
    }

    /// Waits until the release's workload is healthy; otherwise what is told when it is too late.
    async fn wait(&self, applied: &[DynamicObject]) -> Result<Option<String>> {
        let action = &self.object.data["spec"][self.action];
        if action["disableWait"] == true {
            return Ok(None);
        }
        let end = Instant::now() + self.timeout();
        for object in applied {
            while !is_current(&look(object, self.world).await?) {
                if Instant::now() > end {
                    let place = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
                    let told = format!("resource Deployment/{place} not ready. status: InProgress");
                    return Ok(Some(format!("{told}\ncontext deadline exceeded")));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(None)
    }

    /// `podinfo/podinfo.v2 with chart podinfo@6.1.6`, with the number only where Helm made one.
    fn release(&self, numbered: bool) -> String {
        let (namespace, name) = (release_namespace(&self.object), release_name(&self.object));
        let number = if numbered { format!(".v{}", self.number) } else { String::new() };
        format!("{namespace}/{name}{number} with chart {}@{}", self.chart.name, self.chart.version)
    }

    /// `UpgradeSucceeded` and its like.
    fn reason(&self, outcome: &str) -> String {
        format!("{}{outcome}", if self.action == "install" { "Install" } else { "Upgrade" })
    }

    /// The release as a record of the history.
    fn snapshot(&self, status: &str) -> Value {
        let first = self.object.data["status"]["history"][0]["firstDeployed"].as_str().map(str::to_owned);
        let mut record = json!({
            "action": self.action,
            "apiVersion": "v2",
            "appVersion": self.chart.app_version,
            "chartName": self.chart.name,
            "chartVersion": self.chart.version,
            "configDigest": config_digest(&self.object),
            "digest": digest(format!("{} {status} {}", self.release(true), now()).as_bytes()),
            "firstDeployed": first.unwrap_or_else(now),
            "lastDeployed": now(),
            "name": release_name(&self.object),
            "namespace": release_namespace(&self.object),
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
        records.insert(0, self.snapshot(status));
        records.truncate(if status == "deployed" { KEPT } else { KEPT + 2 });
        Value::Array(records)
    }

    async fn succeed(self, inventory: Value) -> Result<()> {
        let told = format!("Helm {} succeeded for release {}", self.action, self.release(true));
        let reason = self.reason("Succeeded");
        let wanted = [Condition::yes("Ready", &reason, &told), Condition::yes("Released", &reason, &told)];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "history": self.history("deployed"),
            "inventory": inventory,
            "observedGeneration": self.object.metadata.generation,
            "failures": null,
            "installFailures": null,
            "upgradeFailures": null,
        });
        self.end(fields).await
    }

    /// `recorded`: Helm got as far as making a release that failed.
    async fn fail(self, why: &str, recorded: bool) -> Result<()> {
        let told = format!("Helm {} failed for release {}: {why}", self.action, self.release(false));
        let reason = self.reason("Failed");
        let doing = format!("Running '{}' action with timeout of {}", self.action, timeout(self.timeout()));
        let wanted = [
            Condition::yes("Reconciling", "Progressing", &doing),
            Condition::no("Ready", &reason, &told),
            Condition::no("Released", &reason, &told),
        ];
        let mut fields =
            json!({"conditions": conditions(&self.object, &wanted), "failures": self.failures()});
        if recorded {
            fields["history"] = self.history("failed");
            fields[format!("{}Failures", self.action)] = json!(1);
        }
        self.end(fields).await
    }

    async fn stall(self) -> Result<()> {
        let told = format!("Helm {} failed for release {}: made to fail", self.action, self.release(false));
        let reason = self.reason("Failed");
        let retries = format!("Failed to {} after 1 attempt(s)", self.action);
        let wanted = [
            Condition::yes("Stalled", "RetriesExceeded", &retries),
            Condition::no("Ready", &reason, &told),
            Condition::no("Released", &reason, &told),
        ];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "failures": self.failures(),
            "history": self.history("failed"),
            "observedGeneration": self.object.metadata.generation,
        });
        self.end(fields).await
    }

    fn failures(&self) -> i64 {
        self.object.data["status"]["failures"].as_i64().unwrap_or_default() + 1
    }

    async fn end(self, mut fields: Value) -> Result<()> {
        fields["lastAttemptedReleaseActionDuration"] = json!(duration(self.started.elapsed()));
        if !requested(&self.object).is_null() {
            fields["lastHandledReconcileAt"] = requested(&self.object);
        }
        write(self.api, MANAGER, &self.object, fields).await?;
        Ok(())
    }
}

/// A condition of an object as it is, to be written again.
fn kept(object: &DynamicObject, kind: &'static str) -> Option<Condition> {
    let old = find(object, kind)?;
    let (reason, message) = (old["reason"].as_str()?, old["message"].as_str()?);
    Some(match old["status"].as_str()? {
        "True" => Condition::yes(kind, reason, message),
        "False" => Condition::no(kind, reason, message),
        _ => Condition::unknown(kind, reason, message),
    })
}
