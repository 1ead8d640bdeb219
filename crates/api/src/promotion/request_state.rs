//! The state of a change request, as its Promotion records it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a change request in the status of its Promotion. It is stored as a word; a word that this version
/// does not know is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RecordedRequestState {
    /// It waits to be merged.
    #[default]
    Open,
    /// It was merged.
    Merged,
    /// A person closed it.
    Closed,
    /// Sluice closed it, because it was not needed any more.
    Withdrawn,
    /// A later promotion uses it.
    HandedOver,
    /// It stays open, because the pipeline names another repository or branch now and Sluice cannot close it.
    Left,
    /// Another version of Sluice wrote this word.
    Other(String),
}

impl RecordedRequestState {
    /// The word that is stored.
    pub fn as_str(&self) -> &str {
        match self {
            RecordedRequestState::Open => "open",
            RecordedRequestState::Merged => "merged",
            RecordedRequestState::Closed => "closed",
            RecordedRequestState::Withdrawn => "withdrawn",
            RecordedRequestState::HandedOver => "handed over",
            RecordedRequestState::Left => "left",
            RecordedRequestState::Other(word) => word,
        }
    }
}

impl From<&str> for RecordedRequestState {
    fn from(word: &str) -> Self {
        match word {
            "open" => RecordedRequestState::Open,
            "merged" => RecordedRequestState::Merged,
            "closed" => RecordedRequestState::Closed,
            "withdrawn" => RecordedRequestState::Withdrawn,
            "handed over" => RecordedRequestState::HandedOver,
            "left" => RecordedRequestState::Left,
            other => RecordedRequestState::Other(other.into()),
        }
    }
}

impl From<String> for RecordedRequestState {
    fn from(word: String) -> Self {
        RecordedRequestState::from(word.as_str())
    }
}

impl From<RecordedRequestState> for String {
    fn from(state: RecordedRequestState) -> Self {
        state.as_str().into()
    }
}

impl fmt::Display for RecordedRequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_and_written_as_it_is() {
        let read = |word: &str| {
            let json = serde_json::to_string(word).unwrap();
            let state: RecordedRequestState = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&state).unwrap(), json);
            state
        };
        for word in ["open", "merged", "closed", "withdrawn", "handed over", "left"] {
            assert!(!matches!(read(word), RecordedRequestState::Other(_)), "{word}");
        }
        for word in ["", "Open", "a word of a later version"] {
            assert_eq!(read(word), RecordedRequestState::Other(word.into()));
        }
    }
}
