//! The command line: what to measure, and the sizes.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::Duration;

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
    const ALL: [(&'static str, Measurement); 18] = [
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
    pub const ON_A_FLEET: [Measurement; 8] = [
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

/// The parsed command line.
#[derive(Debug)]
pub struct BenchOptions {
    selected: Vec<Measurement>,
    /// The binary to measure.
    pub sluice: PathBuf,
    /// The number of pipelines, with three targets each.
    pub pipelines: usize,
    /// Whether each target runs a Deployment too.
    pub deployments: bool,
    /// The number of repetitions of starts, change requests and ended replicas.
    pub repeat: usize,
    /// The duration of the measurement at rest.
    pub rest: Duration,
    /// The duration of workload changes, ten a second.
    pub reaction: Duration,
    /// The number of revisions promoted at the same time.
    pub burst: usize,
    /// The number of changes while other clusters are broken.
    pub changes: usize,
    /// The number of clusters to observe.
    pub clusters: usize,
    /// The number of live pages that are open at the same time.
    pub live_pages: usize,
}

const HELP: &str = "\
Measures the budgets of Sluice and prints one table.

Usage: bench [flags] [size] [help] [start] [restart] [rest] [reaction] [list] [pages] [pixels] [live]
             [repository] [request] [hooks] [burst] [isolation] [handover] [clusters] [questions]

  --sluice FILE       the binary to measure (default: target/release/sluice)
  --pipelines N       the number of pipelines, with three targets each (default 2000)
  --deployments       add a Deployment to each target besides its HelmRelease
  --repeat N          the number of starts and of ended replicas (default 2)
  --rest SECONDS      the duration of the measurements at rest (default 60; the budget is for 600)
  --reaction SECONDS  the duration of workload changes, ten a second (default 30)
  --burst N           the number of revisions to promote at the same time (default 1000)
  --changes N         the number of changes while other clusters are broken (default 40)
  --clusters N        the number of clusters to observe (default 100)
  --live-pages N      the number of live pages that are open at the same time (default 500)
";

impl BenchOptions {
    /// Parses the arguments. Returns `None` after printing the help.
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Option<BenchOptions>> {
        let mut options = BenchOptions {
            selected: Vec::new(),
            sluice: built_binary()?,
            pipelines: 2000,
            deployments: false,
            repeat: 2,
            rest: Duration::from_secs(60),
            reaction: Duration::from_secs(30),
            burst: 1000,
            changes: 40,
            clusters: 100,
            live_pages: 500,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--help" | "-h" => {
                    print!("{HELP}");
                    return Ok(None);
                }
                "--sluice" => options.sluice = value()?.into(),
                "--pipelines" => options.pipelines = value()?.parse()?,
                "--deployments" => options.deployments = true,
                "--repeat" => options.repeat = value()?.parse::<usize>()?.max(1),
                "--rest" => options.rest = Duration::from_secs(value()?.parse()?),
                "--burst" => options.burst = value()?.parse::<usize>()?.max(1),
                "--changes" => options.changes = value()?.parse::<usize>()?.max(1),
                "--clusters" => options.clusters = value()?.parse::<usize>()?.max(1),
                "--live-pages" => options.live_pages = value()?.parse::<usize>()?.max(1),
                "--reaction" => options.reaction = Duration::from_secs(value()?.parse()?),
                other => match Measurement::ALL.iter().find(|(name, _)| *name == other) {
                    Some((_, measurement)) => options.selected.push(*measurement),
                    None => bail!("unknown measurement {other}\n{HELP}"),
                },
            }
        }
        if !options.sluice.is_file() {
            bail!("{} does not exist; run cargo build --release -p sluice", options.sluice.display());
        }
        Ok(Some(options))
    }

    /// Returns true if a measurement is selected. Without arguments all are.
    pub fn wants(&self, measurement: Measurement) -> bool {
        self.selected.is_empty() || self.selected.contains(&measurement)
    }

    /// Returns true if any of these measurements is selected.
    pub fn wants_any(&self, measurements: &[Measurement]) -> bool {
        measurements.iter().any(|measurement| self.wants(*measurement))
    }
}

/// Returns the path of the release binary in the target folder of this program.
fn built_binary() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let target = this.ancestors().nth(2).context("this program is not in a target folder")?;
    Ok(target.join("release/sluice"))
}
