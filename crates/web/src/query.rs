//! The parameters of requests.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};

use crate::problem::Problem;

/// The rows of one answer without `limit`.
const DEFAULT_LIMIT: usize = 500;
/// The most rows of one answer.
const MAX_LIMIT: usize = 5000;

/// The most bytes of a search.
const MAX_SEARCH_BYTES: usize = 200;

/// Returns valid parameters.
pub(crate) fn valid<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(query)| query).map_err(|error| Problem::bad_request(error.body_text()))
}

/// Returns the words to search for, in small letters.
///
/// # Errors
/// The search is too long: each word is looked for in each row.
pub(crate) fn search_words(search: &str) -> Result<Vec<String>, Problem> {
    if search.len() > MAX_SEARCH_BYTES {
        let why = format!("the search has more than {MAX_SEARCH_BYTES} characters: search for less");
        return Err(Problem::bad_request(why));
    }
    Ok(search.to_lowercase().split_whitespace().map(String::from).collect())
}

/// Returns the most rows of an answer.
pub(crate) fn rows_of(limit: Option<usize>) -> usize {
    limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT)
}

/// Returns what the last row of the page before was ordered by; `None` for the first page.
///
/// # Errors
/// When it is not the `continue` of an answer.
pub(crate) fn after<T: DeserializeOwned>(continue_: &str) -> Result<Option<T>, Problem> {
    if continue_.is_empty() {
        return Ok(None);
    }
    let wrong = |_| Problem::bad_request("continue is not that of an answer: leave it out to begin again");
    serde_json::from_str(continue_).map(Some).map_err(wrong)
}

/// Which pipelines to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PipelinesQuery {
    /// Only this namespace.
    pub namespace: String,
    /// Only those that have each of these words in their name, namespace, clusters or revisions.
    pub search: String,
    /// Only those with an environment that needs a `person`, has `failed`, is `moving` or is `unreadable`.
    pub of: String,
    /// The most pipelines to return, at most 5000; default is 500.
    pub limit: Option<usize>,
    /// The `continue` of the answer before.
    #[serde(rename = "continue")]
    pub continue_: String,
}

impl PipelinesQuery {
    /// Returns the most pipelines to return.
    pub(crate) fn limit(&self) -> usize {
        rows_of(self.limit)
    }

    /// Returns the namespace and name of the last pipeline of the page before; `None` for the first page.
    ///
    /// # Errors
    /// When it is not the `continue` of an answer.
    pub(crate) fn after(&self) -> Result<Option<(String, String)>, Problem> {
        after(&self.continue_)
    }
}

/// Which environment to explain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    /// Only this environment, or `environment/target`.
    pub environment: String,
}

/// Which environments to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TreeQuery {
    /// Only this environment, or `environment/target`.
    pub environment: String,
}

/// Which promotions to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// Only those into this environment, or `environment/target`.
    pub environment: String,
    /// The most promotions to return, at most 5000; default is 500.
    pub limit: Option<usize>,
}

impl HistoryQuery {
    /// Returns the most promotions to return.
    pub(crate) fn limit(&self) -> usize {
        rows_of(self.limit)
    }
}

/// The object to trace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TraceQuery {
    /// The cluster, as `namespace/name` of its GitopsCluster; default is the hub.
    pub cluster: String,
    /// The kind, such as `Deployment` or `HelmRelease`, in any case.
    pub kind: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl TraceQuery {
    /// Returns the cluster and the object.
    pub(crate) fn object(&self) -> Result<(ClusterKey, ObjectKey), Problem> {
        let kinds = Kind::OWNED.into_iter().chain(Kind::SHOWN).chain([Kind::GitRepository]);
        let Some(kind) = kinds.clone().find(|kind| kind.name().eq_ignore_ascii_case(&self.kind)) else {
            let names: Vec<&str> = kinds.map(Kind::name).collect();
            return Err(Problem::bad_request(format!(
                "kind={:?} is not observed: write one of {}",
                self.kind,
                names.join(", ")
            )));
        };
        if !is_name(&self.namespace) || !is_name(&self.name) {
            return Err(Problem::bad_request(
                "write namespace=… and name=… of the object, as kubectl shows them",
            ));
        }
        let key = ObjectKey { kind, namespace: self.namespace.clone(), name: self.name.clone() };
        Ok((cluster_key(&self.cluster)?, key))
    }
}

/// Whether a text can be the name of an object or namespace. What the API server is asked about is limited by this: rights
/// are kept by name for a while.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(is_part)
}

/// Reads the name of a cluster.
///
/// # Errors
/// When it cannot be the name of a cluster.
pub(crate) fn cluster_key(text: &str) -> Result<ClusterKey, Problem> {
    if text.is_empty() || text == "hub" {
        return Ok(ClusterKey::Local);
    }
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ClusterKey::Remote { namespace: namespace.into(), name: name.into() })
        }
        _ => Err(Problem::bad_request(format!(
            "cluster={text:?} is not the name of a cluster: write <namespace>/<name> of its GitopsCluster, or hub"
        ))),
    }
}
