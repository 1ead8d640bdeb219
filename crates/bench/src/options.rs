//! What to measure, and how large.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::Duration;

/// One thing that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The size of the binary.
    Size,
    /// `sluice --help`.
    Help,
    /// The first start on a fleet, and bare status writes.
    Start,
    /// A start with nothing changed.
    Restart,
    /// Doing nothing.
    Rest,
    /// From a healthy workload to the record of a promotion.
    Reaction,
    /// `sluice get pipelines`.
    List,
    /// A promotion into a large repository.
    Repository,
    /// What one promotion by change request costs.
    Request,
    /// Signed calls of the hook server.
    Hooks,
    /// Many revisions at once.
    Crowd,
    /// A change on a cluster beside broken ones.
    Isolation,
    /// Shards that pass from one replica to others.
    Handover,
}

impl Row {
    const ALL: [(&'static str, Row); 13] = [
        ("size", Row::Size),
        ("help", Row::Help),
        ("start", Row::Start),
        ("restart", Row::Restart),
        ("rest", Row::Rest),
        ("reaction", Row::Reaction),
        ("list", Row::List),
        ("repository", Row::Repository),
        ("request", Row::Request),
        ("hooks", Row::Hooks),
        ("crowd", Row::Crowd),
        ("isolation", Row::Isolation),
        ("handover", Row::Handover),
    ];
    /// Those that need thousands of pipelines.
    pub const ON_A_FLEET: [Row; 5] = [Row::Start, Row::Restart, Row::Rest, Row::Reaction, Row::List];
    /// Those that need applications on a cluster of their own.
    pub const OF_DELIVERY: [Row; 3] = [Row::Repository, Row::Request, Row::Hooks];
}

/// What was asked for.
#[derive(Debug)]
pub struct Options {
    rows: Vec<Row>,
    /// The binary to measure.
    pub sluice: PathBuf,
    /// How many pipelines, with three targets each.
    pub pipelines: usize,
    /// Whether each target runs a Deployment too.
    pub deployments: bool,
    /// How often to measure what has a beginning and an end.
    pub repeat: usize,
    /// How long to watch doing nothing.
    pub rest: Duration,
    /// How long to keep changing workloads, ten times a second.
    pub reaction: Duration,
    /// How many revisions are promoted at once.
    pub crowd: usize,
    /// How many changes to make beside broken clusters.
    pub changes: usize,
}

const HELP: &str = "\
Measures the budgets of Sluice and prints one table.

Usage: bench [flags] [size] [help] [start] [restart] [rest] [reaction] [list] [repository] [request]
             [hooks] [crowd] [isolation] [handover]

  --sluice FILE       the binary to measure (default: target/release/sluice)
  --pipelines N       how many pipelines, three targets each (default 2000)
  --deployments       a Deployment in each target besides its HelmRelease
  --repeat N          how often to start, and to end a replica (default 2)
  --rest SECONDS      how long to watch doing nothing (default 60; the budget says 600)
  --reaction SECONDS  how long to change ten workloads a second (default 30)
  --crowd N           how many revisions to promote at once (default 1000)
  --changes N         how many changes to make beside broken clusters (default 40)
";

impl Options {
    /// Reads the arguments; `None` when only help was wanted.
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Option<Options>> {
        let mut options = Options {
            rows: Vec::new(),
            sluice: built_binary()?,
            pipelines: 2000,
            deployments: false,
            repeat: 2,
            rest: Duration::from_secs(60),
            reaction: Duration::from_secs(30),
            crowd: 1000,
            changes: 40,
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
                "--crowd" => options.crowd = value()?.parse::<usize>()?.max(1),
                "--changes" => options.changes = value()?.parse::<usize>()?.max(1),
                "--reaction" => options.reaction = Duration::from_secs(value()?.parse()?),
                row => match Row::ALL.iter().find(|(name, _)| *name == row) {
                    Some((_, row)) => options.rows.push(*row),
                    None => bail!("there is no row {row}\n{HELP}"),
                },
            }
        }
        if !options.sluice.is_file() {
            bail!("{} is not there: cargo build --release -p sluice", options.sluice.display());
        }
        Ok(Some(options))
    }

    /// Whether to measure a row; all of them when none was named.
    pub fn wants(&self, row: Row) -> bool {
        self.rows.is_empty() || self.rows.contains(&row)
    }

    /// Whether to measure any of these rows.
    pub fn wants_any(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.wants(*row))
    }
}

/// The release binary beside this program's own profile folder.
fn built_binary() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let target = this.ancestors().nth(2).context("this program is in no target folder")?;
    Ok(target.join("release/sluice"))
}
