//! The part of kustomize-controller: from a source's revision to applied objects and a status.

use super::build::{BuildError, build};
use super::condition::{Condition, conditions, find, is_ready, write};
use super::fault::Failure;
use super::health::is_current;
use super::history::{digest, parse_duration, reconciled, timeout};
use super::inventory::{inventory, prune};
use super::kind;
use super::source::requested;
use super::world::World;
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
/// How soon an object with a failure on it is looked at again: it may have been healed.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);
/// How often health is looked at while it is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Brings a Kustomization to its source's revision, if it is not there.
pub(crate) async fn reconcile(seen: &DynamicObject, world: &World) -> Result<Action> {
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let api = world.api(&kind::kustomization(), &namespace);
    if seen.metadata.deletion_timestamp.is_some() {
        return finalize(seen, &api, world).await;
    }
    if seen.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let source = world.source(&seen.data["spec"]["sourceRef"], &namespace).await?;
    let revision = source.as_ref().and_then(|s| s.data["status"]["artifact"]["revision"].as_str());
    let asked = world.faults.asked("Kustomization", &namespace, &name);
    let what = format!("{revision:?} {:?} {} {asked}", seen.metadata.generation, requested(seen));
    let next = if asked.is_empty() { Action::await_change() } else { Action::requeue(AGAIN) };
    if world.tried(seen, &what) {
        return Ok(next);
    }
    let object = api.get(&name).await?;
    if let (Some(source), Some(revision)) = (&source, revision) {
        if !settled(&object, revision) {
            let object = with_finalizer(&object, &api, world).await?;
            let run = Run { world, api: &api, object, source, revision, started: Instant::now() };
            run.go().await?;
        }
    } else {
        let told = "Source artifact not found, retrying in 30s";
        let wanted = [
            Condition::yes("Reconciling", "ProgressingWithRetry", told),
            Condition::no("Ready", "ArtifactFailed", told),
        ];
        write(&api, MANAGER, &object, json!({"conditions": conditions(&object, &wanted)})).await?;
    }
    world.note(seen, &what);
    Ok(next)
}

fn settled(object: &DynamicObject, revision: &str) -> bool {
    let status = &object.data["status"];
    is_ready(object)
        && status["lastAppliedRevision"] == revision
        && (requested(object).is_null() || status["lastHandledReconcileAt"] == requested(object))
}

async fn finalize(seen: &DynamicObject, api: &Api<DynamicObject>, world: &World) -> Result<Action> {
    if seen.finalizers().iter().any(|f| f == FINALIZER) {
        if seen.data["spec"]["prune"] == true && seen.data["spec"]["suspend"] != true {
            prune(world, &seen.data["status"]["inventory"], &Value::Null).await?;
        }
        set_finalizers(seen, api, |finalizers| finalizers.retain(|f| f != FINALIZER)).await?;
    }
    Ok(Action::await_change())
}

/// Puts Flux's finalizer on an object, where the options want that.
pub(crate) async fn with_finalizer(
    object: &DynamicObject,
    api: &Api<DynamicObject>,
    world: &World,
) -> Result<DynamicObject> {
    if !world.options.finalizers || object.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(object.clone());
    }
    set_finalizers(object, api, |finalizers| finalizers.push(FINALIZER.to_owned())).await
}

/// Changes an object's finalizers, and nothing else of it.
pub(crate) async fn set_finalizers(
    object: &DynamicObject,
    api: &Api<DynamicObject>,
    change: impl Fn(&mut Vec<String>),
) -> Result<DynamicObject> {
    let mut finalizers = object.finalizers().to_vec();
    change(&mut finalizers);
    // With the version, so that somebody else's finalizer is not lost.
    let metadata = json!({"finalizers": finalizers, "resourceVersion": object.resource_version()});
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    api.patch(&object.name_any(), &PatchParams::default(), &patch).await.map_err(crate::apply::plainly)
}

/// One reconciliation.
struct Run<'a> {
    world: &'a World,
    api: &'a Api<DynamicObject>,
    object: DynamicObject,
    source: &'a DynamicObject,
    revision: &'a str,
    started: Instant,
}

/// What waiting for health came to.
enum Health {
    Passed,
    Late(String),
    Overtaken,
}

