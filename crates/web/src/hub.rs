//! The port to the hub: who calls, what the caller may do, the Pipelines and Promotions, and changes in the caller's name.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::snapshot::Snapshot;
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::fleet::Kind;
use sluice_core::planned_change::PlannedChange;
use sluice_core::proposed_file::ProposedFile;
use sluice_view::check::Installation;
use sluice_view::events::EventLine;
use sluice_view::object_name::ObjectName;
use sluice_view::reconcile::{ReconcilePlan, RequestedObject};

/// The hub, as the API and the page need it.
pub trait Hub: Clone + Send + Sync + 'static {
    /// Returns whose token this is.
    fn identify(&self, token: &str) -> impl Future<Output = Result<Caller, AccessError>> + Send;

    /// Returns whether a caller may do something.
    fn allows(
        &self,
        caller: &Caller,
        right: &Right,
    ) -> impl Future<Output = Result<bool, AccessError>> + Send;

    /// Returns the Pipelines and Promotions as they are now; `None` while the process ends.
    fn snapshot(&self) -> impl Future<Output = Option<Arc<Snapshot>>> + Send;

    /// Returns a number that is higher after a change of Pipelines or Promotions.
    fn version(&self) -> u64;

    /// Waits until the version is higher than this one.
    fn changed_since(&self, version: u64) -> impl Future<Output = ()> + Send;

    /// Returns for a caller what the delivery of a promotion would change now, or what its commit has changed if there is one and
    /// no change request is open; `None` if it is not delivered to git. The error is a
    /// sentence for people.
    fn planned_change(
        &self,
        caller: &Caller,
        pipeline: &Pipeline,
        promotion: &Promotion,
    ) -> impl Future<Output = Result<Option<Arc<PlannedChange>>, String>> + Send;

    /// Changes an object in the name of whom the token identifies.
    fn change(&self, token: &str, change: Change) -> impl Future<Output = Result<(), ChangeError>> + Send;

    /// Returns a HelmRelease or Kustomization of the hub, as the API server shows it to whom the token identifies.
    fn application(
        &self,
        token: &str,
        kind: Kind,
        name: &ObjectName,
    ) -> impl Future<Output = Result<Value, ChangeError>> + Send;

    /// Returns events of pipelines and promotions, as the API server shows them to whom the token identifies.
    fn events(
        &self,
        token: &str,
        wanted: WantedEvents,
    ) -> impl Future<Output = Result<Vec<EventLine>, ChangeError>> + Send;

    /// Returns what the API server says to whom the token identifies about the installation, in a bounded number of calls.
    /// `pipelines` are those that this caller may see, in this namespace or, without one, in all.
    fn installation<'a>(
        &self,
        caller: &Caller,
        token: &str,
        namespace: Option<&'a str>,
        pipelines: &'a [Pipeline],
    ) -> impl Future<Output = Result<Installation<'a>, ChangeError>> + Send;

    /// Asks Flux to reconcile objects of the hub and their sources, in the name of whom the token identifies. `namespace`
    /// is that of the pipeline.
    fn reconcile(
        &self,
        token: &str,
        namespace: &str,
        plan: ReconcilePlan,
    ) -> impl Future<Output = Result<Vec<RequestedObject>, ChangeError>> + Send;

    /// Proposes the files of a Pipeline in git, for a caller whose token would be enough to write this Pipeline, and the
    /// manifests for the hub, to the cluster.
    fn propose(
        &self,
        caller: &Caller,
        token: &str,
        proposal: FileProposal,
    ) -> impl Future<Output = Result<ProposedFile, ChangeError>> + Send;
}

/// The events that a person wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedEvents {
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Only those of this pipeline and its promotions.
    pub pipeline: Option<String>,
    /// The names of the promotions of the pipeline.
    pub promotions: Vec<String>,
    /// Only these types; all if it is empty.
    pub types: Vec<String>,
}

/// The files of a Pipeline that a person proposes.
#[derive(Clone, Debug, PartialEq)]
pub struct FileProposal {
    /// The Pipeline.
    pub pipeline: Pipeline,
    /// Its manifest, as an object and as YAML.
    pub object: Value,
    /// See `object`.
    pub yaml: String,
    /// The Pipeline that the person has edited; `None` for a new one.
    pub edited: Option<Pipeline>,
    /// The path of the file of the Pipeline.
    pub path: String,
    /// The manifests of its application, each in a new file.
    pub manifests: Vec<ProposedManifest>,
    /// The confirmation of what the person has seen; `None` to see it first.
    pub confirmation: Option<String>,
}

/// The manifest of an application that a person proposes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedManifest {
    /// The path of the file.
    pub path: String,
    /// The manifest, as an object and as YAML.
    pub object: Value,
    /// See `object`.
    pub yaml: String,
    /// Whether the object is for the hub.
    pub is_on_hub: bool,
}

/// A change of the spec of an object by a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The kind of the object.
    pub kind: ChangedKind,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// What the person has seen; the change fails if the object is another one, or its spec was changed since.
    pub seen: SeenObject,
    /// The fields of the spec to set.
    pub spec: Value,
}

/// An object with a certain spec. Its status may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenObject {
    /// The object's uid.
    pub uid: String,
    /// The number of changes of its spec.
    pub generation: i64,
}

impl SeenObject {
    /// Returns the object with the uid and generation of its metadata.
    pub fn new(uid: Option<&String>, generation: Option<i64>) -> SeenObject {
        SeenObject { uid: uid.cloned().unwrap_or_default(), generation: generation.unwrap_or_default() }
    }
}

/// What people change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedKind {
    /// A Pipeline.
    Pipeline,
    /// A Promotion.
    Promotion,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The object is not what the person has seen.
    #[error("it has changed since you looked: look again, then decide")]
    Conflict,
    /// The API server refuses it.
    #[error("{0}")]
    Refused(String),
    /// Something that the person entered cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The repository, its forge or Sluice itself has failed.
    #[error("{0}")]
    Failed(String),
    /// The API server did not answer.
    #[error("cannot ask the API server: {0}; nothing was changed as far as is known, so look again")]
    Unavailable(String),
}
