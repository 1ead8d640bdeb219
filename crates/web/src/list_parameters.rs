//! The parameters that the requests for lists share: `limit`, `continue` and `search`.

use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The rows of one answer without `limit`.
const DEFAULT_LIMIT: usize = 500;
/// The most rows of one answer.
const MAX_LIMIT: usize = 5000;
/// The most bytes of a search.
const MAX_SEARCH_BYTES: usize = 200;

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
