//! Replaces kustomize-controller: applies the objects of a source's revision and writes the status.

use super::build::{BuildError, build};
use super::condition::{Condition, conditions, find, is_ready};
use super::context::StandInContext;
use super::digest::digest;
use super::go_duration::{format_timeout, parse_duration};
use super::health::is_current;
use super::inventory::{inventory, prune};
use super::kind;
use super::kustomization_history::reconciled;
use super::requested_failures::FluxFailure;
use super::source::requested_at;
use super::write_status::write_status;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const APPLIER: &str = "kustomize-controller";
const MANAGER: &str = "gotk-kustomize-controller";
/// Flux's finalizer.
pub(crate) const FINALIZER: &str = "finalizers.fluxcd.io";
/// The interval for checking whether the failure of an object was removed.
pub(crate) const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The interval of health checks.
pub(crate) const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Applies the revision of a Kustomization's source, if it is not applied yet.
pub(crate) async fn reconcile(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let api = context.api(&kind::kustomization(), &namespace);
    if cached.metadata.deletion_timestamp.is_some() {
        return finalize(cached, &api, context).await;
    }
    if cached.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let source = context.source(&cached.data["spec"]["sourceRef"], &namespace).await?;
    let revision = source.as_ref().and_then(|s| s.data["status"]["artifact"]["revision"].as_str());
    let failures = context.failures.description("Kustomization", &namespace, &name);
    let attempt =
        format!("{revision:?} {:?} {} {failures}", cached.metadata.generation, requested_at(cached));
    let next =
        if failures.is_empty() { Action::await_change() } else { Action::requeue(FAILURE_CHECK_INTERVAL) };
    if context.is_attempted(cached, &attempt) {
        return Ok(next);
    }
    let object = api.get(&name).await?;
    if let (Some(source), Some(revision)) = (&source, revision) {
        if !is_applied(&object, revision) {
            let object = with_finalizer(&object, &api, context).await?;
            let run =
                KustomizationRun { context, api: &api, object, source, revision, started: Instant::now() };
            run.run().await?;
        }
    } else {
        let message = "Source artifact not found, retrying in 30s";
        let wanted = [
            Condition::yes("Reconciling", "ProgressingWithRetry", message),
            Condition::no("Ready", "ArtifactFailed", message),
        ];
        write_status(&api, MANAGER, &object, json!({"conditions": conditions(&object, &wanted)})).await?;
    }
    context.record_attempt(cached, &attempt);
    Ok(next)
}

fn is_applied(object: &DynamicObject, revision: &str) -> bool {
    let status = &object.data["status"];
    is_ready(object)
        && status["lastAppliedRevision"] == revision
        && (requested_at(object).is_null() || status["lastHandledReconcileAt"] == requested_at(object))
}

async fn finalize(
    cached: &DynamicObject,
    api: &Api<DynamicObject>,
    context: &StandInContext,
) -> Result<Action> {
    if cached.finalizers().iter().any(|f| f == FINALIZER) {
        if cached.data["spec"]["prune"] == true && cached.data["spec"]["suspend"] != true {
            prune(context, &cached.data["status"]["inventory"], &Value::Null).await?;
        }
        set_finalizers(cached, api, |finalizers| finalizers.retain(|f| f != FINALIZER)).await?;
    }
    Ok(Action::await_change())
}

/// Adds Flux's finalizer to an object, if the options say so.
pub(crate) async fn with_finalizer(
    object: &DynamicObject,
    api: &Api<DynamicObject>,
    context: &StandInContext,
) -> Result<DynamicObject> {
    if !context.options.finalizers || object.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(object.clone());
    }
    set_finalizers(object, api, |finalizers| finalizers.push(FINALIZER.to_owned())).await
}

/// Changes only the finalizers of an object.
pub(crate) async fn set_finalizers(
    object: &DynamicObject,
    api: &Api<DynamicObject>,
    change: impl Fn(&mut Vec<String>),
) -> Result<DynamicObject> {
    let mut finalizers = object.finalizers().to_vec();
    change(&mut finalizers);
    // With the resource version, so that no other finalizer is lost.
    let metadata = json!({"finalizers": finalizers, "resourceVersion": object.resource_version()});
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    api.patch(&object.name_any(), &PatchParams::default(), &patch).await.map_err(crate::apply::api_error)
}

/// One reconciliation.
struct KustomizationRun<'a> {
    context: &'a StandInContext,
    api: &'a Api<DynamicObject>,
    object: DynamicObject,
    source: &'a DynamicObject,
    revision: &'a str,
    started: Instant,
}

/// The outcome of the health checks.
enum HealthOutcome {
    Passed,
    /// With the objects that are not healthy.
    TimedOut(String),
    /// The source or the Kustomization changed meanwhile.
    Superseded,
}

