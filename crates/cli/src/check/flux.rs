//! Reads the version and the Deployments of Flux.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use sluice_api::workload::Workload;
use sluice_view::check::Reading;
use sluice_view::check::flux::{Flux, LABEL, VERSION_LABEL, VERSIONED_CRD};

use super::controller::{deployment, deployment_resource};
use super::definitions::is_served;
use super::read::fact;

/// Reads the version and the Deployments of Flux.
pub(super) async fn read(client: &Client, groups: &Reading<BTreeSet<String>>) -> kube::Result<Flux> {
    let served = is_served(groups, &["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"]);
    let (mut version, mut deployments) = (Reading::Absent, Reading::Absent);
    if !matches!(served, Reading::Absent) {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let all: Api<Workload> = Api::all_with(client.clone(), &deployment_resource());
        let params = ListParams::default().labels(LABEL);
        let (found, list) = tokio::join!(crds.get_metadata(VERSIONED_CRD), all.list(&params));
        version = fact(found, || "get on customresourcedefinitions.apiextensions.k8s.io".into())?
            .map(|crd| crd.labels().get(VERSION_LABEL).cloned());
        deployments = fact(list, || "list on deployments.apps in all namespaces".into())?
            .map(|list| list.items.into_iter().map(deployment).collect());
    }
    Ok(Flux { served, version, deployments, targets_here: 0 })
}
