//! The kinds of the documents that commands print with `-o json` and `-o yaml`.

/// The version of the documents. It changes when a field is removed or changes its meaning.
pub(crate) const VERSION: &str = "view.pipelines.weave.works/v1alpha1";

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    Charts,
    Check,
    Clusters,
    Events,
    Explanations,
    FleetCharts,
    FleetClusters,
    FleetImages,
    History,
    Images,
    PipelineStatus,
    Story,
    Trace,
    Tree,
    Triggers,
    Validation,
    Version,
}

impl DocumentKind {
    /// All kinds, ordered by name.
    pub(crate) const ALL: [DocumentKind; 17] = [
        DocumentKind::Charts,
        DocumentKind::Check,
        DocumentKind::Clusters,
        DocumentKind::Events,
        DocumentKind::Explanations,
        DocumentKind::FleetCharts,
        DocumentKind::FleetClusters,
        DocumentKind::FleetImages,
        DocumentKind::History,
        DocumentKind::Images,
        DocumentKind::PipelineStatus,
        DocumentKind::Story,
        DocumentKind::Trace,
        DocumentKind::Tree,
        DocumentKind::Triggers,
        DocumentKind::Validation,
        DocumentKind::Version,
    ];

    /// Returns the name in the document.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DocumentKind::Charts => "Charts",
            DocumentKind::Check => "Check",
            DocumentKind::Clusters => "Clusters",
            DocumentKind::Events => "Events",
            DocumentKind::Explanations => "Explanations",
            DocumentKind::FleetCharts => "FleetCharts",
            DocumentKind::FleetClusters => "FleetClusters",
            DocumentKind::FleetImages => "FleetImages",
            DocumentKind::History => "History",
            DocumentKind::Images => "Images",
            DocumentKind::PipelineStatus => "PipelineStatus",
            DocumentKind::Story => "Story",
            DocumentKind::Trace => "Trace",
            DocumentKind::Tree => "Tree",
            DocumentKind::Triggers => "Triggers",
            DocumentKind::Validation => "Validation",
            DocumentKind::Version => "Version",
        }
    }
}