impl KustomizationRun<'_> {
    async fn run(mut self) -> Result<()> {
        self.write_progress("Building manifests", false).await?;
        tokio::time::sleep(self.context.options.progressing).await;
        let objects = match self.build().await? {
            Ok(objects) => objects,
            Err(error) => return self.fail(error.reason, &error.message).await,
        };
        let text = json!([self.revision, objects]).to_string();
        let digest = digest(text.as_bytes());
        let failure = self.context.failures.matching(
            "Kustomization",
            &self.namespace(),
            &self.object.name_any(),
            &text,
        );
        match failure {
            Some(FluxFailure::BuildFailed) => {
                let message =
                    "failed to decode Kubernetes YAML: MalformedYAMLError: made to fail by the test";
                return self.fail("BuildFailed", message).await;
            }
            Some(FluxFailure::UpgradeFailed) => {
                return self.fail("ReconciliationFailed", "dry-run failed: made to fail by the test").await;
            }
            Some(FluxFailure::Stalled) => return self.stall().await,
            _ => {}
        }
        let applied = match self.apply(objects).await {
            Ok(applied) => applied,
            Err(e) => return self.fail("ReconciliationFailed", &format!("{e:#}")).await,
        };
        let inventory = inventory(&applied);
        if self.object.data["spec"]["prune"] == true {
            prune(self.context, &self.object.data["status"]["inventory"], &inventory).await?;
        }
        self.object = self.write(json!({"inventory": inventory})).await?;
        if failure == Some(FluxFailure::HealthCheckFailed) {
            return self.write_unhealthy(&digest, &unhealthy_names(&applied)).await;
        }
        if !self.health_checked(&applied).is_empty() {
            self.write_progress("Running health checks", true).await?;
            match self.wait_until_healthy(&applied).await? {
                HealthOutcome::Passed => {}
                HealthOutcome::TimedOut(names) => return self.write_unhealthy(&digest, &names).await,
                HealthOutcome::Superseded => return self.write_superseded().await,
            }
        }
        self.succeed(&digest).await
    }

    fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    fn timeout(&self) -> Duration {
        let spec = self.object.data["spec"]["timeout"].as_str();
        spec.and_then(parse_duration).unwrap_or(self.context.options.health_timeout)
    }

    async fn write(&self, fields: Value) -> Result<DynamicObject> {
        write_status(self.api, MANAGER, &self.object, fields).await
    }

    fn progress_message(&self, step: &str) -> String {
        format!("{step} for revision {} with a timeout of {}", self.revision, format_timeout(self.timeout()))
    }

    async fn write_progress(&mut self, step: &str, checks_health: bool) -> Result<()> {
        let message = self.progress_message(step);
        let mut wanted = vec![
            Condition::yes("Reconciling", "Progressing", &message),
            Condition::unknown("Ready", "Progressing", "Reconciliation in progress"),
        ];
        if checks_health {
            wanted.push(Condition::unknown("Healthy", "Progressing", &message));
        }
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "lastAttemptedRevision": self.revision,
        });
        self.object = self.write(fields).await?;
        Ok(())
    }

    /// Builds the objects of the revision, on another thread, because git blocks.
    async fn build(&self) -> Result<std::result::Result<Vec<Value>, BuildError>> {
        let spec = self.object.data["spec"].clone();
        let Some((_, sha)) = self.revision.rsplit_once("sha1:") else { return Ok(Ok(Vec::new())) };
        let url = self.source.data["spec"]["url"].as_str().unwrap_or_default().to_owned();
        let (checkouts, sha) = (self.context.checkouts.clone(), sha.to_owned());
        let credentials = self.context.credentials(self.source).await?;
        let work = move || {
            let tree = checkouts.tree(&url, &sha, credentials.as_ref())?;
            anyhow::Ok(build(&*tree, &spec))
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Applies the manifests that differ from the last applied ones. Flux finds them by a dry run of each.
    async fn apply(&self, mut objects: Vec<Value>) -> Result<Vec<DynamicObject>> {
        for object in &mut objects {
            let labels = &mut object["metadata"]["labels"];
            labels["kustomize.toolkit.fluxcd.io/name"] = json!(self.object.name_any());
            labels["kustomize.toolkit.fluxcd.io/namespace"] = json!(self.namespace());
        }
        crate::apply::sort(&mut objects);
        let last = self.context.take_applied(&self.object);
        let unchanged =
            |object: &Value| last.iter().find(|(text, _)| text == object).map(|(_, applied)| applied.clone());
        let changed = objects.iter().filter(|object| unchanged(object).is_none()).cloned().collect();
        let namespace = self.namespace();
        let applied = crate::apply::apply_in(&self.context.client, APPLIER, &namespace, changed).await?;
        let mut applied = applied.into_iter();
        let all: Vec<DynamicObject> =
            objects.iter().filter_map(|object| unchanged(object).or_else(|| applied.next())).collect();
        self.context.store_applied(&self.object, objects.into_iter().zip(all.clone()).collect());
        Ok(all)
    }

    /// Returns the applied objects with a health check.
    fn health_checked<'a>(&self, applied: &'a [DynamicObject]) -> Vec<&'a DynamicObject> {
        let spec = &self.object.data["spec"];
        let checks = spec["healthChecks"].as_array().cloned().unwrap_or_default();
        let is_checked = |object: &&DynamicObject| {
            let kind = object.types.as_ref().map(|t| t.kind.as_str()).unwrap_or_default();
            spec["wait"] == true || checks.iter().any(|c| c["kind"] == kind && c["name"] == object.name_any())
        };
        applied.iter().filter(is_checked).collect()
    }

    async fn wait_until_healthy(&self, applied: &[DynamicObject]) -> Result<HealthOutcome> {
        let checked = self.health_checked(applied);
        let end = Instant::now() + self.timeout();
        loop {
            let mut unhealthy = Vec::new();
            for object in &checked {
                if !is_current(&current_object(object, self.context).await?) {
                    unhealthy.push((*object).clone());
                }
            }
            if unhealthy.is_empty() {
                return Ok(HealthOutcome::Passed);
            }
            if self.is_superseded().await? {
                return Ok(HealthOutcome::Superseded);
            }
            if Instant::now() > end {
                return Ok(HealthOutcome::TimedOut(unhealthy_names(&unhealthy)));
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }

    async fn is_superseded(&self) -> Result<bool> {
        let now = self.api.get(&self.object.name_any()).await?;
        let source = self.context.source(&now.data["spec"]["sourceRef"], &self.namespace()).await?;
        let revision = source.map(|s| s.data["status"]["artifact"]["revision"].clone()).unwrap_or_default();
        Ok(now.metadata.generation != self.object.metadata.generation || revision != self.revision)
    }

    async fn write_superseded(self) -> Result<()> {
        let message = format!(
            "Health checks canceled due to new reconciliation triggered by GitRepository/{}/{}",
            self.source.namespace().unwrap_or_default(),
            self.source.name_any()
        );
        self.fail("HealthCheckCanceled", &message).await
    }

    async fn write_unhealthy(self, digest: &str, names: &str) -> Result<()> {
        let took = self.started.elapsed();
        let message = format!("health check failed after {took:.1?}: timeout waiting for: [{names}]");
        let history = &self.object.data["status"]["history"];
        let history = reconciled(history, digest, self.revision, "HealthCheckFailed", took);
        let wanted = [
            Condition::yes(
                "Reconciling",
                "ProgressingWithRetry",
                &self.progress_message("Running health checks"),
            ),
            Condition::no("Ready", "HealthCheckFailed", &message),
            Condition::no("Healthy", "HealthCheckFailed", &message),
        ];
        let fields = json!({"conditions": conditions(&self.object, &wanted), "history": history});
        self.write_outcome(fields).await
    }

    async fn fail(self, reason: &str, message: &str) -> Result<()> {
        let step =
            find(&self.object, "Reconciling").map_or("", |c| c["message"].as_str().unwrap_or_default());
        let wanted = [
            Condition::yes("Reconciling", "ProgressingWithRetry", step),
            Condition::no("Ready", reason, message),
        ];
        let fields = json!({"conditions": conditions(&self.object, &wanted)});
        self.write_outcome(fields).await
    }

    async fn stall(self) -> Result<()> {
        let message = "made to stall by the test";
        let wanted = [
            Condition::yes("Stalled", "AccessDenied", message),
            Condition::no("Ready", "AccessDenied", message),
        ];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "observedGeneration": self.object.metadata.generation,
        });
        self.write_outcome(fields).await
    }

    async fn succeed(self, digest: &str) -> Result<()> {
        let took = self.started.elapsed();
        let history = &self.object.data["status"]["history"];
        let history = reconciled(history, digest, self.revision, "ReconciliationSucceeded", took);
        let message = format!("Applied revision: {}", self.revision);
        let mut wanted = vec![Condition::yes("Ready", "ReconciliationSucceeded", &message)];
        if find(&self.object, "Healthy").is_some() {
            wanted.push(Condition::yes(
                "Healthy",
                "Succeeded",
                &format!("Health check passed in {took:.1?}"),
            ));
        }
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "history": history,
            "lastAppliedRevision": self.revision,
            "observedGeneration": self.object.metadata.generation,
        });
        self.write_outcome(fields).await
    }

    async fn write_outcome(self, mut fields: Value) -> Result<()> {
        if !requested_at(&self.object).is_null() {
            fields["lastHandledReconcileAt"] = requested_at(&self.object);
        }
        self.write(fields).await?;
        Ok(())
    }
}

/// Returns the current state of an applied Deployment; other objects, and deleted ones, as they were applied.
pub(crate) async fn current_object(
    object: &DynamicObject,
    context: &StandInContext,
) -> Result<DynamicObject> {
    if object.types.as_ref().is_some_and(|t| t.kind == "Deployment") {
        let api = context.api(&kind::deployment(), &object.namespace().unwrap_or_default());
        return Ok(api.get_opt(&object.name_any()).await?.unwrap_or_else(|| object.clone()));
    }
    Ok(object.clone())
}

fn unhealthy_names(objects: &[DynamicObject]) -> String {
    let name = |object: &DynamicObject| {
        let kind = object.types.as_ref().map(|t| t.kind.as_str()).unwrap_or_default();
        format!(
            "{kind}/{}/{} status: 'InProgress'",
            object.namespace().unwrap_or_default(),
            object.name_any()
        )
    };
    objects.iter().map(name).collect::<Vec<_>>().join(", ")
}
