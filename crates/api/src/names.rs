//! The API group, the field manager, labels and annotations of Sluice.

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

/// The annotation of a GitopsCluster that is `targets` if Sluice observes there only what its targets need.
pub const OBSERVE: &str = "pipelines.weave.works/observe";

/// The annotation of a GitopsCluster, or of a namespace of the hub, with the namespaces whose Pipelines may use it: names
/// with commas between them, or `*` for all.
pub const ALLOWED_NAMESPACES: &str = "pipelines.weave.works/allowed-namespaces";
