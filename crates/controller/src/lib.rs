//! INTAKE, OBSERVE, RECORD and the loop: what the controller is made of. Watches tell the loop what
//! happened; the loop gives each pipeline that it concerns a turn; a turn decides, has it done and
//! writes down what came of it.

pub mod act;
pub mod approvals;
mod due;
pub mod engine;
pub mod hook;
pub mod intake;
pub mod metrics;
mod objects;
pub mod observe;
pub mod options;
mod predecessor;
pub mod record;
mod run;
pub mod secret;
pub mod serve;
pub mod shard;
mod silence;
mod tenancy;
pub mod translate;
mod turn;
pub mod watch;

pub use options::{OBSERVED_MEMORY, Options};
pub use run::{RunError, run};
pub use shard::{Election, Pace};
pub use sluice_delivery::{Allowed, AllowedHost, AllowedHosts, DEFAULT_AUTHOR};
