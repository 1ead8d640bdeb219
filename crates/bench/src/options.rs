//! The command line: what to measure, and the sizes.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::Duration;

use crate::measurement::Measurement;

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
