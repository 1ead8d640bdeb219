//! Watches: the tasks that hold the connections to clusters and report what changes as events. Each cluster has
//! tasks of its own, so that a cluster that is slow, broken or gone delays no other cluster.

mod change_count;
pub mod cluster_client;
mod cluster_probe;
pub mod cluster_session;
pub mod event_queue;
pub mod kubeconfig;
pub mod kubeconfig_secrets;
pub mod large_objects;
pub mod limit;
mod line;
pub mod list;
mod namespace_share;
pub mod object_text;
pub mod observed_memory;
pub mod owned_read;
pub mod parsed_object;
pub mod read_error;
mod read_slots;
pub mod relist;
pub mod served;
pub mod session_set;
pub mod stream;
pub mod tls_error;
pub mod too_large;
