//! Delivery by change request: opens one, merges it if the strategy asks for that, and follows it to its end.

mod body;
mod body_mark;
mod delete_branch;
mod job;
mod labels_and_reviewers;
pub(crate) mod merge;
mod merged_delivery;
mod own_commit;
pub(crate) mod propose;
pub(crate) mod report_status;
mod shared_branch;
pub(crate) mod status;
pub(crate) mod withdraw;

pub(crate) use job::ChangeRequestTarget;
