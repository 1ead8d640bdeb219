//! Which facets make a workload's revision: those that the pipeline tracks, or the default ones.

use std::str::FromStr;

use crate::revision::{Facet, InvalidFacet};

/// One entry of `spec.tracks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Track {
    /// A single facet.
    Facet(Facet),
    /// The images of all repositories.
    Images,
}

impl Track {
    /// Returns true if the entry includes a facet.
    pub fn admits(&self, facet: &Facet) -> bool {
        match self {
            Track::Images => matches!(facet, Facet::Image(_)),
            Track::Facet(own) => own == facet,
        }
    }
}

impl FromStr for Track {
    type Err = InvalidFacet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "images" { Ok(Track::Images) } else { text.parse().map(Track::Facet) }
    }
}

/// The facet that makes a workload's revision if the pipeline has no `tracks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultFacet {
    /// The chart's version: for a HelmRelease.
    Chart,
    /// The tag, or the digest if there is no tag: for a Kustomization from an OCI artifact.
    Artifact,
    /// The images, or the source's revision if no images are known: for a Kustomization from git.
    Images,
}
