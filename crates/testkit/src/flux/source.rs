//! The part of source-controller: what revision a source has. Git is asked; the registries and
//! chart repositories of a stand-in have whatever is asked of them.

use super::condition::{Condition, conditions, find, is_ready, now, write};
use super::history::digest;
use super::kind;
use super::world::World;
use anyhow::{Result, bail};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

const MANAGER: &str = "gotk-source-controller";

/// Looks at a GitRepository's branch and writes what it found, and comes back to look again.
pub(crate) async fn git(seen: &DynamicObject, world: &World) -> Result<Action> {
    if seen.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let again = Action::requeue(world.options.git_poll);
    let url = seen.data["spec"]["url"].as_str().unwrap_or_default();
    match revision_of_git(seen, url, world).await {
        Ok(revision) => {
            found(seen, "GitRepository", &revision, "stored artifact for revision", world).await?
        }
        Err(e) => {
            let told =
                format!("failed to checkout and determine revision: unable to list remote for '{url}': {e}");
            not_found(seen, &told, world).await?;
        }
    }
    Ok(again)
}

async fn revision_of_git(seen: &DynamicObject, url: &str, world: &World) -> Result<String> {
    let reference = &seen.data["spec"]["ref"];
    let field = |name: &str| reference[name].as_str();
    if let (Some(commit), None) = (field("commit"), field("branch")) {
        return Ok(format!("sha1:{commit}"));
    }
    let (pointer, full) = match (field("name"), field("tag"), field("semver")) {
        (Some(name), _, _) => (name.to_owned(), name.to_owned()),
        (_, _, Some(_)) => bail!("the stand-in for Flux does not know spec.ref.semver"),
        (_, Some(tag), _) => (tag.to_owned(), format!("refs/tags/{tag}")),
        _ => {
            let branch = field("branch").unwrap_or("master");
            (branch.to_owned(), format!("refs/heads/{branch}"))
        }
    };
    let who = world.credentials(seen).await?;
    let sha = world.remotes.commit(url, &full, who.as_ref()).await?;
    Ok(format!("{pointer}@sha1:{sha}"))
}

/// An OCIRepository has the tag that it asks for, with a digest that follows from its name.
pub(crate) async fn oci(seen: &DynamicObject, world: &World) -> Result<Action> {
    if seen.data["spec"]["suspend"] == true {
        return Ok(Action::await_change());
    }
    let (spec, reference) = (&seen.data["spec"], &seen.data["spec"]["ref"]);
    let tag = reference["tag"].as_str().unwrap_or("latest");
    let url = spec["url"].as_str().unwrap_or_default();
    let revision = match reference["digest"].as_str() {
        Some(digest) => digest.to_owned(),
        None => format!("{tag}@{}", digest(format!("{url}:{tag}").as_bytes())),
    };
    found(seen, "OCIRepository", &revision, "stored artifact for digest", world).await?;
    Ok(Action::await_change())
}

/// A HelmRepository has an index, whose content nobody looks at.
pub(crate) async fn helm(seen: &DynamicObject, world: &World) -> Result<Action> {
    if seen.data["spec"]["suspend"] != true && seen.data["spec"]["type"] != "oci" {
        let revision = digest(seen.data["spec"]["url"].as_str().unwrap_or_default().as_bytes());
        found(seen, "HelmRepository", &revision, "stored artifact: revision", world).await?;
    }
    Ok(Action::await_change())
}

async fn found(seen: &DynamicObject, kind: &str, revision: &str, told: &str, world: &World) -> Result<()> {
    let handled = requested(seen);
    let what = format!("{revision} {:?} {handled}", seen.metadata.generation);
    if world.tried(seen, &what) {
        return Ok(());
    }
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let api = world.api(&kind::source(kind), &namespace);
    let object = api.get(&name).await?;
    let current = is_ready(&object) && object.data["status"]["artifact"]["revision"] == revision;
    if !current || object.data["status"]["lastHandledReconcileAt"] != handled {
        let message = format!("{told} '{revision}'");
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
        write(&api, MANAGER, &object, fields).await?;
    }
    world.note(seen, &what);
    Ok(())
}

async fn not_found(seen: &DynamicObject, told: &str, world: &World) -> Result<()> {
    let what = format!("{told} {:?}", seen.metadata.generation);
    if world.tried(seen, &what) {
        return Ok(());
    }
    let api = world.api(&kind::source("GitRepository"), &seen.namespace().unwrap_or_default());
    let object = api.get(&seen.name_any()).await?;
    let mut wanted = vec![
        Condition::yes("Reconciling", "ProgressingWithRetry", "building artifact"),
        Condition::no("Ready", "GitOperationFailed", told),
        Condition::yes("FetchFailed", "GitOperationFailed", told),
    ];
    if let Some(stored) = find(&object, "ArtifactInStorage") {
        let message = stored["message"].as_str().unwrap_or_default();
        wanted.push(Condition::yes("ArtifactInStorage", "Succeeded", message));
    }
    write(&api, MANAGER, &object, json!({"conditions": conditions(&object, &wanted)})).await?;
    world.note(seen, &what);
    Ok(())
}

/// What `flux reconcile` wrote on an object; null when nobody asked.
pub(crate) fn requested(object: &DynamicObject) -> Value {
    object.annotations().get("reconcile.fluxcd.io/requestedAt").map_or(Value::Null, |at| json!(at))
}
