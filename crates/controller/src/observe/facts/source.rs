//! The facts of a source: a GitRepository, OCIRepository, HelmRepository, HelmChart, Bucket or ExternalArtifact.

use kube::ResourceExt;
use sluice_api::flux::{ORIGIN_REVISION, ORIGIN_SOURCE, Source, SourceRef, SourceReference, SourceStatus};
use sluice_core::fleet::fact::{HealthStatus, Origin, SourceFact};
use sluice_core::fleet::{Fact, Kind, ObjectKey};
use sluice_core::observed::Health;
use sluice_core::repository::Repository;
use sluice_core::value_check;

use super::flux_status::sanitized;
use crate::observe::health::{self, FluxView};

/// The most bytes that are kept of an address, of a revision or of another text.
const MAX_TEXT_BYTES: usize = 1024;

/// Returns the facts of a source.
pub fn facts(kind: Kind, object: &Source) -> Fact {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let reference = spec.reference.clone().unwrap_or_default();
    let branch = if kind == Kind::GitRepository { branch(&reference) } else { String::new() };
    let made_from = spec.source_ref.as_ref().and_then(|source| source_key(source, object.namespace()));
    let address = if kind == Kind::Bucket {
        format!("{}/{}", spec.endpoint, spec.bucket_name)
    } else {
        spec.url.clone()
    };
    let revision = status.artifact.as_ref().map(|artifact| text(&artifact.revision)).unwrap_or_default();
    Fact::Source(Box::new(SourceFact {
        // The guard against promoting one's own commits compares the whole address.
        repository: Repository {
            url: if kind == Kind::GitRepository { address } else { text(&address) },
            branch: branch.clone(),
        },
        follows: follows(&reference, &branch, &spec.version),
        made_from: made_from.map(|key| (key, text(&spec.chart))),
        status: health_status(object, &status),
        revision,
        origin: origin(&status).map(Box::new),
        verified: verified(&status),
    }))
}

/// Returns the health of a source. Flux does not reconcile a HelmRepository of an OCI registry.
fn health_status(object: &Source, status: &SourceStatus) -> HealthStatus {
    if object.spec.type_ == "oci" {
        return HealthStatus { health: Health::Ready, ..HealthStatus::default() };
    }
    sanitized(health::flux(&FluxView {
        generation: object.metadata.generation.unwrap_or_default(),
        terminating: object.metadata.deletion_timestamp.is_some(),
        suspended: object.spec.suspend.then_some("resume it with flux resume"),
        observed_generation: status.observed_generation,
        conditions: &status.conditions,
    }))
}

/// Returns the branch that a GitRepository follows. If it names a tag, a range or a commit, Flux ignores the branch, and
/// the branch here is empty.
fn branch(reference: &SourceReference) -> String {
    let is_pinned = reference.tag.is_some() || reference.semver.is_some() || reference.commit.is_some();
    match (&reference.name, &reference.branch) {
        (Some(name), _) => name.strip_prefix("refs/heads/").unwrap_or_default().to_string(),
        _ if is_pinned => String::new(),
        (None, branch) => branch.clone().unwrap_or_else(|| "master".into()),
    }
}

/// Says what a source follows.
fn follows(reference: &SourceReference, branch: &str, version: &str) -> String {
    let named = reference.fixed().map(|(what, value)| format!("{what} {}", text(value)));
    named.unwrap_or_else(|| match (branch, version) {
        ("", "") => String::new(),
        ("", version) => format!("version {}", text(version)),
        (branch, _) => format!("branch {}", text(branch)),
    })
}

/// Returns where an artifact was built from. A chart from a git repository has the revision of that repository.
fn origin(status: &SourceStatus) -> Option<Origin> {
    let metadata = status.artifact.as_ref().map(|artifact| &artifact.metadata);
    let annotation =
        |key| metadata.and_then(|metadata| metadata.get(key)).map(|value| text(value)).unwrap_or_default();
    let built_from = status.observed_source_artifact_revision.as_deref().map(text);
    let revision = built_from.unwrap_or_else(|| annotation(ORIGIN_REVISION));
    let origin = Origin { repository: annotation(ORIGIN_SOURCE), revision };
    (origin != Origin::default()).then_some(origin)
}

/// Returns whether Flux has verified a signature. Without the condition, Flux is not asked to.
fn verified(status: &SourceStatus) -> Option<bool> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == "SourceVerified")?;
    Some(condition.is_true())
}

/// Returns the key of a source that an object in a namespace refers to; `None` if the kind or the name is not one of a
/// source.
pub(super) fn source_key(source: &SourceRef, from: Option<String>) -> Option<ObjectKey> {
    let namespace =
        source.namespace.clone().filter(|namespace| !namespace.is_empty()).or(from).unwrap_or_default();
    let key = ObjectKey { kind: Kind::of_source(&source.kind)?, namespace, name: source.name.clone() };
    super::metadata::is_valid_name(&key).then_some(key)
}

/// Returns a text from a cluster without unsafe characters, and cut to [`MAX_TEXT_BYTES`].
pub(super) fn text(from: &str) -> String {
    let mut text: String =
        from.chars().filter(|c| !value_check::is_unsafe(*c)).take(MAX_TEXT_BYTES).collect();
    crate::record::cut(&mut text, MAX_TEXT_BYTES);
    text
}
