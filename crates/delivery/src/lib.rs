//! ACT. Carries a revision into an environment: by change request or commit to its repository, or by
//! telling others who do it. What to deliver comes in as a value, what was done goes out as one;
//! running a delivery again, at any point of an earlier try that was cut off, is harmless.

mod address;
mod body;
mod change_request;
pub mod clock;
mod commit_status;
mod commit_strategy;
mod credentials;
mod deliver;
mod edit;
mod error;
mod extras;
pub mod fault;
mod fingerprint;
mod forge;
mod git;
mod line;
mod lost;
mod lru;
mod mark;
mod merge;
mod merged;
pub mod notification;
mod order;
mod outward;
mod own;
mod permit;
mod plain_http;
mod private;
mod shelf;
mod stats;
mod template;
mod webhook;

pub use address::{AddressError, AllowedHost, AllowedHosts};
pub use commit_status::Progress;
pub use credentials::{Credentials, CredentialsError};
pub use deliver::{DEFAULT_AUTHOR, DEFAULT_CACHE_BYTES, Delivery, Options};
pub use edit::EditError;
pub use error::{DeliveryError, Retry};
pub use forge::ForgeError;
pub use git::GitError;
pub use line::{Line, Place};
pub use notification::NotificationError;
pub use order::{
    About, ChangeRequest, Delivered, Followed, ForgeKind, Merge, Order, Settings, Stale, Strategy, Target,
    Values,
};
pub use permit::{Permit, Term, since_boot};
pub use stats::{Purse, Stats};
pub use template::TemplateError;
pub use webhook::{Allowed, WebhookError};
