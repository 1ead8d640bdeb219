//! How much is observed.

/// What is observed on clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveScope {
    /// Every cluster, with what only views show.
    All,
    /// The clusters that Pipelines name, with what decisions and statuses need.
    Targets,
}
