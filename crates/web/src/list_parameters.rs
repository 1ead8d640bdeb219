//! The parameters that the requests for lists share: `limit`, `continue` and `search`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer};
use sluice_core::dns_name::is_label;

use crate::problem::Problem;

/// The rows of one answer without `limit`.
const DEFAULT_LIMIT: usize = 500;
/// The most rows of one answer.
const MAX_LIMIT: usize = 5000;
/// The most bytes of a search.
const MAX_SEARCH_BYTES: usize = 200;

/// Returns the namespace, or `None` for all. It becomes a part of an address of the API server.
///
/// # Errors
/// It is not the name of a namespace.
pub(crate) fn namespace(text: String) -> Result<Option<String>, Problem> {
    match text.is_empty() || is_label(&text) {
        true => Ok(Some(text).filter(|text| !text.is_empty())),
        false => {
            Err(Problem::bad_request("the namespace is not a name: write lower-case letters, digits and '-'"))
        }
    }
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

/// The most rows of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Limit(usize);

impl Limit {
    /// The most rows that an answer can have.
    pub(crate) const MOST: Limit = Limit(MAX_LIMIT);

    /// Returns the number of rows.
    pub(crate) fn rows(self) -> usize {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Limit(DEFAULT_LIMIT)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        deserializer.deserialize_newtype_struct("Limit", LimitVisitor)
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {MAX_LIMIT}")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Limit, D::Error> {
        let text = String::deserialize(deserializer)?;
        let rows = text.parse().ok().filter(|rows| (1..=MAX_LIMIT).contains(rows));
        rows.map(Limit).ok_or_else(|| D::Error::custom(format!("write a whole number from 1 to {MAX_LIMIT}")))
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT})
    }
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
