//! Git without a working tree: one bare, shallow, partial cache for each repository, maintained by the `git`
//! program. Reads files of a commit, puts a commit on top of it and pushes that.

mod access;
mod branch_history;
mod cache;
mod cache_pool;
mod commit;
mod create_commit;
pub(crate) mod error;
mod fetch;
pub(crate) mod files;
mod find_promotion;
mod known_branch;
mod limits;
mod memory_budget;
mod own_commits;
mod process_group;
mod push;
mod read_files;
mod read_plain_file;
mod repository;
mod run;
mod sign;
mod ssh_private_key;
mod stale_locks;

pub(crate) use access::RepositoryAccess;
pub(crate) use cache_pool::CachePool;
pub(crate) use commit::Commit;
pub(crate) use create_commit::{ChangedFile, NewCommit};
pub use error::GitError;
pub(crate) use error::GitResult;
pub(crate) use files::{FoundFiles, ReadFile, UnreadFile, UnreadReason};
pub(crate) use push::{PushMode, Pushed};
pub(crate) use read_files::YamlFiles;
pub(crate) use repository::LockedRepository;
pub(crate) use run::Git;
