//! The part of the Deployment controller and of the machines that run pods: a Deployment rolls out
//! and is available a moment later, unless its owner was told never to be healthy.

use super::condition::{conditions_of_workload, write};
use super::fault::Failure;
use super::health::deployment_is_current;
use super::kind;
use super::world::World;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use std::time::Duration;

const MANAGER: &str = "kube-controller-manager";

/// How soon a Deployment that is never to be healthy is looked at again: it may have been healed.
const AGAIN: Duration = Duration::from_millis(200);

/// Lets a Deployment roll out.
pub(crate) async fn reconcile(seen: &DynamicObject, world: &World) -> Result<Action> {
    if seen.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let api = world.api(&kind::deployment(), &seen.namespace().unwrap_or_default());
    // What the watch shows may be older than what this very function wrote a moment ago, and
    // writing from it would roll a finished Deployment out a second time.
    let Some(object) = api.get_opt(&seen.name_any()).await? else { return Ok(Action::await_change()) };
    let images = object.data["spec"]["template"]["spec"].to_string();
    let never = world.faults.of_owner(&object, &images) == Some(Failure::NeverHealthy);
    if deployment_is_current(&object) && !never {
        return Ok(Action::await_change());
    }
    let rolling = write(&api, MANAGER, &object, rolling_out(&object)).await?;
    if never {
        return Ok(Action::requeue(AGAIN));
    }
    tokio::time::sleep(world.options.rollout).await;
    write(&api, MANAGER, &rolling, available(&rolling)).await?;
    Ok(Action::await_change())
}

fn replicas(object: &DynamicObject) -> i64 {
    object.data["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn rolling_out(object: &DynamicObject) -> Value {
    let wanted = replicas(object);
    let told = format!("ReplicaSet \"{}\" is progressing.", object.name_any());
    let down = "Deployment does not have minimum availability.";
    json!({
        "observedGeneration": object.metadata.generation,
        "replicas": wanted,
        "updatedReplicas": wanted,
        "unavailableReplicas": wanted,
        "readyReplicas": null,
        "availableReplicas": null,
        "conditions": conditions_of_workload(object, &[
            ("Available", "False", "MinimumReplicasUnavailable", down),
            ("Progressing", "True", "ReplicaSetUpdated", &told),
        ]),
    })
}

fn available(object: &DynamicObject) -> Value {
    let wanted = replicas(object);
    let told = format!("ReplicaSet \"{}\" has successfully progressed.", object.name_any());
    let up = "Deployment has minimum availability.";
    json!({
        "observedGeneration": object.metadata.generation,
        "replicas": wanted,
        "updatedReplicas": wanted,
        "unavailableReplicas": null,
        "readyReplicas": wanted,
        "availableReplicas": wanted,
        "conditions": conditions_of_workload(object, &[
            ("Available", "True", "MinimumReplicasAvailable", up),
            ("Progressing", "True", "NewReplicaSetAvailable", &told),
        ]),
    })
}
