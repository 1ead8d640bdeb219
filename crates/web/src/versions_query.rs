//! The parameters of charts and images: which rows to return.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_view::fleet::versions::RunningVersion;

use crate::list_parameters::{Limit, after};
use crate::problem::Problem;

/// Which charts or images to return.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct VersionsQuery {
    /// Only names that contain this text.
    pub name: String,
    /// Only this cluster, as `namespace/name` of its GitopsCluster; `hub` for the hub.
    pub cluster: String,
    /// Only this namespace.
    pub namespace: String,
    /// Only this version.
    pub version: String,
    /// Only what runs another version than most.
    pub outliers: bool,
    /// The most rows to return, at most 5000; default is 500.
    pub limit: Limit,
    /// The `continue` of the answer before.
    #[serde(rename = "continue")]
    pub continue_: String,
}

impl VersionsQuery {
    /// Returns what the last row of the page before was ordered by; `None` for the first page.
    ///
    /// # Errors
    /// When it is not the `continue` of an answer.
    pub(crate) fn after(&self) -> Result<Option<[String; 5]>, Problem> {
        after(&self.continue_)
    }
}

/// Returns whether a row is asked for.
pub(crate) fn matches(row: &RunningVersion, query: &VersionsQuery) -> bool {
    let cluster = if row.cluster.is_empty() { "hub" } else { &row.cluster };
    row.name.contains(&query.name)
        && (query.cluster.is_empty() || query.cluster == cluster)
        && (query.namespace.is_empty() || query.namespace == row.namespace)
        && (query.version.is_empty() || query.version == row.version)
        && (!query.outliers || row.outlier)
}
