//! ACT. Delivers a revision into an environment: by change request or commit to its repository, or by a notification or
//! webhook to another program. What to deliver comes in as a value, and the result goes out as one. Running a delivery
//! again, at any point of an earlier try that was stopped, is harmless.

mod address;
mod change_request;
pub mod clock;
mod commit_message;
mod credentials;
mod delivery;
mod direct_commit;
mod edit;
mod error;
mod fair_queue;
pub mod fault;
mod fencing;
mod fingerprint;
mod foreign_text;
mod forge;
mod forge_kind;
mod git;
mod hex;
mod http_client;
mod lock;
mod lost_commit;
mod lru;
mod markdown;
pub mod notification;
mod options;
mod order;
mod outcome;
mod outgoing_http;
mod plain_http;
mod private_folder;
mod public_address;
mod resources;
mod retry;
mod retry_after;
mod stats;
mod template;
mod trailers;
mod webhook;

pub use address::{AddressError, AllowedHost, AllowedHosts};
pub use credentials::{Credentials, CredentialsError};
pub use delivery::Delivery;
pub use edit::EditError;
pub use error::DeliveryError;
pub use fair_queue::{FairQueue, Slot};
pub use fencing::{FencingToken, LeaseTerm, since_boot};
pub use forge::{ForgeError, PromotionProgress};
pub use forge_kind::ForgeKind;
pub use git::GitError;
pub use notification::NotificationError;
pub use options::{DEFAULT_AUTHOR, DEFAULT_CACHE_BYTES, DeliveryOptions};
pub use order::{Announcement, DeliveryStrategy, DeliveryTarget, MergeMode, Order, Settings, Values};
pub use outcome::{ChangeRequest, ChangeRequestStatus, Delivered, OutdatedReason};
pub use retry::Retry;
pub use stats::{RateBudget, Stats};
pub use template::TemplateError;
pub use webhook::{AllowedWebhooks, WebhookError};

// Until the controller uses the new names.
pub use fair_queue::{FairQueue as Line, Slot as Place};
pub use fencing::{FencingToken as Permit, LeaseTerm as Term};
pub use forge::PromotionProgress as Progress;
pub use options::DeliveryOptions as Options;
pub use order::{
    Announcement as About, DeliveryStrategy as Strategy, DeliveryTarget as Target, MergeMode as Merge,
};
pub use outcome::{ChangeRequestStatus as Followed, OutdatedReason as Stale};
pub use stats::RateBudget as Purse;
pub use webhook::AllowedWebhooks as Allowed;
