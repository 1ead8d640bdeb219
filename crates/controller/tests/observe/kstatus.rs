//! The health of workloads by the rules of kstatus, by which Flux waits.

use serde_json::{Value, json};
use sluice_core::fleet::Fact;
use sluice_core::fleet::fact::HealthStatus;
use sluice_core::observed::Health::{self, Failed, Progressing, Ready};

use crate::support::{deployment, fact, with};

fn status(object: &Value) -> HealthStatus {
    match fact(object).1 {
        Fact::Workload(workload) => workload.status,
        other => panic!("{other:?} is not a workload"),
    }
}

/// Checks that a workload is healthy, and its health after each of these changes.
fn check(healthy: &Value, table: &[(&str, Value, Health, &str)]) {
    assert_eq!(status(healthy).health, Ready);
    for (path, value, health, message) in table {
        let found = status(&with(healthy.clone(), path, value.clone()));
        assert_eq!((found.health, found.message.as_str()), (*health, *message), "{path}: {value}");
    }
}

fn with_three_pods() -> Value {
    let object = deployment("apps", "web", ("kustomize", "apps", "web"), "web:1");
    let object = with(object, "spec/replicas", 3.into());
    ["replicas", "updatedReplicas", "availableReplicas", "readyReplicas"]
        .into_iter()
        .fold(object, |object, field| with(object, &format!("status/{field}"), 3.into()))
}

#[test]
fn a_deployment_is_ready_if_all_pods_are_updated_ready_and_available() {
    let stuck = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "ReplicaSet \"web-1\" has timed out progressing."}]);
    let no_progressing = json!([{"type": "Available", "status": "True"}]);
    let being_replaced = json!([{"type": "Available", "status": "True"},
        {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}]);
    let without_times = json!([{"type": "Available", "status": "True", "lastUpdateTime": null,
        "lastTransitionTime": null}]);
    let unavailable = json!([{"type": "Available", "status": "False"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]);
    check(
        &with_three_pods(),
        &[
            (
                "metadata/generation",
                4.into(),
                Progressing,
                "its controller has not observed the latest change yet",
            ),
            ("metadata/deletionTimestamp", "2026-11-21T09:00:00Z".into(), Progressing, "it is being deleted"),
            ("status/replicas", 2.into(), Progressing, "2 of 3 pods are created"),
            ("status/updatedReplicas", 1.into(), Progressing, "1 of 3 pods are updated"),
            ("status/replicas", 4.into(), Progressing, "1 old pods are terminating"),
            ("status/availableReplicas", 2.into(), Progressing, "2 of 3 pods are available"),
            ("status/readyReplicas", 0.into(), Progressing, "0 of 3 pods are ready"),
            ("status/conditions", stuck, Failed, "ReplicaSet \"web-1\" has timed out progressing."),
            ("status/conditions", no_progressing, Ready, ""),
            ("status/conditions", without_times, Ready, ""),
            ("status/conditions", being_replaced.clone(), Ready, ""),
            ("status/conditions", unavailable, Progressing, "it is not available yet"),
            ("status", Value::Null, Progressing, "its controller has not observed the latest change yet"),
        ],
    );
    let with_deadline = with(with_three_pods(), "spec/progressDeadlineSeconds", 600.into());
    check(
        &with_deadline,
        &[("status/conditions", being_replaced.clone(), Progressing, "it is being rolled out")],
    );
    // The greatest number means no deadline, and such a Deployment may have no condition Progressing.
    let without = with(with_deadline, "spec/progressDeadlineSeconds", i32::MAX.into());
    check(&without, &[("status/conditions", being_replaced, Ready, "")]);
}

#[test]
fn a_deployment_without_pods_is_ready_and_the_default_is_one_pod() {
    let none = with(with_three_pods(), "spec/replicas", 0.into());
    let none = ["replicas", "updatedReplicas", "availableReplicas", "readyReplicas"]
        .into_iter()
        .fold(none, |object, field| with(object, &format!("status/{field}"), 0.into()));
    check(&none, &[("spec/replicas", Value::Null, Progressing, "0 of 1 pods are created")]);
}

#[test]
fn the_conditions_reconciling_and_stalled_come_first() {
    let conditions = |kind: &str| json!([{"type": kind, "status": "True", "message": "the message"}]);
    check(
        &with_three_pods(),
        &[
            ("status/conditions", conditions("Reconciling"), Progressing, "the message"),
            ("status/conditions", conditions("Stalled"), Failed, "the message"),
        ],
    );
}

fn stateful_set() -> Value {
    let object = with(with_three_pods(), "kind", "StatefulSet".into());
    let status = json!({"observedGeneration": 3, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3,
        "updatedReplicas": 3, "currentRevision": "web-7f", "updateRevision": "web-7f"});
    with(object, "status", status)
}

#[test]
fn a_stateful_set_is_ready_if_all_pods_of_its_partition_are_updated() {
    check(
        &stateful_set(),
        &[
            (
                "metadata/generation",
                4.into(),
                Progressing,
                "its controller has not observed the latest change yet",
            ),
            ("status/replicas", 2.into(), Progressing, "2 of 3 pods are created"),
            ("status/readyReplicas", 1.into(), Progressing, "1 of 3 pods are ready"),
            ("status/replicas", 5.into(), Progressing, "2 old pods are terminating"),
            ("status/currentReplicas", 2.into(), Progressing, "2 of 3 pods are updated"),
            ("status/updateRevision", "web-8a".into(), Progressing, "it is being rolled out"),
        ],
    );
    // The default partition is 0. With a larger one Kubernetes does not update the first pods.
    let by_partition = |n: i64| with(stateful_set(), "spec/updateStrategy/rollingUpdate/partition", n.into());
    check(&by_partition(0), &[("status/updatedReplicas", 2.into(), Progressing, "2 of 3 pods are updated")]);
    let canary = with(by_partition(2), "status/updateRevision", "web-8a".into());
    let canary = with(canary, "status/currentReplicas", 2.into());
    let canary = with(canary, "status/updatedReplicas", 1.into());
    check(&canary, &[("status/updatedReplicas", 0.into(), Progressing, "0 of 1 pods are updated")]);
    let on_delete = with(stateful_set(), "spec/updateStrategy/type", "OnDelete".into());
    check(&on_delete, &[("status/updateRevision", "web-8a".into(), Ready, "")]);
}

#[test]
fn a_daemon_set_is_ready_if_every_node_has_an_updated_available_pod() {
    let status = json!({"observedGeneration": 3, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2});
    let object = with(with(with_three_pods(), "kind", "DaemonSet".into()), "status", status);
    check(
        &object,
        &[
            (
                "metadata/generation",
                4.into(),
                Progressing,
                "its controller has not observed the latest change yet",
            ),
            (
                "status/observedGeneration",
                Value::Null,
                Progressing,
                "its controller has not observed the latest change yet",
            ),
            ("status/currentNumberScheduled", 1.into(), Progressing, "1 of 2 pods are created"),
            ("status/updatedNumberScheduled", 0.into(), Progressing, "0 of 2 pods are updated"),
            ("status/numberAvailable", 1.into(), Progressing, "1 of 2 pods are available"),
            ("status/numberReady", 1.into(), Progressing, "1 of 2 pods are ready"),
        ],
    );
}

#[test]
fn a_cron_job_is_ready_unless_it_is_being_deleted() {
    let object = with(with_three_pods(), "kind", "CronJob".into());
    let object = with(with(object, "spec", json!({})), "status", Value::Null);
    check(
        &object,
        &[("metadata/deletionTimestamp", "2026-11-21T09:00:00Z".into(), Progressing, "it is being deleted")],
    );
}
