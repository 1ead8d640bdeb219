//! `sluice version`: prints the version. It needs no cluster.

use clap::Args;
use serde_json::json;

use crate::exit::Outcome;
use crate::output::{self, DataFormat};
use crate::terminal::Io;

/// Arguments of `sluice version`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sluice version
  sluice version -o json")]
pub struct Version {
    /// Print the version as data
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    output: Option<DataFormat>,
}

pub(crate) fn run(args: &Version, version: &str, io: &mut Io<'_>) -> Outcome {
    match args.output {
        Some(format) => output::data(format, &json!({"sluice": version}), io.out)?,
        None => io.line(format!("sluice: {version}"))?,
    }
    Ok(())
}
