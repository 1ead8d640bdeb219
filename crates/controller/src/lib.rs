//! The controller. The runtime feeds events to the state; the state decides for each pipeline which effects
//! follow, and the runtime carries them out.

pub mod access;
pub mod act;
pub mod hook;
pub mod metrics;
pub mod metrics_and_probe_servers;
pub mod observe;
pub mod options;
pub mod pipeline_key;
mod predecessor;
pub mod record;
mod resource_version;
mod run;
pub mod runtime;
pub mod secret;
pub mod shard;
mod snapshots;
pub mod state;
mod tenancy;
mod timeout;
pub mod translate;
pub mod watch;

pub use observe::ObserveScope;
pub use options::{ControllerOptions, HISTORY_LIMIT, OBSERVED_MEMORY, Replica};
pub use run::{RunError, delivery, run};
pub use runtime::file_proposals::{FileProposals, FileRequest, ProposalError};
pub use runtime::planned_changes::PlannedChanges;
pub use shard::{ElectionOptions, LeaseTiming};
pub use sluice_delivery::{
    AllowedHost, AllowedHosts, AllowedWebhooks, DEFAULT_AUTHOR, Delivery, NamedServer,
};
pub use snapshots::{Shown, SnapshotReader, snapshot_channel};
