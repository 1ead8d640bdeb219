//! Reads the definitions and the admission policy.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use sluice_api::promotion::user_policy::{NAME, gap};
use sluice_api::{GROUP, all_crds};
use sluice_view::check::Reading;
use sluice_view::check::definitions::Definitions;

use super::read::{each, fact, get};

/// Reads the API groups that the API server serves.
pub(super) async fn groups(client: &Client) -> kube::Result<Reading<BTreeSet<String>>> {
    let answer = client.list_api_groups().await;
    let right = || "get on the path /apis (ClusterRole system:discovery)".into();
    Ok(fact(answer, right)?.map(|all| all.groups.into_iter().map(|group| group.name).collect()))
}

/// Returns whether one of these groups is served.
pub(super) fn is_served(groups: &Reading<BTreeSet<String>>, wanted: &[&str]) -> Reading<()> {
    match groups {
        Reading::Known(all) if wanted.iter().any(|group| all.contains(*group)) => Reading::Known(()),
        Reading::Known(_) => Reading::Absent,
        unread => unread.clone().map(drop),
    }
}

/// Reads the definitions and the admission policy.
pub(super) async fn read(client: &Client, groups: &Reading<BTreeSet<String>>) -> kube::Result<Definitions> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = each(all_crds(), async |crd| {
        let name = crd.name_any();
        let right = "get on customresourcedefinitions.apiextensions.k8s.io";
        let found = get(&crds, &name, right).await?;
        Ok((name, found.map(|crd| serde_json::to_value(crd).unwrap_or_default())))
    });
    let (crds, policy) = tokio::try_join!(crds, policy(client))?;
    Ok(Definitions {
        served: is_served(groups, &[GROUP]),
        crds: crds.into_iter().collect(),
        policy,
        gitops_clusters: is_served(groups, &["gitops.weave.works"]),
        targets_elsewhere: 0,
    })
}

/// Returns why the admission policy is not in force.
async fn policy(client: &Client) -> kube::Result<Reading<Option<String>>> {
    let version = "admissionregistration.k8s.io/v1";
    let served = client.list_api_group_resources(version).await;
    let served = fact(served, || format!("get on the path /apis/{version}"))?;
    let is_policy = |kind: &str| kind == "ValidatingAdmissionPolicy";
    match &served {
        Reading::Known(list) if list.resources.iter().any(|resource| is_policy(&resource.kind)) => {}
        Reading::Known(_) | Reading::Absent => return Ok(Reading::Absent),
        unread => return Ok(unread.clone().map(|_| None)),
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let (policy, binding) = tokio::try_join!(
        get(&policies, NAME, "get on validatingadmissionpolicies.admissionregistration.k8s.io"),
        get(&bindings, NAME, "get on validatingadmissionpolicybindings.admissionregistration.k8s.io"),
    )?;
    Ok(match (policy, binding) {
        (policy @ (Reading::Forbidden(_) | Reading::Failed(_)), _) => policy.map(|_| None),
        (_, binding @ (Reading::Forbidden(_) | Reading::Failed(_))) => binding.map(|_| None),
        (policy, binding) => Reading::Known(gap(policy.known(), binding.known())),
    })
}
