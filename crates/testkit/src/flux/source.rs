//! Replaces source-controller: writes the revision of a source. The stand-in asks real git servers. It does not ask
//! registries and chart repositories: every tag and chart exists.

use super::condition::{Condition, conditions, find, is_ready, now};
use super::context::StandInContext;
use super::digest::digest;
use super::kind;
use super::write_status::write_status;
use anyhow::{Result, bail};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

const MANAGER: &str = "gotk-source-controller";

/// Reads the branch of a GitRepository, writes its revision, and polls again later.
pub(crate) async fn git(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    if cached.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let again = Action::requeue(context.options.git_poll);
    let url = cached.data["spec"]["url"].as_str().unwrap_or_default();
    match revision_of_git(cached, url, context).await {
        Ok(revision) => {
            found(cached, "GitRepository", &revision, "stored artifact for revision", context).await?
        }
        Err(e) => {
            let message =
                format!("failed to checkout and determine revision: unable to list remote for '{url}': {e}");
            not_found(cached, &message, context).await?;
        }
    }
    Ok(again)
}

async fn revision_of_git(cached: &DynamicObject, url: &str, context: &StandInContext) -> Result<String> {
    let reference = &cached.data["spec"]["ref"];
    let field = |name: &str| reference[name].as_str();
    if let (Some(commit), None) = (field("commit"), field("branch")) {
        return Ok(format!("sha1:{commit}"));
    }
    let (name, reference) = match (field("name"), field("tag"), field("semver")) {
        (Some(name), _, _) => (name.to_owned(), name.to_owned()),
        (_, _, Some(_)) => bail!("the stand-in for Flux does not support spec.ref.semver"),
        (_, Some(tag), _) => (tag.to_owned(), format!("refs/tags/{tag}")),
        _ => {
            let branch = field("branch").unwrap_or("master");
            (branch.to_owned(), format!("refs/heads/{branch}"))
        }
    };
    let credentials = context.credentials(cached).await?;
    let sha = context.remotes.commit(url, &reference, credentials.as_ref()).await?;
    Ok(format!("{name}@sha1:{sha}"))
}

/// Writes the revision of an OCIRepository: its tag, with a digest of its name.
pub(crate) async fn oci(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    if cached.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let (spec, reference) = (&cached.data["spec"], &cached.data["spec"]["ref"]);
    let tag = reference["tag"].as_str().unwrap_or("latest");
    let url = spec["url"].as_str().unwrap_or_default();
    let revision = match reference["digest"].as_str() {
        Some(digest) => digest.to_owned(),
        None => format!("{tag}@{}", digest(format!("{url}:{tag}").as_bytes())),
    };
    found(cached, "OCIRepository", &revision, "stored artifact for digest", context).await?;
    Ok(Action::await_change())
}

/// Writes the revision of a HelmRepository: a digest of its address.
pub(crate) async fn helm(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    if cached.data["spec"]["suspend"] != true && cached.data["spec"]["type"] != "oci" {
        let revision = digest(cached.data["spec"]["url"].as_str().unwrap_or_default().as_bytes());
        found(cached, "HelmRepository", &revision, "stored artifact: revision", context).await?;
    }
    Ok(Action::await_change())
}

async fn found(
    cached: &DynamicObject,
    kind: &str,
    revision: &str,
    message: &str,
    context: &StandInContext,
) -> Result<()> {
    let handled = requested_at(cached);
    let attempt = format!("{revision} {:?} {handled}", cached.metadata.generation);
    if context.is_attempted(cached, &attempt) {
        return Ok(());
    }
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let api = context.api(&kind::source(kind), &namespace);
    let object = api.get(&name).await?;
    let current = is_ready(&object) && object.data["status"]["artifact"]["revision"] == revision;
    if !current || object.data["status"]["lastHandledReconcileAt"] != handled {
        let message = format!("{message} '{revision}'");
        let file = revision.rsplit(':').next().unwrap_or(revision);
        let path = format!("{}/{namespace}/{name}/{file}.tar.gz", kind.to_lowercase());
        let fields = json!({
            "artifact": {
                "digest": digest(revision.as_bytes()),
                "lastUpdateTime": now(),
                "path": path,
                "revision": revision,
                "size": 561,
                "url": format!("http://source-controller.flux-system.svc.cluster.local./{path}"),
            },
            "conditions": conditions(&object, &[
                Condition::yes("Ready", "Succeeded", &message),
                Condition::yes("ArtifactInStorage", "Succeeded", &message),
            ]),
            "observedGeneration": object.metadata.generation,
            "lastHandledReconcileAt": handled,
        });
        write_status(&api, MANAGER, &object, fields).await?;
    }
    context.record_attempt(cached, &attempt);
    Ok(())
}

async fn not_found(cached: &DynamicObject, message: &str, context: &StandInContext) -> Result<()> {
    let attempt = format!("{message} {:?}", cached.metadata.generation);
    if context.is_attempted(cached, &attempt) {
        return Ok(());
    }
    let api = context.api(&kind::source("GitRepository"), &cached.namespace().unwrap_or_default());
    let object = api.get(&cached.name_any()).await?;
    let mut wanted = vec![
        Condition::yes("Reconciling", "ProgressingWithRetry", "building artifact"),
        Condition::no("Ready", "GitOperationFailed", message),
        Condition::yes("FetchFailed", "GitOperationFailed", message),
    ];
    if let Some(stored) = find(&object, "ArtifactInStorage") {
        let message = stored["message"].as_str().unwrap_or_default();
        wanted.push(Condition::yes("ArtifactInStorage", "Succeeded", message));
    }
    write_status(&api, MANAGER, &object, json!({"conditions": conditions(&object, &wanted)})).await?;
    context.record_attempt(cached, &attempt);
    Ok(())
}

/// Returns the annotation that `flux reconcile` writes; null if the object has none.
pub(crate) fn requested_at(object: &DynamicObject) -> Value {
    object.annotations().get("reconcile.fluxcd.io/requestedAt").map_or(Value::Null, |at| json!(at))
}
