//! Discovery: the API groups and versions that a cluster serves. Each answer is limited in size and in time.

use futures::{AsyncReadExt, pin_mut};
use http::Request;
use kube::Client;
use kube::api::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::limit::{self, TooLarge};
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
        let (mut text, max_bytes) = (Vec::new(), limit::MAX_ANSWER_BYTES);
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

/// Returns the API resource of a kind, in the version that the cluster prefers, else in the first version that
/// serves the kind. `None` if no version serves it.
///
/// # Errors
/// When the cluster does not return its API groups or resources.
pub async fn find(client: &Client, kind: Kind) -> kube::Result<Option<ApiResource>> {
    let (group, plural) = kind.resource();
    let resource = |group: &str, version: &str| ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: if group.is_empty() { version.into() } else { format!("{group}/{version}") },
        kind: kind.name().into(),
        plural: plural.into(),
    };
    if !group.contains('.') {
        return Ok(Some(resource(group, "v1")));
    }
    let all: ApiGroups = read(client, "/apis").await?;
    let Some(found) = all.groups.into_iter().find(|g| g.name == group) else { return Ok(None) };
    let preferred = found.preferred_version.into_iter();
    // The version becomes a part of a path, and the cluster may send any text.
    let is_valid =
        |v: &ApiVersion| !v.version.is_empty() && v.version.bytes().all(|b| b.is_ascii_alphanumeric());
    for version in preferred.chain(found.versions).filter(is_valid).take(MAX_VERSIONS) {
        let path = format!("/apis/{group}/{}", version.version);
        let served: ServedResources = read(client, &path).await?;
        if served.resources.iter().any(|r| r.name == plural) {
            return Ok(Some(resource(group, &version.version)));
        }
    }
    Ok(None)
}
