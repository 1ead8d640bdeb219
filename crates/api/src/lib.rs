//! What Sluice reads from and writes to Kubernetes: its own kinds, and the few fields of other
//! projects' kinds that it looks at. Plain data; nothing here decides or talks to a server.

#![allow(clippy::duplicated_attributes, reason = "kube's derive takes one printcolumn for each column")]

pub mod cluster;
mod crds;
pub mod flux;
pub mod hook_key;
pub mod lenient;
pub mod pipeline;
pub mod policy;
pub mod promotion;
pub mod rules;
mod schema;
pub mod workload;

pub use cluster::GitopsCluster;
pub use crds::all_crds;
pub use pipeline::{Pipeline, PipelineSpec, PipelineStatus};
pub use promotion::{Promotion, PromotionSpec, PromotionStatus};

/// The API group of Sluice's own kinds.
pub const GROUP: &str = "pipelines.weave.works";

/// The field manager under which Sluice writes, and the reporting controller of its events.
pub const FIELD_MANAGER: &str = "sluice";

/// Labels that make a Kustomization or HelmRelease in a target's namespace a member of the
/// pipeline that is the label's value. The first is Sluice's; the others are those of the documents
/// that came before it.
pub const MEMBER_LABELS: [&str; 3] = [
    "pipelines.weave.works/pipeline",
    "pipelines.wego.weave.works/pipeline",
    "pipelines.wego.weave.works/name",
];

/// The annotation by which a GitopsCluster, or a namespace of the hub, lists the namespaces whose
/// Pipelines may use it: names with commas between them, or `*` for all.
pub const ALLOWED_NAMESPACES: &str = "pipelines.weave.works/allowed-namespaces";
