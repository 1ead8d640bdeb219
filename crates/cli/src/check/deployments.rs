//! Reads Deployments and Leases: those of the controller, and those of Flux.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment as KubeDeployment;
use k8s_openapi::api::coordination::v1::Lease as KubeLease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use sluice_view::check::Fact;
use sluice_view::check::controller::{Controller, Deployment, Lease};
use sluice_view::check::flux::{Flux, LABEL, VERSION_LABEL, VERSIONED_CRD};

use super::definitions::is_served;
use super::read::{fact, list};
use crate::connection::Connection;
use crate::exit::Outcome;

/// Reads the Leases and Deployments of the controller.
pub(super) async fn controller(
    connection: &Connection,
    namespace: &str,
    version: &str,
    now: Timestamp,
) -> Outcome<Controller> {
    let deployments: Api<KubeDeployment> = Api::namespaced(connection.client.clone(), namespace);
    let leases: Api<KubeLease> = Api::namespaced(connection.client.clone(), namespace);
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

fn lease(lease: KubeLease) -> Lease {
    let spec = lease.spec.clone().unwrap_or_default();
    Lease {
        name: lease.name_any(),
        holder: spec.holder_identity,
        renewed: spec.renew_time.map(|time| time.0),
        duration: SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
    }
}

fn deployment(deployment: KubeDeployment) -> Deployment {
    let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
    let spec = deployment.spec.unwrap_or_default();
    let containers = spec.template.spec.map(|pod| pod.containers).unwrap_or_default();
    Deployment {
        namespace,
        name,
        wanted: spec.replicas.unwrap_or(1),
        ready: deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default(),
        images: containers.into_iter().filter_map(|container| container.image).collect(),
    }
}

/// Reads the version and the Deployments of Flux.
pub(super) async fn flux(connection: &Connection, groups: &Fact<BTreeSet<String>>) -> Outcome<Flux> {
    let served = is_served(groups, &["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"]);
    let (mut version, mut deployments) = (Fact::Absent, Fact::Absent);
    if !matches!(served, Fact::Absent) {
        let crds: Api<CustomResourceDefinition> = Api::all(connection.client.clone());
        let all: Api<KubeDeployment> = Api::all(connection.client.clone());
        let params = ListParams::default().labels(LABEL);
        let (found, list) = tokio::join!(crds.get_metadata(VERSIONED_CRD), all.list(&params));
        version = fact(connection, found, || "get on customresourcedefinitions.apiextensions.k8s.io".into())?
            .map(|crd| crd.labels().get(VERSION_LABEL).cloned());
        deployments = fact(connection, list, || "list on deployments.apps in all namespaces".into())?
            .map(|list| list.items.into_iter().map(deployment).collect());
    }
    Ok(Flux { served, version, deployments, targets_here: 0 })
}
