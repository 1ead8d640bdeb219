//! Reads the Deployments and Leases of the controller.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment as KubernetesDeployment;
use k8s_openapi::api::coordination::v1::Lease as KubernetesLease;
use kube::api::ApiResource;
use kube::core::{NotUsed, Object};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use sluice_api::workload::Workload;
use sluice_core::Time;
use sluice_view::check::controller::{Controller, Deployment, Lease};

use super::read::list;
use crate::connection::Connection;
use crate::exit::Outcome;

/// A Lease. A user may store in it a time that the common type cannot hold.
type StoredLease = Object<StoredLeaseSpec, NotUsed>;

/// The fields of a Lease that are looked at.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredLeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Time>,
    lease_duration_seconds: i64,
}

/// Reads the Leases and Deployments of the controller.
pub(super) async fn read(
    connection: &Connection,
    namespace: &str,
    version: &str,
    now: Timestamp,
) -> Outcome<Controller> {
    let client = &connection.client;
    let deployments: Api<Workload> = Api::namespaced_with(client.clone(), namespace, &deployment_resource());
    let resource = ApiResource::erase::<KubernetesLease>(&());
    let leases: Api<StoredLease> = Api::namespaced_with(client.clone(), namespace, &resource);
    let right = |resource: &str| format!("list on {resource} in namespace {namespace}");
    let (of_deployments, of_leases) = (right("deployments.apps"), right("leases.coordination.k8s.io"));
    let (deployments, leases) = tokio::try_join!(
        list(connection, &deployments, "app.kubernetes.io/name=sluice", &of_deployments),
        list(connection, &leases, "app.kubernetes.io/part-of=sluice", &of_leases),
    )?;
    Ok(Controller {
        namespace: namespace.into(),
        version: version.into(),
        now,
        leases: leases.map(|all| all.into_iter().map(lease).collect()),
        deployments: deployments.map(|all| all.into_iter().map(deployment).collect()),
    })
}

/// Returns the kind of Deployments.
pub(super) fn deployment_resource() -> ApiResource {
    ApiResource::erase::<KubernetesDeployment>(&())
}

fn lease(lease: StoredLease) -> Lease {
    Lease {
        name: lease.name_any(),
        holder: lease.spec.holder_identity,
        renewed: lease.spec.renew_time.map(|time| *time),
        duration: SignedDuration::from_secs(lease.spec.lease_duration_seconds),
    }
}

/// Returns what is looked at of a Deployment.
pub(super) fn deployment(deployment: Workload) -> Deployment {
    let count = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    Deployment {
        namespace: deployment.namespace().unwrap_or_default(),
        name: deployment.name_any(),
        wanted: count(deployment.spec.replicas.unwrap_or(1)),
        ready: count(deployment.status.map(|status| status.ready_replicas).unwrap_or_default()),
        images: deployment.spec.images(),
    }
}
