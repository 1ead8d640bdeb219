//! INTAKE, OBSERVE, RECORD and the loop: what the controller is made of. The runtime feeds what happens to the state;
//! the state decides what follows for each pipeline, and the runtime carries it out.

pub mod act;
pub mod hook;
pub mod key;
pub mod metrics;
pub mod observe;
pub mod options;
mod predecessor;
pub mod record;
mod run;
pub mod runtime;
pub mod secret;
pub mod serve;
pub mod shard;
pub mod state;
mod tenancy;
mod timeout;
pub mod translate;
pub mod watch;

pub use options::{OBSERVED_MEMORY, Options};
pub use run::{RunError, run};
pub use shard::{Election, Pace};
pub use sluice_delivery::{AllowedHost, AllowedHosts, AllowedWebhooks, DEFAULT_AUTHOR};
