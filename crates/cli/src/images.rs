//! `sluice images`: which images run where, and which targets differ.

use clap::Args;

use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::terminal::Io;
use crate::versions::{self, VersionArguments, Versioned};

/// Arguments of `sluice images`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Where does this image run, and with which tags?
  sluice images ghcr.io/stefanprodan/podinfo -A

  # Which targets in prod do not run what the others run?
  sluice images -A -e prod --outliers

  # Which clusters run this tag, also in workloads that Flux did not make?
  sluice images nginx --fleet --version 1.27.0")]
pub struct Images {
    #[command(flatten)]
    arguments: VersionArguments,
}

const IMAGES: Versioned = Versioned {
    word: "images",
    headings: ["IMAGE", "IMAGE"],
    documents: [DocumentKind::Images, DocumentKind::FleetImages],
    rows: sluice_view::versions::images,
};

pub(crate) async fn run(args: &Images, io: &mut Io<'_>) -> Outcome {
    versions::run(&args.arguments, IMAGES, io).await
}
