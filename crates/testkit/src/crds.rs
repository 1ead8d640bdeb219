//! The CRDs of Flux, of GitopsCluster and of Sluice, so that API servers validate what tests write.

use crate::servers::crds_folder;
use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use std::time::Duration;

const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(120);

/// Reads the CRDs of Flux and of GitopsCluster, from the Go modules that `hack/controlplane` pins.
///
/// # Errors
/// They cannot be fetched or read.
pub fn read_flux() -> Result<Vec<CustomResourceDefinition>> {
    let folder = crds_folder()?;
    let mut crds = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let text = std::fs::read_to_string(&path)?;
            for value in crate::parse_yaml(&text).with_context(|| path.display().to_string())? {
                crds.push(serde_json::from_value(value).with_context(|| path.display().to_string())?);
            }
        }
    }
    Ok(crds)
}

/// Applies CRDs and waits until their kinds are served.
///
/// # Errors
/// The API server rejects one, or does not serve its kind in time.
pub async fn install(client: &Client, crds: Vec<CustomResourceDefinition>) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    try_join_all(crds.into_iter().map(|crd| install_one(api.clone(), crd))).await?;
    Ok(())
}

async fn install_one(api: Api<CustomResourceDefinition>, mut crd: CustomResourceDefinition) -> Result<()> {
    let name = crd.name_any();
    // A generated CRD has an empty status, which only the API server may write.
    crd.status = None;
    let params = PatchParams::apply("testkit").force();
    api.patch(&name, &params, &Patch::Apply(&crd))
        .await
        .map_err(crate::apply::api_error)
        .with_context(|| format!("the API server rejects the CRD {name}"))?;
    let established = await_condition(api, &name, is_crd_established());
    tokio::time::timeout(ESTABLISHED_TIMEOUT, established)
        .await
        .with_context(|| format!("the CRD {name} is not served after {ESTABLISHED_TIMEOUT:?}"))??;
    Ok(())
}

/// Removes all `enum` lists from a schema.
pub(crate) fn remove_enums(schema: &mut JSONSchemaProps) {
    schema.enum_ = None;
    schema.properties.iter_mut().flat_map(|p| p.values_mut()).for_each(remove_enums);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_enums(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(more)) = &mut schema.additional_properties {
        remove_enums(more);
    }
}
