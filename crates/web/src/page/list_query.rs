//! Which rows of the pages Pipelines and Promotions the address of the page names.

use serde::Deserialize;

/// Which rows a list shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Words that a row contains.
    pub q: String,
    /// What a row stands out for.
    pub of: String,
    /// What the rows of one group have in common; empty for no groups. Promotions have no groups.
    pub group: String,
}
