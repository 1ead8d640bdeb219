//! Git without a working tree: one bare, shallow, partial cache a repository, kept by the `git`
//! program. Read files of a commit, put a commit on top of it, push it.

mod access;
mod bring;
mod cache;
mod commit;
mod error;
mod history;
mod identity;
mod push;
mod run;
mod scan;
mod sign;

use sha2::{Digest, Sha256};

pub(crate) use access::Access;
pub(crate) use cache::{Cache, Repository, Want};
pub(crate) use commit::{ChangedFile, CommitText};
pub use error::GitError;
pub(crate) use push::{Lease, Pushed};
pub(crate) use run::Git;
pub(crate) use scan::ReadFile;

/// A commit as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) parents: Vec<String>,
    pub(crate) message: String,
    pub(crate) signed: bool,
}

impl Commit {
    /// Whether it says that it carries what is known by this.
    pub(crate) fn carries(&self, known_by: &str) -> bool {
        carries(&self.message, known_by)
    }

    fn parse(id: &str, raw: &[u8]) -> Self {
        let text = String::from_utf8_lossy(raw);
        let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let parents = head.lines().filter_map(|l| l.strip_prefix("parent ")).map(String::from).collect();
        let signed = head.lines().any(|l| l.starts_with("gpgsig"));
        Commit { id: id.into(), parents, message: message.into(), signed }
    }
}

/// The trailer that says which promotion a commit carries, and of which round.
pub(crate) const TRAILER: &str = "Sluice-Promotion";

/// Whether a commit message has the trailer of what is known by this. Squashed commits have it anywhere.
pub(crate) fn carries(message: &str, known_by: &str) -> bool {
    carried(message).any(|carried| carried == known_by)
}

/// Whether a commit message has the trailer for this promotion, of whichever round.
pub(crate) fn names(message: &str, promotion: &str) -> bool {
    carried(message).any(|carried| carried.split_once(':').map_or(carried, |(name, _)| name) == promotion)
}

/// Whether a commit message has the trailer for any promotion.
pub(crate) fn is_ours(message: &str) -> bool {
    carried(message).next().is_some()
}

/// The promotions that a commit message has a trailer for.
fn carried(message: &str) -> impl Iterator<Item = &str> {
    message.lines().filter_map(|line| line.trim().strip_prefix(TRAILER)?.strip_prefix(": "))
}

/// SHA-256 of some bytes, in hexadecimal.
pub(crate) fn hex_hash(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}
