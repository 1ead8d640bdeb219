//! What the addresses of pages name.

use serde::Deserialize;

/// Which rows a list shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Words that a row contains.
    pub q: String,
    /// What a row stands out for.
    pub of: String,
}

/// Which versions a page shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MatrixQuery {
    /// A text that the name contains.
    pub q: String,
    /// Only this name, with each object that runs it.
    pub name: String,
    /// Only this cluster.
    pub cluster: String,
    /// Only what differs from most others; anything but an empty text counts.
    pub outliers: String,
}
