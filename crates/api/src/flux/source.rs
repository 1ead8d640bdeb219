//! The GitRepository, from which Flux reads manifests and charts.

use kube::core::{NotUsed, Object};
use serde::{Deserialize, Serialize};

/// A GitRepository, v1 or older. Its status is not read.
pub type Source = Object<SourceSpec, NotUsed>;

/// The fields that Sluice reads of a GitRepository's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceSpec {
    /// The address of the repository.
    pub url: String,
    /// The followed branch, tag, range or commit.
    #[serde(rename = "ref")]
    pub reference: Option<SourceReference>,
}

/// The part of a repository that Flux follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceReference {
    /// A branch.
    pub branch: Option<String>,
    /// A git reference by its whole name.
    pub name: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// A range of tags.
    pub semver: Option<String>,
    /// One commit.
    pub commit: Option<String>,
}
