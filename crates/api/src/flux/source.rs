//! The sources of manifests and charts: GitRepository, OCIRepository, HelmRepository, HelmChart, Bucket and
//! ExternalArtifact.

use std::collections::BTreeMap;

use kube::core::Object;
use serde::{Deserialize, Serialize};

use super::condition::FluxCondition;
use super::source_ref::SourceRef;

/// Group of all kinds of source.
pub const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";

/// A source of any kind, v1 or older.
pub type Source = Object<SourceSpec, SourceStatus>;

/// The fields that Sluice reads of a source's spec, of all kinds of source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceSpec {
    /// The address of a GitRepository, OCIRepository or HelmRepository.
    pub url: String,
    /// The followed branch, tag, range or commit of a GitRepository or OCIRepository.
    #[serde(rename = "ref")]
    pub reference: Option<SourceReference>,
    /// True if Flux does not fetch the source.
    pub suspend: bool,
    /// Present if Flux verifies a signature before it accepts an artifact.
    pub verify: Option<Verification>,
    /// Bucket: the address of the object storage.
    pub endpoint: String,
    /// Bucket: the name of the bucket.
    pub bucket_name: String,
    /// HelmChart: the chart's name, or its path in a source.
    pub chart: String,
    /// HelmChart: a version or a range of versions.
    pub version: String,
    /// HelmChart: the source of the chart. ExternalArtifact: the object that made the artifact.
    pub source_ref: Option<SourceRef>,
}

/// How Flux verifies the signature of a source. Only its presence is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {}

/// The part of a source that Flux follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceReference {
    /// A git branch.
    pub branch: Option<String>,
    /// A git reference by its whole name.
    pub name: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// A range of tags.
    pub semver: Option<String>,
    /// One commit.
    pub commit: Option<String>,
    /// The digest of an OCI artifact.
    pub digest: Option<String>,
}

/// The fields that Sluice reads of a source's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceStatus {
    /// The last observed generation; -1 before the first.
    pub observed_generation: Option<i64>,
    /// Its conditions. `SourceVerified` tells whether the signature of the artifact was verified.
    pub conditions: Vec<FluxCondition>,
    /// The last fetched artifact.
    pub artifact: Option<Artifact>,
    /// HelmChart: the revision of the source that the chart was made from.
    pub observed_source_artifact_revision: String,
}

/// An artifact of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifact {
    /// The revision as Flux prints it: `main@sha1:...`, `6.1.8@sha256:...`.
    pub revision: String,
    /// When Flux last stored the artifact.
    pub last_update_time: String,
    /// Annotations of an OCI artifact.
    pub metadata: BTreeMap<String, String>,
}

/// The annotation of an OCI artifact with the address of the repository that it was built from
/// ([OCI image specification](https://github.com/opencontainers/image-spec/blob/v1.1.1/annotations.md)).
pub const ORIGIN_SOURCE: &str = "org.opencontainers.image.source";
/// The annotation of an OCI artifact with the revision that it was built from.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";
