//! Git without a working tree: one bare, shallow, partial cache a repository, kept by the `git`
//! program. Read files of a commit, put a commit on top of it, push it.

mod access;
mod bring;
mod cache;
mod commit;
mod error;
mod group;
mod history;
mod identity;
mod limits;
mod litter;
mod memory;
mod own;
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
pub(crate) use scan::{LARGEST, ReadFile, Unread, Why};

/// The largest commit that is read, in bytes. Tips and heads of branches are kept in memory.
const MAX_COMMIT: usize = 64 * 1024;

/// A commit as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) parents: Vec<String>,
    pub(crate) message: String,
    /// The whole object; empty for a commit that this process has just made.
    raw: Vec<u8>,
}

impl Commit {
    /// A commit that this process has just made.
    pub(crate) fn made(id: String, parent: String, message: String) -> Self {
        Commit { id, parents: vec![parent], message, raw: Vec::new() }
    }

    /// Whether it says that it carries what is known by this.
    pub(crate) fn carries(&self, known_by: &str) -> bool {
        carries(&self.message, known_by)
    }

    /// Reads a commit object. An empty one was larger than [`LARGEST`].
    fn parse(access: &Access, id: &str, raw: &[u8]) -> Result<Self, GitError> {
        if raw.is_empty() || raw.len() > MAX_COMMIT {
            let (repository, doing) = (access.name().to_string(), "cat-file".to_string());
            let says = format!("the commit {id} has more than {} KiB", MAX_COMMIT >> 10);
            return Err(GitError::TooLarge { repository, doing, says });
        }
        let text = String::from_utf8_lossy(raw);
        let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let parents = head.lines().filter_map(|l| l.strip_prefix("parent ")).map(String::from).collect();
        Ok(Commit { id: id.into(), parents, message: message.into(), raw: raw.to_vec() })
    }
}

/// The trailer that says which promotion a commit carries, and of which round.
pub(crate) const TRAILER: &str = "Sluice-Promotion";

/// Whether a commit message has the trailer of what is known by this. Only a hint: everybody can write one.
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

/// The most promotions that one commit message counts for.
const MAX_CARRIED: usize = 20;

/// The promotions that a commit message has a trailer for: the first [`MAX_CARRIED`].
fn carried(message: &str) -> impl Iterator<Item = &str> {
    let promotions = trailers(message).filter_map(|line| line.strip_prefix(TRAILER)?.strip_prefix(": "));
    promotions.take(MAX_CARRIED)
}

/// The lines of a commit message that can be trailers: those of the last paragraph, unless it is the title
/// (git-scm.com/docs/git-interpret-trailers). Text of others, such as the title of a change request, stands
/// above them.
pub(crate) fn trailers(message: &str) -> impl Iterator<Item = &str> {
    let lines = message.trim().lines().map(str::trim);
    let count = lines.clone().count();
    let last = lines.clone().rev().take_while(|line| !line.is_empty()).count();
    lines.skip(if last < count { count - last } else { count })
}

/// SHA-256 of some bytes, in hexadecimal.
pub(crate) fn hex_hash(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_for_a_limited_number_of_promotions() {
        let promotions: String = (0..1_000).map(|n| format!("{TRAILER}: {n}\n")).collect();
        let found: Vec<String> = carried(&format!("Promote\n\n{promotions}")).map(String::from).collect();
        assert_eq!(found, (0..MAX_CARRIED).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn trailers_count_in_the_last_paragraph_only() {
        let trailer = "Sluice-Promotion: apps/a";
        for (message, is) in [
            (format!("Promote\n\n- a\n\n{trailer}\nSluice-Onto: 0\n"), true),
            (format!("Promote\r\n\r\n{trailer}\r\n\r\n"), true),
            (format!("Promote\n\n{trailer}\n\nSee also\n"), false),
            (format!("Fix\n\n* Promote\n\n{trailer}\n\nCo-authored-by: eve <e@e>"), false),
            (trailer.to_string(), false),
            (format!("{trailer}\n{trailer}"), false),
            (format!("Promote\n\n> {trailer}"), false),
        ] {
            assert_eq!(carries(&message, "apps/a"), is, "{message:?}");
            assert_eq!((is_ours(&message), names(&message, "apps/a")), (is, is), "{message:?}");
        }
    }
}
