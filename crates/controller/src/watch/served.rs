//! Discovery: the API groups and versions that a cluster serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kube::api::ApiResource;
use serde::Deserialize;

use super::cluster_client::ClusterClient;
use sluice_core::fleet::Kind;
use sluice_core::lock::lock;

/// The most versions of a group that Sluice reads.
const MAX_VERSIONS: usize = 10;
/// The most bytes of the name of a version: it is a label of DNS.
const MAX_VERSION_NAME_BYTES: usize = 63;

/// The API resource of a kind, in the version that the cluster prefers, else in the first version that serves the
/// kind. `None` if no version serves it.
pub type Served = Result<Option<ApiResource>, Arc<kube::Error>>;

/// Asks a cluster what it serves. Kinds that ask at the same time share the answers, and one round of requests
/// is in progress at a time.
pub struct Discovery {
    client: ClusterClient,
    /// The kinds of the next request.
    asked: Mutex<BTreeSet<Kind>>,
    /// What the kinds have not taken yet. Locked during a request.
    answers: tokio::sync::Mutex<BTreeMap<Kind, Served>>,
}

impl Discovery {
    /// Returns a discovery whose first request is about these kinds.
    pub fn new(client: ClusterClient, kinds: &[Kind]) -> Arc<Self> {
        let asked = Mutex::new(kinds.iter().copied().collect());
        Arc::new(Self { client, asked, answers: Default::default() })
    }

    /// Returns the API resource of a kind.
    ///
    /// # Errors
    /// When the cluster does not return its API groups or the resources of the group.
    pub async fn find(&self, kind: Kind) -> Served {
        lock(&self.asked).insert(kind);
        let mut answers = self.answers.lock().await;
        if let Some(answer) = answers.remove(&kind) {
            // Otherwise the next request would bring an answer that nobody takes before it is old.
            lock(&self.asked).remove(&kind);
            return answer;
        }
        let mut kinds = std::mem::take(&mut *lock(&self.asked));
        kinds.insert(kind);
        answers.extend(find_all(&self.client, kinds).await);
        answers.remove(&kind).unwrap_or(Ok(None))
    }
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

/// Returns the API resource of each kind. Each answer of the cluster is read once for all kinds.
async fn find_all(client: &ClusterClient, kinds: BTreeSet<Kind>) -> BTreeMap<Kind, Served> {
    let (of_groups, of_core): (Vec<Kind>, Vec<Kind>) =
        kinds.into_iter().partition(|kind| kind.resource().0.contains('.'));
    let core = of_core.into_iter().map(|kind| (kind, Ok(Some(api_resource(kind, "v1")))));
    let mut found: BTreeMap<Kind, Served> = core.collect();
    if of_groups.is_empty() {
        return found;
    }
    let mut by_group: BTreeMap<&str, Vec<Kind>> = BTreeMap::new();
    for kind in of_groups {
        by_group.entry(kind.resource().0).or_default().push(kind);
    }
    let versions = match served_versions(client, &by_group).await {
        Ok(versions) => versions,
        Err(error) => {
            found.extend(failed(by_group.into_values().flatten(), error));
            return found;
        }
    };
    let groups = by_group.into_iter().map(async |(group, kinds)| {
        let versions = versions.get(group).map(Vec::as_slice).unwrap_or_default();
        match find_in_group(client, group, versions, &kinds).await {
            Ok(found) => found.into_iter().map(|(kind, resource)| (kind, Ok(resource))).collect(),
            Err(error) => failed(kinds.into_iter(), error),
        }
    });
    found.extend(futures::future::join_all(groups).await.into_iter().flatten());
    found
}

/// Returns the same error for each kind.
fn failed(kinds: impl Iterator<Item = Kind>, error: kube::Error) -> BTreeMap<Kind, Served> {
    let error = Arc::new(error);
    kinds.map(|kind| (kind, Err(error.clone()))).collect()
}

/// Returns the versions of these groups that the cluster serves, with the preferred one first. Keeps nothing else of
/// the answer, because a cluster may send names of any length.
async fn served_versions(
    client: &ClusterClient,
    wanted: &BTreeMap<&str, Vec<Kind>>,
) -> kube::Result<BTreeMap<String, Vec<String>>> {
    let all: ApiGroups = client.read("/apis").await?;
    let is_wanted = |group: &ApiGroup| wanted.contains_key(group.name.as_str());
    let versions = |group: ApiGroup| {
        let versions = group.preferred_version.into_iter().chain(group.versions).map(|v| v.version);
        (group.name, versions.filter(|v| is_version(v)).take(MAX_VERSIONS).collect())
    };
    Ok(all.groups.into_iter().filter(is_wanted).map(versions).collect())
}

/// Whether a text is the name of a version. It becomes a part of a path, and the cluster may send any text.
fn is_version(text: &str) -> bool {
    (1..=MAX_VERSION_NAME_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Returns the API resources of kinds of one group, which the cluster serves in these versions.
async fn find_in_group(
    client: &ClusterClient,
    group: &str,
    versions: &[String],
    kinds: &[Kind],
) -> kube::Result<BTreeMap<Kind, Option<ApiResource>>> {
    let mut found: BTreeMap<Kind, Option<ApiResource>> = kinds.iter().map(|kind| (*kind, None)).collect();
    for version in versions {
        if found.values().all(Option::is_some) {
            break;
        }
        let resources: ServedResources = client.read(&format!("/apis/{group}/{version}")).await?;
        for (kind, resource) in found.iter_mut().filter(|(_, resource)| resource.is_none()) {
            if resources.resources.iter().any(|served| served.name == kind.resource().1) {
                *resource = Some(api_resource(*kind, version));
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
