//! Fault injection for the chaos tests: a forge and git server behind a proxy that injects a fault into any call, a TCP
//! proxy that can be disconnected or stalled, and a proxy that injects conflicts into writes to an API server. The forge
//! records each violation of what Sluice promises. The same seed draws the same faults.

mod api_server_proxy;
mod chaos_forge;
mod fault_proxy;
pub mod github;
mod plan;
mod pulls;
mod tcp_proxy;

pub use api_server_proxy::{ApiServerProxy, WriteFault};
pub use chaos_forge::{ChaosForge, HostedRepo};
pub use fault_proxy::{FaultProxy, RecordedCall};
pub use plan::{Fault, FaultPlan, draw};
pub use pulls::{PullRequest, PullState};
pub use tcp_proxy::TcpProxy;
