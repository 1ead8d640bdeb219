//! The sources of Flux: what manifests and charts come from. One type reads every kind of them; fields that a kind does
//! not have are absent. Source: the API of Flux's source-controller, `api/v1`.

use std::collections::BTreeMap;

use kube::core::Object;
use serde::{Deserialize, Serialize};
use sluice_core::Time;
use sluice_core::fleet::Kind;

use super::condition::FluxCondition;
use super::source_ref::SourceRef;

/// A GitRepository, OCIRepository, HelmRepository, HelmChart, Bucket or ExternalArtifact, of any version.
pub type Source = Object<SourceSpec, SourceStatus>;

/// The fields that Sluice reads of a source's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceSpec {
    /// True if Flux does not reconcile the object.
    pub suspend: bool,
    /// HelmRepository: `oci` for one that Flux does not reconcile, and that has no status.
    #[serde(rename = "type")]
    pub type_: String,
    /// The address of a repository.
    pub url: String,
    /// The followed branch, tag, range, digest or commit.
    #[serde(rename = "ref")]
    pub reference: Option<SourceReference>,
    /// Bucket: the address of the server.
    pub endpoint: String,
    /// Bucket: the name of the bucket.
    pub bucket_name: String,
    /// HelmChart: the name of the chart, or its path in a git repository.
    pub chart: String,
    /// HelmChart: the version, or a range of versions.
    pub version: String,
    /// HelmChart and ExternalArtifact: where it comes from.
    pub source_ref: Option<SourceRef>,
}

impl SourceSpec {
    /// Returns the branch that a GitRepository follows. If it names a tag, a range or a commit, Flux ignores the branch, and
    /// the branch here is empty, as that of all other kinds.
    pub fn branch(&self, kind: Kind) -> String {
        if kind != Kind::GitRepository {
            return String::new();
        }
        let reference = self.reference.clone().unwrap_or_default();
        let is_pinned = reference.tag.is_some() || reference.semver.is_some() || reference.commit.is_some();
        match (&reference.name, &reference.branch) {
            (Some(name), _) => name.strip_prefix("refs/heads/").unwrap_or_default().to_string(),
            _ if is_pinned => String::new(),
            (None, branch) => branch.clone().unwrap_or_else(|| "master".into()),
        }
    }

    /// Says what a source follows: `branch main`, `tag v1`, `range >=1.0`, `version 6.x`; empty for everything there.
    pub fn follows(&self, kind: Kind) -> String {
        let fixed = self.reference.as_ref().and_then(SourceReference::fixed);
        match (fixed, self.branch(kind).as_str(), self.version.as_str()) {
            (Some((what, value)), ..) => format!("{what} {value}"),
            (None, "", "") => String::new(),
            (None, "", version) => format!("version {version}"),
            (None, branch, _) => format!("branch {branch}"),
        }
    }

    /// Returns the address of a source.
    pub fn address(&self, kind: Kind) -> String {
        match kind {
            Kind::Bucket => format!("{}/{}", self.endpoint, self.bucket_name),
            _ => self.url.clone(),
        }
    }
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
    /// The digest of an OCI artifact.
    pub digest: Option<String>,
}

impl SourceReference {
    /// Returns what Flux follows instead of a branch: its sort and its value. The order is the one in which Flux looks at
    /// the fields.
    pub fn fixed(&self) -> Option<(&'static str, &str)> {
        let fields = [
            ("digest", &self.digest),
            ("commit", &self.commit),
            ("reference", &self.name),
            ("range", &self.semver),
            ("tag", &self.tag),
        ];
        fields.into_iter().find_map(|(what, value)| Some((what, value.as_deref()?)))
    }
}

/// The fields that Sluice reads of a source's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceStatus {
    /// The last reconciled generation.
    pub observed_generation: Option<i64>,
    /// Its conditions. `SourceVerified` tells whether a signature was verified.
    pub conditions: Vec<FluxCondition>,
    /// What was fetched last.
    pub artifact: Option<Artifact>,
    /// HelmChart: the revision of the source that the chart was built from.
    pub observed_source_artifact_revision: Option<String>,
}

/// What Flux has fetched from a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifact {
    /// The revision, such as `main@sha1:<commit>` or `6.7.1@sha256:<digest>`.
    pub revision: String,
    /// When it was fetched.
    pub last_update_time: Option<Time>,
    /// The annotations of an OCI artifact.
    pub metadata: BTreeMap<String, String>,
}

/// The annotation of an OCI artifact with the repository that it was built from.
pub const ORIGIN_SOURCE: &str = "org.opencontainers.image.source";
/// The annotation of an OCI artifact with the revision that it was built from.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";
