//! Which facts Sluice keeps of an observed object, one file for each kind.

mod flux_status;

pub mod helm_release;
pub mod kustomization;
pub mod metadata;
pub mod source;
pub mod trigger;
pub mod workload;
