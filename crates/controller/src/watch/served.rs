//! What a cluster serves: single answers, each read with a limit on its size and on the time it takes.

use futures::{AsyncReadExt, pin_mut};
use http::Request;
use kube::Client;
use kube::api::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::limit::{self, TooLarge};
use crate::observe::facts::Kind;
use crate::timeout::{API_CALL_TIMEOUT, within};

/// The most versions of a group that are looked at.
const MOST_VERSIONS: usize = 10;

/// Reads the answer to a GET request as JSON.
///
/// # Errors
/// When there is none within [`API_CALL_TIMEOUT`], or it is too large or no such JSON.
pub async fn read<T: DeserializeOwned>(client: &Client, path: &str) -> kube::Result<T> {
    within(API_CALL_TIMEOUT, async {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let body = client.request_stream(request).await?;
        pin_mut!(body);
        let (mut text, longest) = (Vec::new(), limit::MAX_ANSWER_BYTES);
        let read = body.take(longest as u64 + 1).read_to_end(&mut text).await;
        if read.map_err(kube::Error::ReadEvents)? > longest
            || limit::count_values(&text) > limit::MAX_ANSWER_VALUES
        {
            return Err(TooLarge::Answer.into());
        }
        serde_json::from_slice(&text).map_err(kube::Error::SerdeError)
    })
    .await
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Group {
    name: String,
    preferred_version: Option<Version>,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resource {
    name: String,
}

/// The kind in the version that the cluster prefers among those that have it; `None` when no version has.
///
/// # Errors
/// When the cluster does not say.
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
    let all: Groups = read(client, "/apis").await?;
    let Some(found) = all.groups.into_iter().find(|g| g.name == group) else { return Ok(None) };
    let preferred = found.preferred_version.into_iter();
    // A version is a part of a path.
    let is_word = |v: &Version| !v.version.is_empty() && v.version.bytes().all(|b| b.is_ascii_alphanumeric());
    for version in preferred.chain(found.versions).filter(is_word).take(MOST_VERSIONS) {
        let path = format!("/apis/{group}/{}", version.version);
        let served: Resources = read(client, &path).await?;
        if served.resources.iter().any(|r| r.name == plural) {
            return Ok(Some(resource(group, &version.version)));
        }
    }
    Ok(None)
}
