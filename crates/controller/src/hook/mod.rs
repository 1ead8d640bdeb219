//! INTAKE by HTTP: events of Flux, what a CI system asks for, what receivers and forges say. A call does
//! nothing by itself: it is checked, what it says is kept where that counts, and the pipeline is looked at.

pub mod answer;
pub mod approval;
pub mod callback;
pub mod condition;
mod connection;
mod directory;
pub mod event;
pub mod forge;
pub mod keys;
pub mod limit;
mod metrics;
pub mod promotion;
pub mod queue;
pub mod report;
pub mod route;
mod server;
pub mod signature;
pub mod store;
pub mod trigger;

pub use directory::Directory;
pub use limit::{Network, Proxies};
pub use metrics::HookMetrics;
pub use server::{Hook, HookOptions, serve};
