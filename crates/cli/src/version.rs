//! `sluice version`: prints the version. It needs no cluster.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::output::{DataFormat, view};
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

/// The version of the program.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProgramVersion {
    /// The version of Sluice.
    sluice: String,
}

pub(crate) fn run(args: &Version, version: &str, io: &mut Io<'_>) -> Outcome {
    match args.output {
        Some(format) => {
            view(format, DocumentKind::Version, &ProgramVersion { sluice: version.into() }, io.out)?
        }
        None => io.line(format!("sluice: {version}"))?,
    }
    Ok(())
}
