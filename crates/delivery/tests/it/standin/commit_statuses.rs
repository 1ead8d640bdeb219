//! Commit statuses, in the format of each forge.

use super::check_outcome::CheckOutcome;
use super::parsed_call::ParsedCall;
use super::rejection::CallRejection;
use super::reported_status::ReportedStatus;
use super::request::ForgeRequest;

/// The fields of a status in calls and answers, as JSON pointers, and their limits.
pub(super) struct StatusFormat {
    pub(super) context: &'static str,
    pub(super) description: &'static str,
    pub(super) url: &'static str,
    /// The maximum lengths of context, description and url.
    pub(super) longest: (usize, usize, usize),
    /// The states for pending, green and failed.
    pub(super) states: [&'static str; 3],
}

/// The format of GitHub, which Gitea has too.
pub(super) const GITHUB: StatusFormat = StatusFormat {
    context: "/context",
    description: "/description",
    url: "/target_url",
    longest: (255, 140, 2048),
    states: ["pending", "success", "failure"],
};

/// The format of Bitbucket Cloud and Bitbucket Data Center.
pub(super) const BITBUCKET: StatusFormat = StatusFormat {
    context: "/key",
    description: "/description",
    url: "/url",
    longest: (40, 255, 2048),
    states: ["INPROGRESS", "SUCCESSFUL", "FAILED"],
};

impl StatusFormat {
    /// Parses a call that reports a status of a commit.
    pub(super) fn parse(
        &self,
        request: &ForgeRequest,
        commit: &str,
    ) -> Result<ParsedCall, CallRejection<'static>> {
        let text = |at: &str, most: usize| {
            let text = request
                .text(at)
                .filter(|text| !text.is_empty())
                .ok_or(CallRejection::Bad("a field is missing"))?;
            if text.chars().count() > most {
                Err(CallRejection::Bad("a field is too long"))
            } else {
                Ok(text)
            }
        };
        let state = request.text("/state").unwrap_or_default();
        let is = self
            .states
            .iter()
            .position(|word| *word == state)
            .ok_or(CallRejection::Bad("the state is unknown"))?;
        let status = ReportedStatus {
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
