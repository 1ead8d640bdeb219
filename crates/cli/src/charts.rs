//! `sluice charts`: which chart versions run where, and which targets differ.

use clap::Args;

use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::terminal::Io;
use crate::versions::{self, VersionArguments, Versioned};

/// Arguments of `sluice charts`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which version of podinfo runs where?
  sluice charts podinfo -A

  # Which targets in prod do not run what the others run?
  sluice charts -A -e prod --outliers

  # Which charts run on all clusters, also without a pipeline?
  sluice charts --fleet")]
pub struct Charts {
    #[command(flatten)]
    arguments: VersionArguments,
}

const CHARTS: Versioned = Versioned {
    word: "charts",
    headings: ["HELM RELEASE", "CHART"],
    documents: [DocumentKind::Charts, DocumentKind::FleetCharts],
    rows: sluice_view::versions::charts,
};

pub(crate) async fn run(args: &Charts, io: &mut Io<'_>) -> Outcome {
    versions::run(&args.arguments, CHARTS, io).await
}
