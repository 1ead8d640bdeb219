//! Reads the Deployments and Leases of the controller.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment as KubernetesDeployment;
use kube::api::ApiResource;
use kube::{Api, Client, ResourceExt};
use sluice_api::workload::Workload;
use sluice_view::check::controller::{Controller, Deployment};

use super::read::list;
use crate::controller_lease::{LEASE_LABELS, StoredLease, lease, lease_resource};

/// Reads the Leases and Deployments of the controller.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    version: &str,
    now: Timestamp,
) -> kube::Result<Controller> {
    let deployments: Api<Workload> = Api::namespaced_with(client.clone(), namespace, &deployment_resource());
    let resource = lease_resource();
    let leases: Api<StoredLease> = Api::namespaced_with(client.clone(), namespace, &resource);
    let right = |resource: &str| format!("list on {resource} in namespace {namespace}");
    let (of_deployments, of_leases) = (right("deployments.apps"), right("leases.coordination.k8s.io"));
    let (deployments, leases) = tokio::try_join!(
        list(&deployments, "app.kubernetes.io/name=sluice", &of_deployments),
        list(&leases, LEASE_LABELS, &of_leases),
    )?;
    Ok(Controller {
        namespace: namespace.into(),
        version: version.into(),
        is_running: false,
        now,
        leases: leases.map(|all| all.into_iter().map(lease).collect()),
        deployments: deployments.map(|all| all.into_iter().map(deployment).collect()),
    })
}

/// Returns the kind of Deployments.
pub(super) fn deployment_resource() -> ApiResource {
    ApiResource::erase::<KubernetesDeployment>(&())
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
