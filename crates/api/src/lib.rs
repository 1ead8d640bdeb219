//! The Kubernetes API of Sluice: its own kinds, and the fields of other projects' kinds that it reads. The types are plain
//! data; only [`lenient`] sends requests.

#![allow(clippy::duplicated_attributes, reason = "kube's derive takes one printcolumn for each column")]

mod crds;
mod default_field;
pub mod flux;
pub mod gitops_cluster;
pub mod hook_key;
pub mod kubeconfig_key;
pub mod lenient;
mod names;
pub mod pipeline;
pub mod promotion;
pub mod secret_use;
pub mod snapshot;
pub mod too_large;
pub mod workload;

pub use crds::all_crds;
pub use gitops_cluster::GitopsCluster;
pub use names::{ALLOWED_NAMESPACES, FIELD_MANAGER, GROUP, MEMBER_LABELS, OBSERVE};
pub use pipeline::{Pipeline, PipelineSpec, PipelineStatus};
pub use promotion::{Promotion, PromotionSpec, PromotionStatus};
