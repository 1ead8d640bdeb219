//! Commit statuses, with the words of each forge.

use super::{CheckOutcome, ForgeState, ParsedCall, Rejection, Request};

/// A status of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub commit: String,
    /// What it is known by there.
    pub context: String,
    pub is: CheckOutcome,
    pub description: String,
    pub url: Option<String>,
    /// The pipeline that has it, at GitLab.
    pub pipeline: Option<u64>,
}

/// Where a forge has the parts of a status in its answer and calls, as JSON pointers, and what it takes.
pub(super) struct Words {
    pub(super) context: &'static str,
    pub(super) description: &'static str,
    pub(super) url: &'static str,
    /// The longest context, description and url that it takes.
    pub(super) longest: (usize, usize, usize),
    /// The words for pending, green and failed.
    pub(super) states: [&'static str; 3],
}

/// As GitHub has it, and Gitea after it.
pub(super) const GITHUB: Words = Words {
    context: "/context",
    description: "/description",
    url: "/target_url",
    longest: (255, 140, 2048),
    states: ["pending", "success", "failure"],
};

/// As both Bitbuckets have it.
pub(super) const BITBUCKET: Words = Words {
    context: "/key",
    description: "/description",
    url: "/url",
    longest: (40, 255, 2048),
    states: ["INPROGRESS", "SUCCESSFUL", "FAILED"],
};

impl Words {
    /// What a call reports on a commit.
    pub(super) fn read(&self, request: &Request, commit: &str) -> Result<ParsedCall, Rejection<'static>> {
        let text = |at: &str, most: usize| {
            let text = request
                .text(at)
                .filter(|text| !text.is_empty())
                .ok_or(Rejection::Bad("a field is missing"))?;
            if text.chars().count() > most { Err(Rejection::Bad("a field is too long")) } else { Ok(text) }
        };
        let state = request.text("/state").unwrap_or_default();
        let is =
            self.states.iter().position(|word| *word == state).ok_or(Rejection::Bad("state is not one"))?;
        let status = Status {
            commit: commit.into(),
            context: text(self.context, self.longest.0)?,
            is: [CheckOutcome::Pending, CheckOutcome::Green, CheckOutcome::Failed][is],
            description: text(self.description, self.longest.1)?,
            url: request.text(self.url).map(|_| text(self.url, self.longest.2)).transpose()?,
            pipeline: request.body["pipeline_id"].as_u64(),
        };
        Ok(ParsedCall::Report(status))
    }
}

impl ForgeState {
    /// The newest status of this name on a commit, in the same pipeline.
    pub(super) fn status(&self, of: &Status) -> Option<&Status> {
        let known = |s: &Status| (s.commit.clone(), s.context.clone(), s.pipeline);
        self.statuses.iter().rev().find(|status| known(status) == known(of))
    }
}
