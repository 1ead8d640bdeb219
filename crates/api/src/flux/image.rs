//! Flux's image automation: ImagePolicy and ImageUpdateAutomation. Source: the API of Flux's image-reflector-controller and
//! image-automation-controller, `api/v1`.

use std::collections::BTreeMap;

use kube::core::Object;
use serde::{Deserialize, Serialize};
use sluice_core::Time;

use super::condition::FluxCondition;
use super::source_ref::SourceRef;

/// Chooses the newest image of a repository, v1 or v1beta2.
pub type ImagePolicy = Object<ImagePolicySpec, ImagePolicyStatus>;
/// Writes chosen images into files of a repository, v1 or v1beta2.
pub type ImageUpdateAutomation = Object<ImageUpdateAutomationSpec, ImageUpdateAutomationStatus>;

/// The fields that Sluice reads of an ImagePolicy's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImagePolicySpec {
    /// True if Flux does not choose any more.
    pub suspend: bool,
    /// How an image is chosen.
    pub policy: PolicyChoice,
}

/// How an image is chosen: one of the fields is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyChoice {
    /// By a range of versions.
    pub semver: Option<SemverChoice>,
    /// By the alphabet.
    pub alphabetical: Option<OrderChoice>,
    /// By number.
    pub numerical: Option<OrderChoice>,
}

/// A range of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SemverChoice {
    /// For example `>=1.0.0`.
    pub range: String,
}

/// The order of tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderChoice {
    /// `asc` or `desc`.
    pub order: String,
}

/// The fields that Sluice reads of an ImagePolicy's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePolicyStatus {
    /// Its conditions.
    pub conditions: Vec<FluxCondition>,
    /// The image that is chosen now.
    pub latest_ref: Option<ImageRef>,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageRef {
    /// The image without tag and digest.
    pub name: String,
    /// Its tag.
    pub tag: String,
}

/// The fields that Sluice reads of an ImageUpdateAutomation's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageUpdateAutomationSpec {
    /// True if Flux does not write any more.
    pub suspend: bool,
    /// The GitRepository of the files.
    pub source_ref: SourceRef,
    /// The files.
    pub update: Option<UpdatePath>,
}

/// The files that an ImageUpdateAutomation writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdatePath {
    /// Their folder in the repository.
    pub path: String,
}

/// The fields that Sluice reads of an ImageUpdateAutomation's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageUpdateAutomationStatus {
    /// Its conditions.
    pub conditions: Vec<FluxCondition>,
    /// When it last pushed a commit.
    pub last_push_time: Option<Time>,
    /// The policies that it wrote images of, by name, with the image of each.
    pub observed_policies: BTreeMap<String, ImageRef>,
}
