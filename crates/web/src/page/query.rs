//! What the addresses of pages name.

use serde::Deserialize;

use crate::problem::Problem;

/// The namespace and name of a Pipeline or Promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    pub namespace: String,
    pub name: String,
}

/// The most bytes of a search.
const MAX_SEARCH_BYTES: usize = 200;

impl ListQuery {
    /// Returns the words to search for, in small letters.
    ///
    /// # Errors
    /// The search is too long: each word is looked for in each row.
    pub(super) fn search_words(&self) -> Result<Vec<String>, Problem> {
        if self.q.len() > MAX_SEARCH_BYTES {
            let why = format!("the search has more than {MAX_SEARCH_BYTES} characters: search for less");
            return Err(Problem::bad_request(why));
        }
        Ok(self.q.to_lowercase().split_whitespace().map(String::from).collect())
    }
}

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
