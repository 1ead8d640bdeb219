//! Replaces the Deployment controller and the nodes: a Deployment becomes available after a delay, unless its owner has
//! [`FluxFailure::NeverHealthy`].

use super::condition::conditions_of_workload;
use super::context::StandInContext;
use super::health::deployment_is_current;
use super::kind;
use super::requested_failures::FluxFailure;
use super::write_status::write_status;
use anyhow::Result;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use std::time::Duration;

const MANAGER: &str = "kube-controller-manager";

/// The interval for checking whether the failure of a Deployment was removed.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Rolls a Deployment out.
pub(crate) async fn reconcile(cached: &DynamicObject, context: &StandInContext) -> Result<Action> {
    if cached.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let api = context.api(&kind::deployment(), &cached.namespace().unwrap_or_default());
    // The cached object may be older than the last write of this function. Writing from it would roll a finished
    // Deployment out again.
    let Some(object) = api.get_opt(&cached.name_any()).await? else { return Ok(Action::await_change()) };
    let images = object.data["spec"]["template"]["spec"].to_string();
    let never_healthy = context.failures.matching_owner(&object, &images) == Some(FluxFailure::NeverHealthy);
    if deployment_is_current(&object) && !never_healthy {
        return Ok(Action::await_change());
    }
    let rolling = write_status(&api, MANAGER, &object, rolling_out(&object)).await?;
    if never_healthy {
        return Ok(Action::requeue(FAILURE_CHECK_INTERVAL));
    }
    tokio::time::sleep(context.options.rollout).await;
    write_status(&api, MANAGER, &rolling, available(&rolling)).await?;
    Ok(Action::await_change())
}

fn replicas(object: &DynamicObject) -> i64 {
    object.data["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn rolling_out(object: &DynamicObject) -> Value {
    let wanted = replicas(object);
    let message = format!("ReplicaSet \"{}\" is progressing.", object.name_any());
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
            ("Progressing", "True", "ReplicaSetUpdated", &message),
        ]),
    })
}

fn available(object: &DynamicObject) -> Value {
    let wanted = replicas(object);
    let message = format!("ReplicaSet \"{}\" has successfully progressed.", object.name_any());
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
            ("Progressing", "True", "NewReplicaSetAvailable", &message),
        ]),
    })
}
