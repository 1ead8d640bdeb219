//! ACT. Delivers a revision into an environment: by change request or commit to its repository, or by a notification or
//! webhook to another program. What to deliver comes in as a value, and the result goes out as one. Running a delivery
//! again, at any point of an earlier try that was stopped, is harmless.

mod address;
mod change_request;
mod check_state;
pub mod clock;
mod commit_message;
mod credentials;
mod delivery;
mod direct_commit;
mod edit;
mod edit_slots;
mod error;
pub mod evidence_text;
mod fair_queue;
pub mod fault;
mod fencing;
mod file_change;
mod fingerprint;
mod foreign_text;
mod forge;
mod forge_kind;
mod git;
mod head_branch;
mod http_client;
mod lost_commit;
mod lru;
mod manifest_file;
mod markdown;
mod named_server;
pub mod notification;
mod options;
mod order;
mod outcome;
mod outgoing_http;
mod plain_http;
mod planned_change;
mod private_folder;
mod public_address;
mod read_trailers;
mod redaction;
mod resources;
mod retry;
mod retry_after;
mod slot_use;
mod stats;
mod template;
mod tls_trust;
mod webhook;

pub use address::{AddressError, AllowedHost, AllowedHosts};
pub use check_state::CheckState;
pub use credentials::{Credentials, CredentialsError};
pub use delivery::Delivery;
pub use edit::EditError;
pub use error::DeliveryError;
pub use fair_queue::{FairQueue, Slot};
pub use fencing::{FencingToken, LeaseTerm, since_boot};
pub use file_change::{FileChange, RequestedChange};
pub use forge::{ForgeError, PromotionProgress};
pub use forge_kind::ForgeKind;
pub use git::GitError;
pub use manifest_file::{
    ManifestFileError, ManifestObject, check_manifest_path, check_manifest_paths, manifest_file,
    new_manifest_file,
};
pub use named_server::NamedServer;
pub use notification::NotificationError;
pub use options::{DEFAULT_AUTHOR, DEFAULT_CACHE_BYTES, DeliveryOptions};
pub use order::{Announcement, DeliveryStrategy, DeliveryTarget, Order, Settings, Values};
pub use outcome::{
    ChangeRequest, ChangeRequestLook, ChangeRequestStatus, Delivered, OutdatedReason, ReportedCheck,
    ReportedChecks,
};
pub use redaction::without_secrets;
pub use retry::Retry;
pub use sluice_core::pipeline::MergeMode;
pub use stats::{RateBudget, Stats};
pub use template::TemplateError;
pub use webhook::{AllowedWebhooks, WebhookError, may_have_arrived};
