//! ACT. Carries a revision into an environment's repository: by change request or by commit. What
//! to deliver comes in as a value, what was done goes out as one; running a delivery again, at any
//! point of an earlier try that was cut off, is harmless.

mod address;
mod body;
mod change_request;
mod commit_strategy;
mod credentials;
mod deliver;
mod edit;
mod error;
pub mod fault;
mod forge;
mod git;
mod order;
mod private;
mod stats;

pub use address::AddressError;
pub use credentials::Credentials;
pub use deliver::{Delivery, Options};
pub use edit::EditError;
pub use error::{DeliveryError, Retry};
pub use forge::ForgeError;
pub use git::GitError;
pub use order::{ChangeRequest, Delivered, Followed, ForgeKind, Order, Permit, Strategy};
pub use stats::Stats;
