//! Reads the objects of Flux on the hub that have to do with hooks.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, ListParams};
use kube::core::DynamicResourceScope;
use kube::discovery::ApiGroup;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_core::fleet::Kind;
use sluice_view::check::Reading;
use sluice_view::check::hooks::{Hooks, needed_secrets};
use sluice_view::object_name::ObjectName;

use super::installation_question::InstallationQuestion;
use super::read::{each, fact, get};
use crate::served_kind::most_stable;

/// Reads the objects in the checked namespaces. The Providers of targets on the hub are in the namespaces of the targets. For a
/// bounded question, these and the Secrets of Providers are not read.
pub(super) async fn read<'a>(
    client: &Client,
    question: &InstallationQuestion<'a>,
) -> kube::Result<Hooks<'a>> {
    let InstallationQuestion { namespace, pipelines, is_bounded, .. } = *question;
    let namespaces: Option<BTreeSet<&str>> = namespace.map(|checked| {
        let targets = pipelines.iter().flat_map(|p| &p.spec.environments).flat_map(|e| &e.targets);
        let here = targets.filter(|target| target.cluster_ref.is_none() && !is_bounded);
        here.map(|target| target.namespace.as_str()).chain([checked]).collect()
    });
    let served = served(client).await?;
    let (providers, alerts, receivers) = tokio::try_join!(
        all_of(client, &served, Kind::Provider, namespaces.as_ref()),
        all_of(client, &served, Kind::Alert, namespaces.as_ref()),
        all_of(client, &served, Kind::Receiver, namespaces.as_ref()),
    )?;
    let known = providers.known().filter(|_| !is_bounded);
    let names = known.map(|providers| needed_secrets(providers)).unwrap_or_default();
    let secrets = each(names, async |named: ObjectName| {
        let api: Api<Secret> = Api::namespaced(client.clone(), &named.namespace);
        let right = format!("get on secrets in namespace {}", named.namespace);
        let found = get(&api, &named.name, &right).await?;
        Ok((named, found.map(keys)))
    });
    let secrets = secrets.await?.into_iter().collect();
    let namespace = namespace.map(String::from);
    let are_all = question.are_all_pipelines;
    Ok(Hooks { pipelines, are_all, namespace, providers, alerts, receivers, secrets })
}

/// Returns the keys of a Secret that have a value.
fn keys(secret: Secret) -> BTreeSet<String> {
    let data = secret.data.unwrap_or_default().into_iter();
    data.filter(|(_, value)| !value.0.is_empty()).map(|(key, _)| key).collect()
}

/// Returns which of the kinds the API server serves, with one discovery of their group.
async fn served(client: &Client) -> kube::Result<Reading<Vec<(Kind, ApiResource)>>> {
    let kinds = [Kind::Provider, Kind::Alert, Kind::Receiver];
    // A group may appear or disappear at this moment, which is no failure of the check.
    let group = match kube::discovery::group(client, Kind::Provider.resource().0).await {
        Err(kube::Error::Discovery(_)) => Reading::Absent,
        answer => fact(answer, || "get on the path /apis (ClusterRole system:discovery)".into())?,
    };
    let resource = |group: &ApiGroup, kind: Kind| Some((kind, most_stable(group, kind.name())?));
    Ok(group.map(|group| kinds.into_iter().filter_map(|kind| resource(&group, kind)).collect()))
}

/// Lists the objects of a kind in these namespaces; `None` for all.
async fn all_of<K>(
    client: &Client,
    served: &Reading<Vec<(Kind, ApiResource)>>,
    kind: Kind,
    namespaces: Option<&BTreeSet<&str>>,
) -> kube::Result<Reading<Vec<K>>>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope> + Clone + DeserializeOwned + Debug,
{
    let resource = match served {
        Reading::Known(all) => all.iter().find(|(served, _)| *served == kind),
        unread => return Ok(unread.clone().map(|_| Vec::new())),
    };
    let Some((_, resource)) = resource else { return Ok(Reading::Known(Vec::new())) };
    let Some(namespaces) = namespaces else {
        return list(&Api::all_with(client.clone(), resource), resource, "all namespaces").await;
    };
    let mut found = Vec::new();
    for namespace in namespaces {
        let api: Api<K> = Api::namespaced_with(client.clone(), namespace, resource);
        match list(&api, resource, &format!("namespace {namespace}")).await? {
            Reading::Known(more) => found.extend(more),
            unread => return Ok(unread),
        }
    }
    Ok(Reading::Known(found))
}

async fn list<K>(api: &Api<K>, resource: &ApiResource, place: &str) -> kube::Result<Reading<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let right = || format!("list on {}.{} in {place}", resource.plural, resource.group);
    let answer = api.list(&ListParams::default()).await;
    Ok(fact(answer, right)?.map(|list| list.items))
}
