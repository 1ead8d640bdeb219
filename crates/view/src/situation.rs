//! The situation of an environment, in one word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The situation of one environment (or target).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Situation {
    /// The environment runs what its predecessors have proven.
    UpToDate,
    /// Sluice writes nothing here: no predecessor, or no policy.
    Observed,
    /// Sluice writes nothing here, and a predecessor runs another revision.
    Differs,
    /// A promotion is in progress, and no person has to act.
    Moving,
    /// A promotion or a newer revision waits for a change that happens without a person.
    Waiting,
    /// A person has to act.
    Blocked,
    /// The controller has not reported on the environment yet.
    Unknown,
}

impl Situation {
    /// Returns the situation in ordinary words.
    pub fn words(self) -> &'static str {
        match self {
            Situation::UpToDate => "up to date",
            Situation::Observed => "only observed",
            Situation::Differs => "only observed, differs",
            Situation::Moving => "moving",
            Situation::Waiting => "waiting",
            Situation::Blocked => "needs a person",
            Situation::Unknown => "unknown",
        }
    }
}
