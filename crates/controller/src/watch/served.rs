//! Discovery: the API groups and versions that a cluster serves. Each answer is limited in size and in time.

use std::collections::BTreeMap;

use futures::{AsyncReadExt, pin_mut};
use http::Request;
use kube::Client;
use kube::api::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::limit;
use super::too_large::{MAX_ANSWER_BYTES, TooLarge};
use crate::timeout::{API_CALL_TIMEOUT, within};
use sluice_core::fleet::Kind;

/// The most versions of a group that Sluice reads.
const MAX_VERSIONS: usize = 10;

/// Reads the answer to a GET request as JSON.
///
/// # Errors
/// When no answer arrives within [`API_CALL_TIMEOUT`], or it is too large, or is not the expected JSON.
pub async fn read<T: DeserializeOwned>(client: &Client, path: &str) -> kube::Result<T> {
    within(API_CALL_TIMEOUT, async {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let body = client.request_stream(request).await?;
        pin_mut!(body);
        let (mut text, max_bytes) = (Vec::new(), MAX_ANSWER_BYTES);
        let read = body.take(max_bytes as u64 + 1).read_to_end(&mut text).await;
        if read.map_err(kube::Error::ReadEvents)? > max_bytes
            || limit::count_values(&text) > limit::MAX_ANSWER_VALUES
        {
            return Err(TooLarge::Answer.into());
        }
        serde_json::from_slice(&text).map_err(kube::Error::SerdeError)
    })
    .await
}

#[derive(Deserialize)]
struct ApiGroups {
    #[serde(default)]
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ApiGroup {
    name: String,
    preferred_version: Option<ApiVersion>,
    versions: Vec<ApiVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiVersion {
    version: String,
}

#[derive(Deserialize)]
struct ServedResources {
    #[serde(default)]
    resources: Vec<ServedResource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServedResource {
    name: String,
}

/// Returns the API resource of each kind, in the version that the cluster prefers, else in the first version that serves
/// the kind. `None` for a kind that no version serves. Each answer of the cluster is read once for all kinds.
///
/// # Errors
/// When the cluster does not return its API groups or resources.
pub async fn find_all(client: &Client, kinds: &[Kind]) -> kube::Result<BTreeMap<Kind, Option<ApiResource>>> {
    let (of_groups, of_core): (Vec<Kind>, Vec<Kind>) =
        kinds.iter().copied().partition(|kind| kind.resource().0.contains('.'));
    let core = of_core.into_iter().map(|kind| (kind, Some(api_resource(kind, "v1"))));
    let mut found: BTreeMap<Kind, Option<ApiResource>> = core.collect();
    if of_groups.is_empty() {
        return Ok(found);
    }
    let all: ApiGroups = read(client, "/apis").await?;
    let mut by_group: BTreeMap<&str, Vec<Kind>> = BTreeMap::new();
    for kind in of_groups {
        by_group.entry(kind.resource().0).or_default().push(kind);
    }
    let groups = by_group.into_iter().map(async |(group, kinds)| {
        let served = all.groups.iter().find(|served| served.name == group);
        find_in_group(client, served, kinds).await
    });
    for group in futures::future::try_join_all(groups).await? {
        found.extend(group);
    }
    Ok(found)
}

/// Returns the API resource of a kind, as [`find_all`] does.
///
/// # Errors
/// When the cluster does not return its API groups or resources.
pub async fn find(client: &Client, kind: Kind) -> kube::Result<Option<ApiResource>> {
    Ok(find_all(client, &[kind]).await?.remove(&kind).flatten())
}

/// Returns the API resources of kinds of one group; `None` if the cluster does not serve the group.
async fn find_in_group(
    client: &Client,
    served: Option<&ApiGroup>,
    kinds: Vec<Kind>,
) -> kube::Result<BTreeMap<Kind, Option<ApiResource>>> {
    let mut found: BTreeMap<Kind, Option<ApiResource>> = kinds.into_iter().map(|kind| (kind, None)).collect();
    let Some(served) = served else { return Ok(found) };
    // The version becomes a part of a path, and the cluster may send any text.
    let is_valid =
        |v: &&ApiVersion| !v.version.is_empty() && v.version.bytes().all(|b| b.is_ascii_alphanumeric());
    let versions =
        served.preferred_version.iter().chain(&served.versions).filter(is_valid).take(MAX_VERSIONS);
    for version in versions {
        if found.values().all(Option::is_some) {
            break;
        }
        let path = format!("/apis/{}/{}", served.name, version.version);
        let resources: ServedResources = read(client, &path).await?;
        for (kind, resource) in found.iter_mut().filter(|(_, resource)| resource.is_none()) {
            if resources.resources.iter().any(|served| served.name == kind.resource().1) {
                *resource = Some(api_resource(*kind, &version.version));
            }
        }
    }
    Ok(found)
}

fn api_resource(kind: Kind, version: &str) -> ApiResource {
    let (group, plural) = kind.resource();
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: if group.is_empty() { version.into() } else { format!("{group}/{version}") },
        kind: kind.name().into(),
        plural: plural.into(),
    }
}
