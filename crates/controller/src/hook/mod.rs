//! The hook server: Flux, CI systems, approval systems, receivers of webhooks and forges call it by HTTP. It
//! checks each call, stores what the call reports on the API server if that counts, and has the pipeline
//! reconciled.

pub mod answer;
pub mod approval;
pub mod approval_rules;
mod authorization;
mod call;
pub mod callback;
mod certificate;
mod connection;
mod directory;
pub mod event;
mod forge;
pub mod forge_proof;
pub mod hmac_keys;
mod metrics;
mod peer_address;
pub mod promotion;
mod promotion_list;
pub mod proxies;
pub mod queue;
pub mod rate;
pub mod report;
pub mod route;
mod secret_checker;
pub mod secret_condition;
pub mod secret_names;
mod server;
pub mod signature;
pub mod status_change;
pub mod store;
pub mod trigger;
pub mod trigger_rules;

pub use connection::serve;
pub use directory::Directory;
pub use metrics::HookMetrics;
pub use proxies::{Network, Proxies};
pub use server::{HookOptions, HookServer};
