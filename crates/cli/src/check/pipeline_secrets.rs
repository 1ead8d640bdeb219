//! Reads the Secrets that pipelines name, without keeping their values.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client, ResourceExt};
use sluice_api::Pipeline;
use sluice_api::secret_use::USED_BY;
use sluice_view::check::pipeline_secrets::{Secret, Secrets, needs};
use sluice_view::object_name::ObjectName;

use super::read::{each, get};

/// Reads the Secrets that these pipelines name.
pub(super) async fn read(client: &Client, pipelines: &[Pipeline]) -> kube::Result<Secrets> {
    let needs: BTreeSet<_> = pipelines.iter().flat_map(needs).collect();
    let names = needs.iter().map(|need| (need.namespace.clone(), need.name.clone()));
    let names: BTreeSet<ObjectName> = names.map(|(namespace, name)| ObjectName { namespace, name }).collect();
    let found = each(names, async |named: ObjectName| {
        let api: Api<KubeSecret> = Api::namespaced(client.clone(), &named.namespace);
        let right = format!("get on secrets in namespace {}", named.namespace);
        let found = get(&api, &named.name, &right).await?;
        Ok((named, found.map(without_values)))
    });
    Ok(Secrets { found: found.await?.into_iter().collect(), needs })
}

fn without_values(secret: KubeSecret) -> Secret {
    let used_by = secret.annotations().get(USED_BY).cloned();
    let data = secret.data.unwrap_or_default();
    Secret {
        type_: secret.type_.unwrap_or_default(),
        used_by,
        keys: data.into_iter().filter(|(_, value)| !value.0.is_empty()).map(|(key, _)| key).collect(),
    }
}
