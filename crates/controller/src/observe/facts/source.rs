//! The facts of a source: a GitRepository, OCIRepository, HelmRepository, HelmChart, Bucket or ExternalArtifact.

use kube::ResourceExt;
use sluice_api::flux::{ORIGIN_REVISION, ORIGIN_SOURCE, Source, SourceRef, SourceStatus};
use sluice_core::Time;
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
    let made_from = spec.source_ref.as_ref().and_then(|source| source_key(source, object.namespace()));
    let address = spec.address(kind);
    let artifact = status.artifact.as_ref();
    Fact::Source(Box::new(SourceFact {
        // The guard against promoting one's own commits compares the whole address.
        repository: Repository {
            url: if kind == Kind::GitRepository { address } else { text(&address) },
            branch: spec.branch(kind),
        },
        follows: text(&spec.follows(kind)),
        made_from: made_from.map(|key| (key, text(&spec.chart))),
        status: health_status(object, &status),
        revision: artifact.map(|artifact| text(&artifact.revision)).unwrap_or_default(),
        // A text that is not a time is read as the epoch.
        fetched: artifact.and_then(|a| a.last_update_time).filter(|at| *at != Time::default()),
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
    source.key(&from.unwrap_or_default()).filter(super::metadata::is_valid_name)
}

/// Returns a text from a cluster without unsafe characters, and cut to [`MAX_TEXT_BYTES`].
pub(super) fn text(from: &str) -> String {
    value_check::visible(from, MAX_TEXT_BYTES)
}
