//! The Kubernetes API of Sluice: its own kinds, and the fields of other projects' kinds that it reads. The types are plain
//! data; only [`lenient`] sends requests.

#![allow(clippy::duplicated_attributes, reason = "kube's derive takes one printcolumn for each column")]

pub mod admission_policy;
pub mod cluster;
mod crds;
pub mod flux;
pub mod hook_key;
pub mod lenient;
pub mod pipeline;
pub mod promotion;
pub mod promotion_rules;
mod schema;
pub mod workload;

pub use cluster::GitopsCluster;
pub use crds::all_crds;
pub use pipeline::{Pipeline, PipelineSpec, PipelineStatus};
pub use promotion::{Promotion, PromotionSpec, PromotionStatus};

// until all crates use the new name
pub use admission_policy as policy;
pub use promotion_rules as rules;

/// The API group of Sluice's own kinds.
pub const GROUP: &str = "pipelines.weave.works";

/// The field manager of Sluice's writes, and the reporting controller of its events.
pub const FIELD_MANAGER: &str = "sluice";

/// Labels whose value names the pipeline of a Kustomization or HelmRelease in a target's namespace. The first is Sluice's;
/// the others are those of the predecessor's documents.
pub const MEMBER_LABELS: [&str; 3] = [
    "pipelines.weave.works/pipeline",
    "pipelines.wego.weave.works/pipeline",
    "pipelines.wego.weave.works/name",
];

/// The annotation of a GitopsCluster, or of a namespace of the hub, with the namespaces whose Pipelines may use it: names
/// with commas between them, or `*` for all.
pub const ALLOWED_NAMESPACES: &str = "pipelines.weave.works/allowed-namespaces";
