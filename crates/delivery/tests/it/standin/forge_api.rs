//! What differs from forge to forge: paths, fields, states and errors.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::fault::CallKind;
use super::merge_style::Style;
use super::parsed_call::ParsedCall;
use super::pull::{MetadataKind, Pull};
use super::rejection::CallRejection;
use super::reported_status::ReportedStatus;
use super::request::ForgeRequest;

pub const TOKEN: &str = "t0ken";

pub(super) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Returns a JSON list of objects that have these names under `key`.
pub(super) fn named(key: &str, names: &[String]) -> Value {
    names.iter().map(|name| json!({key: name})).collect()
}

pub(super) type ForgeAnswer = (u16, Value);

/// The API of one forge.
pub(super) trait ForgeApi: Send + Sync {
    /// The path in the repository's address, without `.git`.
    fn clone_path(&self) -> &'static str;
    /// The path of the repository in the API.
    fn base_path(&self) -> &'static str;
    /// Prefixes of paths outside of the repository, each with the prefix that replaces it before `read` is called.
    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The header with the credentials, and its value.
    fn login(&self) -> (&'static str, String);
    /// The credentials of git for a token.
    fn git_login(&self) -> String;
    /// Whether the forge supports conditional calls.
    fn etags(&self) -> bool {
        true
    }
    /// Whether the forge returns the open pull request instead of rejecting a second one between the same branches.
    fn returns_the_first(&self) -> bool {
        false
    }
    /// Whether a closed pull request can be changed.
    fn can_update_closed(&self) -> bool {
        true
    }
    /// Whether a commit is also read by the name of a branch or tag.
    fn reads_commits_by_name(&self) -> bool {
        false
    }
    /// The most characters of a body that the forge accepts.
    fn longest_body(&self) -> usize {
        65_536
    }
    /// The most characters of a title that the forge accepts.
    fn longest_title(&self) -> usize {
        255
    }
    /// The headers that report the rate limit in the answer to a call of this path; none if there is no limit.
    fn budget(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![]
    }
    /// Parses a call.
    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>>;
    /// Returns the JSON object of a pull request, in a list or alone.
    fn pull(&self, pull: &Pull, listed: bool) -> Value;
    /// Returns a page of a list. `next` is the first entry of the next page.
    fn list(&self, page: Vec<Value>, from: usize, next: Option<usize>) -> Value;
    /// Returns the answer to an addition.
    fn added(&self, pull: &Pull, _what: MetadataKind, _names: &[String]) -> Value {
        self.pull(pull, false)
    }
    /// Returns the HTTP status of the answer to an addition.
    fn added_status(&self, _what: MetadataKind) -> u16 {
        self.status(CallKind::Add)
    }
    /// The answer to a merge.
    fn merged(&self, pull: &Pull) -> Value {
        self.pull(pull, false)
    }
    /// Returns the rejection of a call that merges a closed pull request.
    fn ended(&self, _pull: &Pull) -> CallRejection<'static> {
        CallRejection::NotOpen
    }
    /// Whether the forge rejects a merge for another head before it checks anything else.
    fn looks_at_the_head_first(&self) -> bool {
        true
    }
    /// Returns the rejection of a person, or `None` if the forge silently skips the person. `author` is true for the
    /// author of the pull request.
    fn user_rejection(&self, what: MetadataKind, author: bool) -> Option<CallRejection<'static>>;
    /// Returns facts for a merge, or `None` if the forge has no such facts. If the facts have pages, returns the page
    /// that begins at `from`.
    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value>;
    fn commit(&self, commit: &LoggedCommit) -> Value;
    /// Returns the JSON object of the repository. `style` is the merge method that it allows.
    fn repository(&self, _style: Style) -> Value {
        json!({"id": 1, "name": "fleet"})
    }
    /// Returns the answer to a status of a commit.
    fn reported(&self, _status: &ReportedStatus, id: usize) -> Value {
        json!({"id": id})
    }
    /// Returns the part of an answer that the request selects.
    fn select(&self, _request: &ForgeRequest, answer: Value) -> Value {
        answer
    }
    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer;
    /// Returns the answer with an error, in the form that this call has.
    fn request_error(&self, _request: &ForgeRequest, why: CallRejection<'_>) -> ForgeAnswer {
        self.error_answer(why)
    }
    /// Returns the newest status of each pipeline, if the forge puts statuses into pipelines. Such a forge rejects a
    /// change from pending to pending.
    fn statuses(&self, _of_pipelines: &[&ReportedStatus]) -> Option<Value> {
        None
    }
    /// Returns the HTTP status of a successful call.
    fn status(&self, call: CallKind) -> u16 {
        if matches!(call, CallKind::Open | CallKind::Comment | CallKind::Report) { 201 } else { 200 }
    }
}