impl Run<'_> {
    async fn go(mut self) -> Result<()> {
        self.progress("Building manifests", false).await?;
        tokio::time::sleep(self.world.options.progressing).await;
        let objects = match self.build().await? {
            Ok(objects) => objects,
            Err(error) => return self.fail(error.reason, &error.message).await,
        };
        let text = json!([self.revision, objects]).to_string();
        let digest = digest(text.as_bytes());
        let fault = self.world.faults.of("Kustomization", &self.namespace(), &self.object.name_any(), &text);
        match fault {
            Some(Failure::BuildFailed) => {
                let told = "failed to decode Kubernetes YAML: MalformedYAMLError: made to fail by the test";
                return self.fail("BuildFailed", told).await;
            }
            Some(Failure::UpgradeFailed) => {
                return self.fail("ReconciliationFailed", "dry-run failed: made to fail by the test").await;
            }
            Some(Failure::Stalled) => return self.stall().await,
            _ => {}
        }
        let applied = match self.apply(objects).await {
            Ok(applied) => applied,
            Err(e) => return self.fail("ReconciliationFailed", &format!("{e:#}")).await,
        };
        let made = inventory(&applied);
        if self.object.data["spec"]["prune"] == true {
            prune(self.world, &self.object.data["status"]["inventory"], &made).await?;
        }
        self.object = self.write(json!({"inventory": made})).await?;
        if fault == Some(Failure::HealthCheckFailed) {
            return self.unhealthy(&digest, &unhealthy_names(&applied)).await;
        }
        if !self.waits_for(&applied).is_empty() {
            self.progress("Running health checks", true).await?;
            match self.wait(&applied).await? {
                Health::Passed => {}
                Health::Late(names) => return self.unhealthy(&digest, &names).await,
                Health::Overtaken => return self.overtaken().await,
            }
        }
        self.succeed(&digest).await
    }

    fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    fn timeout(&self) -> Duration {
        let spec = self.object.data["spec"]["timeout"].as_str();
        spec.and_then(parse_duration).unwrap_or(self.world.options.health_timeout)
    }

    async fn write(&self, fields: Value) -> Result<DynamicObject> {
        write(self.api, MANAGER, &self.object, fields).await
    }

    fn activity(&self, doing: &str) -> String {
        format!("{doing} for revision {} with a timeout of {}", self.revision, timeout(self.timeout()))
    }

    async fn progress(&mut self, doing: &str, health: bool) -> Result<()> {
        let told = self.activity(doing);
        let mut wanted = vec![
            Condition::yes("Reconciling", "Progressing", &told),
            Condition::unknown("Ready", "Progressing", "Reconciliation in progress"),
        ];
        if health {
            wanted.push(Condition::unknown("Healthy", "Progressing", &told));
        }
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "lastAttemptedRevision": self.revision,
        });
        self.object = self.write(fields).await?;
        Ok(())
    }

    /// The objects of the revision; git is another process, so this goes to a thread of its own.
    async fn build(&self) -> Result<std::result::Result<Vec<Value>, BuildError>> {
        let spec = self.object.data["spec"].clone();
        let Some((_, sha)) = self.revision.rsplit_once("sha1:") else { return Ok(Ok(Vec::new())) };
        let url = self.source.data["spec"]["url"].as_str().unwrap_or_default().to_owned();
        let (checkouts, sha) = (self.world.checkouts.clone(), sha.to_owned());
        let who = self.world.credentials(self.source).await?;
        let work = move || {
            let tree = checkouts.tree(&url, &sha, who.as_ref())?;
            anyhow::Ok(build(&*tree, &spec))
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Applies what is not as it was applied last; Flux learns that from a dry run of each.
    async fn apply(&self, mut objects: Vec<Value>) -> Result<Vec<DynamicObject>> {
        for object in &mut objects {
            let labels = &mut object["metadata"]["labels"];
            labels["kustomize.toolkit.fluxcd.io/name"] = json!(self.object.name_any());
            labels["kustomize.toolkit.fluxcd.io/namespace"] = json!(self.namespace());
        }
        crate::apply::sort(&mut objects);
        let known = self.world.take_applied(&self.object);
        let known =
            |object: &Value| known.iter().find(|(text, _)| text == object).map(|(_, done)| done.clone());
        let changed = objects.iter().filter(|object| known(object).is_none()).cloned().collect();
        let namespace = self.namespace();
        let fresh = crate::apply::apply_in(&self.world.client, APPLIER, &namespace, changed).await?;
        let mut fresh = fresh.into_iter();
        let done: Vec<DynamicObject> =
            objects.iter().filter_map(|object| known(object).or_else(|| fresh.next())).collect();
        self.world.keep_applied(&self.object, objects.into_iter().zip(done.clone()).collect());
        Ok(done)
    }

    /// The applied objects whose health is waited for.
    fn waits_for<'a>(&self, applied: &'a [DynamicObject]) -> Vec<&'a DynamicObject> {
        let spec = &self.object.data["spec"];
        let checks = spec["healthChecks"].as_array().cloned().unwrap_or_default();
        let checked = |object: &&DynamicObject| {
            let kind = object.types.as_ref().map(|t| t.kind.as_str()).unwrap_or_default();
            spec["wait"] == true || checks.iter().any(|c| c["kind"] == kind && c["name"] == object.name_any())
        };
        applied.iter().filter(checked).collect()
    }

    async fn wait(&self, applied: &[DynamicObject]) -> Result<Health> {
        let watched = self.waits_for(applied);
        let end = Instant::now() + self.timeout();
        loop {
            let mut late = Vec::new();
            for object in &watched {
                if !is_current(&look(object, self.world).await?) {
                    late.push((*object).clone());
                }
            }
            if late.is_empty() {
                return Ok(Health::Passed);
            }
            if self.is_overtaken().await? {
                return Ok(Health::Overtaken);
            }
            if Instant::now() > end {
                return Ok(Health::Late(unhealthy_names(&late)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn is_overtaken(&self) -> Result<bool> {
        let now = self.api.get(&self.object.name_any()).await?;
        let source = self.world.source(&now.data["spec"]["sourceRef"], &self.namespace()).await?;
        let revision = source.map(|s| s.data["status"]["artifact"]["revision"].clone()).unwrap_or_default();
        Ok(now.metadata.generation != self.object.metadata.generation || revision != self.revision)
    }

    async fn overtaken(self) -> Result<()> {
        let told = format!(
            "Health checks canceled due to new reconciliation triggered by GitRepository/{}/{}",
            self.source.namespace().unwrap_or_default(),
            self.source.name_any()
        );
        self.fail("HealthCheckCanceled", &told).await
    }

    async fn unhealthy(self, digest: &str, names: &str) -> Result<()> {
        let took = self.started.elapsed();
        let told = format!("health check failed after {took:.1?}: timeout waiting for: [{names}]");
        let history = &self.object.data["status"]["history"];
        let history = reconciled(history, digest, self.revision, "HealthCheckFailed", took);
        let wanted = [
            Condition::yes("Reconciling", "ProgressingWithRetry", &self.activity("Running health checks")),
            Condition::no("Ready", "HealthCheckFailed", &told),
            Condition::no("Healthy", "HealthCheckFailed", &told),
        ];
        let fields = json!({"conditions": conditions(&self.object, &wanted), "history": history});
        self.end(fields).await
    }

    async fn fail(self, reason: &str, message: &str) -> Result<()> {
        let doing =
            find(&self.object, "Reconciling").map_or("", |c| c["message"].as_str().unwrap_or_default());
        let wanted = [
            Condition::yes("Reconciling", "ProgressingWithRetry", doing),
            Condition::no("Ready", reason, message),
        ];
        let fields = json!({"conditions": conditions(&self.object, &wanted)});
        self.end(fields).await
    }

    async fn stall(self) -> Result<()> {
        let told = "made to stall by the test";
        let wanted =
            [Condition::yes("Stalled", "AccessDenied", told), Condition::no("Ready", "AccessDenied", told)];
        let fields = json!({
            "conditions": conditions(&self.object, &wanted),
            "observedGeneration": self.object.metadata.generation,
        });
        self.end(fields).await
    }

    async fn succeed(self, digest: &str) -> Result<()> {
        let took = self.started.elapsed();
        let history = &self.object.data["status"]["history"];
        let history = reconciled(history, digest, self.revision, "ReconciliationSucceeded", took);
        let told = format!("Applied revision: {}", self.revision);
        let mut wanted = vec![Condition::yes("Ready", "ReconciliationSucceeded", &told)];
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
        self.end(fields).await
    }

    async fn end(self, mut fields: Value) -> Result<()> {
        if !requested(&self.object).is_null() {
            fields["lastHandledReconcileAt"] = requested(&self.object);
        }
        self.write(fields).await?;
        Ok(())
    }
}

/// An applied object as it is now; as it was when it has gone.
pub(crate) async fn look(object: &DynamicObject, world: &World) -> Result<DynamicObject> {
    if object.types.as_ref().is_some_and(|t| t.kind == "Deployment") {
        let api = world.api(&kind::deployment(), &object.namespace().unwrap_or_default());
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
