//! The measurements, and what they need. To add one, add it to the enum, to its lists and to the help in `options.rs`, and
//! call it in `main.rs`, or in `many_pipelines.rs` if it needs thousands of pipelines.

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    /// The size of the binary.
    Size,
    /// `sluice --help`.
    Help,
    /// The first start on a fleet, and bare status writes.
    Start,
    /// A start with nothing changed.
    Restart,
    /// The costs while nothing happens.
    Rest,
    /// The time from a healthy workload to the record of a promotion.
    Reaction,
    /// `sluice get pipelines`.
    List,
    /// The pages of the fleet.
    Pages,
    /// The time from a change of a workload to the pixels of a page.
    Pixels,
    /// Many live pages.
    Live,
    /// A promotion into a large repository.
    Repository,
    /// The costs of one promotion by change request.
    Request,
    /// Signed calls of the hook server.
    Hooks,
    /// Many revisions at the same time.
    Burst,
    /// A change on a cluster while other clusters are broken.
    Isolation,
    /// The takeover of shards by other replicas.
    Handover,
    /// The observation of many clusters.
    Clusters,
    /// Commands that answer questions about pipelines on many clusters.
    Questions,
}

impl Measurement {
    /// All measurements, with their names on the command line.
    pub const ALL: [(&'static str, Measurement); 18] = [
        ("size", Measurement::Size),
        ("help", Measurement::Help),
        ("start", Measurement::Start),
        ("restart", Measurement::Restart),
        ("rest", Measurement::Rest),
        ("reaction", Measurement::Reaction),
        ("list", Measurement::List),
        ("pages", Measurement::Pages),
        ("pixels", Measurement::Pixels),
        ("live", Measurement::Live),
        ("repository", Measurement::Repository),
        ("request", Measurement::Request),
        ("hooks", Measurement::Hooks),
        ("burst", Measurement::Burst),
        ("isolation", Measurement::Isolation),
        ("handover", Measurement::Handover),
        ("clusters", Measurement::Clusters),
        ("questions", Measurement::Questions),
    ];
    /// The measurements that need thousands of pipelines.
    pub const OF_MANY_PIPELINES: [Measurement; 8] = [
        Measurement::Start,
        Measurement::Restart,
        Measurement::Rest,
        Measurement::Reaction,
        Measurement::List,
        Measurement::Pages,
        Measurement::Pixels,
        Measurement::Live,
    ];
    /// The measurements of the pages of a fleet.
    pub const OF_PAGES: [Measurement; 3] = [Measurement::Pages, Measurement::Pixels, Measurement::Live];
    /// The measurements that need applications with real deliveries.
    pub const OF_DELIVERY: [Measurement; 3] =
        [Measurement::Repository, Measurement::Request, Measurement::Hooks];
}
