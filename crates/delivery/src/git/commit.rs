//! A commit as git stores it.

use jiff::Timestamp;

use super::error::{GitError, GitResult};
use crate::read_trailers;

/// The largest commit that is read, in bytes. The tips of branches are kept in memory.
const MAX_COMMIT_BYTES: usize = 64 * 1024;

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) parents: Vec<String>,
    pub(crate) message: String,
    /// The whole object; empty for a commit that this process has just made.
    pub(super) raw: Vec<u8>,
}

impl Commit {
    /// A commit that this process has just made.
    pub(crate) fn made(id: String, parent: String, message: String) -> Self {
        Commit { id, parents: vec![parent], message, raw: Vec::new() }
    }

    /// Whether the message names the promotion with this key.
    pub(crate) fn carries(&self, known_by: &str) -> bool {
        read_trailers::carries(&self.message, known_by)
    }

    /// The date of the committer.
    pub(crate) fn date(&self) -> Option<Timestamp> {
        let text = String::from_utf8_lossy(&self.raw);
        let head = text.split("\n\n").next().unwrap_or_default();
        let committer = head.lines().find_map(|line| line.strip_prefix("committer "))?;
        Timestamp::from_second(committer.rsplit(' ').nth(1)?.parse().ok()?).ok()
    }

    /// Parses a commit object. An object that was too large to read is empty here.
    pub(super) fn parse(repository: &str, id: &str, raw: &[u8]) -> GitResult<Self> {
        if raw.is_empty() || raw.len() > MAX_COMMIT_BYTES {
            let (repository, doing) = (repository.to_string(), "cat-file".to_string());
            let says = format!("the commit {id} has more than {} KiB", MAX_COMMIT_BYTES >> 10);
            return Err(GitError::TooLarge { repository, doing, says });
        }
        let text = String::from_utf8_lossy(raw);
        let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let parents = head.lines().filter_map(|l| l.strip_prefix("parent ")).map(String::from).collect();
        Ok(Commit { id: id.into(), parents, message: message.into(), raw: raw.to_vec() })
    }
}
