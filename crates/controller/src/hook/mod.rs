//! INTAKE by HTTP: events that Flux sends. A call never promotes by itself: it is checked, answered
//! at once, and the pipeline is looked at again.

pub mod answer;
pub mod callback;
mod connection;
mod directory;
pub mod event;
pub mod forge;
mod keys;
pub mod limit;
pub mod promotion;
pub mod report;
pub mod route;
mod server;
pub mod signature;
pub mod store;
pub mod trigger;

pub use directory::Directory;
pub use limit::{Network, Proxies};
pub use server::{Hook, HookOptions, serve};
