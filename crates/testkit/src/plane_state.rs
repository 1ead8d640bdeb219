//! The state that all clusters of one control plane share.

use crate::certificates::Authority;
use crate::{ProcessGuard, Scratch};
use std::path::PathBuf;
use std::sync::Mutex;

/// One etcd, one certificate authority and one folder. Fields are dropped in this order: the folder must be removed
/// after the servers that write to it have ended.
pub(crate) struct PlaneState {
    pub etcd: Mutex<Option<ProcessGuard>>,
    pub etcd_log: PathBuf,
    pub etcd_port: u16,
    pub etcd_url: String,
    pub authority: Authority,
    pub scratch: Scratch,
}
