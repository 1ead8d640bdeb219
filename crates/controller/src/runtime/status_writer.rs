//! Sends status writes. Each write names the version of the object that its status was composed for: a status that
//! someone else has written since is never replaced unnoticed, however late the write arrives. After an edit of the object, it
//! names the spec and the status that the object had then, so that edits of labels, or of the spec to and fro, cannot keep it out.
//!
//! A write is a JSON patch (RFC 6902) with one operation for each field of the status that hook calls do not write. It is no
//! server-side apply, because an apply leaves fields that another manager owns, too, and `managedFields` may be written by
//! everyone who may edit the object.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::core::object::HasStatus;
use kube::core::{NamespaceResourceScope, Request, Status};
use kube::{Client, CustomResourceExt, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use sluice_api::{FIELD_MANAGER, Pipeline, Promotion, lenient};
use sluice_delivery::FairQueue;
use tokio::sync::mpsc;

use crate::record::unwritten_status::UNDECLARED;
use crate::state::Input;
use crate::state::cached::HasHookFields;
use crate::state::status_queue::{StatusOwner, StatusWrite, StoredObject, StoredVersion, WriteOutcome};
use crate::timeout::{API_CALL_TIMEOUT, within};

/// How many statuses are written at the same time: enough to keep an API server busy.
const MAX_CONCURRENT_WRITES: usize = 32;

/// Sends status writes.
pub struct StatusWriter {
    client: Client,
    tx: mpsc::UnboundedSender<Input>,
    queue: Arc<FairQueue>,
    pipeline_fields: Arc<[String]>,
    promotion_fields: Arc<[String]>,
}

impl StatusWriter {
    /// Reports the end of each write to the loop.
    pub fn new(client: Client, tx: mpsc::UnboundedSender<Input>) -> Self {
        Self {
            client,
            tx,
            queue: FairQueue::new(MAX_CONCURRENT_WRITES),
            pipeline_fields: written_fields::<Pipeline>().into(),
            promotion_fields: written_fields::<Promotion>().into(),
        }
    }

    /// Sends a write in a task of its own.
    pub fn send(&self, write: StatusWrite) {
        let (client, tx, queue) = (self.client.clone(), self.tx.clone(), self.queue.clone());
        let fields = match &write.owner {
            StatusOwner::Pipeline(_) => self.pipeline_fields.clone(),
            StatusOwner::Promotion(..) => self.promotion_fields.clone(),
        };
        tokio::spawn(async move {
            tokio::time::sleep(write.pause).await;
            let (owner, number) = (write.owner.clone(), write.number);
            let _slot = queue.acquire(&owner.pipeline().to_string()).await;
            let namespace = &*owner.pipeline().namespace;
            // Boxed: a task that waits for its slot reserves no memory for the rest.
            let outcome = match &owner {
                StatusOwner::Pipeline(key) => {
                    let object = StatusOf { client, namespace, name: &key.name, fields: &fields };
                    Box::pin(put(write, object, StoredObject::Pipeline)).await
                }
                StatusOwner::Promotion(_, name) => {
                    let object = StatusOf { client, namespace, name, fields: &fields };
                    Box::pin(put(write, object, StoredObject::Promotion)).await
                }
            };
            // The loop ends only with the process.
            let _ = tx.send(Input::StatusWritten(owner, number, outcome));
        });
    }
}

/// The status of an object at the API server.
struct StatusOf<'a> {
    client: Client,
    namespace: &'a str,
    name: &'a str,
    /// The fields that are written.
    fields: &'a [String],
}

/// Returns the fields of a kind's status that hook calls do not write.
fn written_fields<K>() -> Vec<String>
where
    K: CustomResourceExt + HasStatus<Status: HasHookFields>,
{
    let schemas = K::crd().spec.versions.into_iter().filter_map(|version| version.schema?.open_api_v3_schema);
    let statuses = schemas.filter_map(|schema| schema.properties?.remove("status")?.properties);
    let fields = statuses.flat_map(BTreeMap::into_keys);
    fields.filter(|field| !K::Status::HOOK_FIELDS.contains(&&**field)).collect()
}

/// How many times a write is sent if edits of the object are in its way. A pause would only give another edit time.
const MAX_TRIES: u32 = 20;

/// The message of the API server about a JSON patch that does not apply, for example because a test in it fails. A status that
/// the schema or a policy does not allow is refused with the same code and a cause. Source: `NewGenericServerResponse` in
/// k8s.io/apimachinery/pkg/api/errors, and its caller in k8s.io/apiserver/pkg/endpoints/handlers/patch.go.
const PATCH_DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

/// What the API server has to find for a write to be stored.
enum Precondition {
    /// An object of this version, whichever it has if it is 0.
    Version { version: u64, has_status: bool },
    /// An object with these parts.
    Parts(StoredParts),
}

/// The parts of an object that a status depends on, as the API server wrote them.
#[derive(Deserialize)]
struct StoredParts {
    spec: Box<RawValue>,
    status: Option<Box<RawValue>>,
    metadata: StoredMetadata,
}

#[derive(Deserialize)]
struct StoredMetadata {
    uid: Box<RawValue>,
}

impl Precondition {
    fn has_status(&self) -> bool {
        match self {
            Precondition::Version { has_status, .. } => *has_status,
            Precondition::Parts(parts) => parts.status.is_some(),
        }
    }
}

/// Sends a write until it is stored, or its outcome is known.
async fn put<K>(
    write: StatusWrite,
    object: StatusOf<'_>,
    stored_object: fn(K) -> StoredObject,
) -> WriteOutcome
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + HasStatus<Status: DeserializeOwned + HasHookFields>
        + DeserializeOwned
        + Clone
        + Debug,
{
    let mut is_over_edit = false;
    // Without a status at the version of the write, there is not even one of hook calls.
    let has_status = write.version == 0 || !write.may_be_stored.is_empty();
    let mut precondition = Precondition::Version { version: write.version, has_status };
    if write.version == 0 && write.uid.is_some() {
        // The status replaces any other.
        match read_stored(&write, &object, |_| true, stored_object).await {
            ControlFlow::Continue(stored) => {
                (precondition, is_over_edit) = (Precondition::Parts(stored), true)
            }
            ControlFlow::Break(outcome) => return outcome,
        }
    }
    for _ in 0..MAX_TRIES {
        if write.fencing_token.check().is_err() {
            return WriteOutcome::Withheld;
        }
        let error = match object.patch::<K>(&precondition, &write.status).await {
            Ok(version) => return WriteOutcome::Stored(StoredVersion { version, is_over_edit }),
            Err(error) => error,
        };
        match &error {
            kube::Error::Api(e) if e.code == 404 => return WriteOutcome::Gone,
            kube::Error::Api(e) if e.code == 409 => {}
            kube::Error::Api(e) if e.code == 422 && e.message == PATCH_DOES_NOT_APPLY => {}
            _ => return WriteOutcome::Failed(error),
        }
        let is_expected = |stored: &K| is_expected(&write, stored.status());
        let stored = match read_stored(&write, &object, is_expected, stored_object).await {
            ControlFlow::Continue(stored) => stored,
            ControlFlow::Break(outcome) => return outcome,
        };
        // Its status has not changed: another part of the object was edited.
        (precondition, is_over_edit) = (Precondition::Parts(stored), true);
    }
    WriteOutcome::Failed(edited_all_the_time())
}

/// The error of a write that found an edit each time.
fn edited_all_the_time() -> kube::Error {
    kube::Error::Api(Status::failure("the object is edited all the time", "Conflict").with_code(409).boxed())
}

/// Returns the parts of the object that is stored, or the outcome of the write if it must not replace the status of that one.
async fn read_stored<K>(
    write: &StatusWrite,
    object: &StatusOf<'_>,
    may_be_replaced: impl FnOnce(&K) -> bool,
    stored_object: fn(K) -> StoredObject,
) -> ControlFlow<WriteOutcome, StoredParts>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let (stored, parts) = match object.get::<K>().await {
        Ok(Some(read)) => read,
        Ok(None) => return ControlFlow::Break(WriteOutcome::Gone),
        Err(error) => return ControlFlow::Break(WriteOutcome::Failed(error)),
    };
    // The object was deleted and created again: this status is not about the new one.
    if write.uid.is_some() && write.uid != stored.meta().uid {
        return ControlFlow::Break(WriteOutcome::Gone);
    }
    let may_be_replaced = may_be_replaced(&stored);
    let stored = stored_object(stored);
    if !may_be_replaced || write.is_overruled(&stored) {
        return ControlFlow::Break(WriteOutcome::Conflict(Box::new(stored)));
    }
    ControlFlow::Continue(parts)
}

/// Whether a stored status, apart from the fields that hook calls write, is one that this replica has written, or may
/// have written.
fn is_expected<S: DeserializeOwned + HasHookFields>(write: &StatusWrite, stored: Option<&S>) -> bool {
    let Some(mut stored) = stored.cloned() else { return true };
    stored.take_hook_fields();
    let mut expected = write.may_be_stored.iter().chain([&write.status]);
    stored == S::default()
        || expected.any(|text| serde_json::from_str::<S>(text.get()).is_ok_and(|status| status == stored))
}

/// An operation of a JSON patch.
#[derive(Debug, Serialize)]
struct Operation<'a> {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
}

fn operation<'a>(op: &'static str, path: &str, value: &'a RawValue) -> Operation<'a> {
    Operation { op, path: path.into(), value: Some(value) }
}

/// Returns the operations that the API server refuses if the object has other parts.
fn parts_operations(parts: &StoredParts) -> Vec<Operation<'_>> {
    let status = parts.status.as_deref().map(|status| ("/status", status));
    let parts = [("/metadata/uid", &*parts.metadata.uid), ("/spec", &*parts.spec)].into_iter().chain(status);
    parts.map(|(path, value)| operation("test", path, value)).collect()
}

/// Returns the operations that write a status to an object that has none. The API server refuses them if it has one.
fn first_operations(status: &RawValue) -> [Operation<'_>; 2] {
    [operation("test", "/status", RawValue::NULL), operation("add", "/status", status)]
}

/// Returns the operations that give these fields of a status their values, and remove those that have none. The API server
/// refuses them if the object has no status.
fn field_operations<'a>(fields: &[String], status: &'a RawValue) -> serde_json::Result<Vec<Operation<'a>>> {
    let values: BTreeMap<&str, &RawValue> = serde_json::from_str(status.get())?;
    let mut operations = Vec::new();
    for field in fields {
        let path = format!("/status/{field}");
        match values.get(&**field) {
            Some(value) => operations.push(operation("add", &path, value)),
            // Only what exists can be removed.
            None => {
                operations.push(operation("add", &path, RawValue::NULL));
                operations.push(Operation { op: "remove", path, value: None });
            }
        }
    }
    Ok(operations)
}

/// The part of the answer that is read.
#[derive(Debug, Deserialize)]
struct WrittenObject {
    metadata: WrittenMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

/// Returns the error of a patch without the object that it would have made, which the API server quotes before the cause.
fn without_object(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(mut status) if status.code == 422 => {
            if let Some(at) = status.message.rfind(UNDECLARED) {
                status.message = status.message.split_off(at);
            }
            status.details = None;
            kube::Error::Api(status)
        }
        other => other,
    }
}

/// Asks for the metadata of the written object alone, which has its version.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);
const JSON_PATCH: HeaderValue = HeaderValue::from_static("application/json-patch+json");

impl StatusOf<'_> {
    /// Reads the object, and its status leniently; `None` if it does not exist.
    async fn get<K>(&self) -> kube::Result<Option<(K, StoredParts)>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
    {
        let read = lenient::get_text::<K>(&self.client, self.namespace, self.name);
        let Some(text) = within(API_CALL_TIMEOUT, read).await? else { return Ok(None) };
        let read = lenient::read(&text).and_then(|read| Ok((read.object, serde_json::from_str(&text)?)));
        read.map(Some).map_err(kube::Error::SerdeError)
    }

    /// Writes the status if the object meets the precondition. Returns the new version.
    async fn patch<K>(&self, precondition: &Precondition, status: &RawValue) -> kube::Result<u64>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let error = kube::Error::SerdeError;
        let version_text;
        let mut operations = match precondition {
            Precondition::Version { version: 0, .. } => Vec::new(),
            // Another version is a conflict.
            Precondition::Version { version, .. } => {
                version_text = to_raw_value(&version.to_string()).map_err(error)?;
                vec![operation("add", "/metadata/resourceVersion", &version_text)]
            }
            Precondition::Parts(parts) => parts_operations(parts),
        };
        match precondition.has_status() {
            true => operations.extend(field_operations(self.fields, status).map_err(error)?),
            false => operations.extend(first_operations(status)),
        }
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let mut request = Request::new(K::url_path(&(), Some(self.namespace)))
            .patch_subresource("status", self.name, &params, &Patch::Merge(operations))
            .map_err(kube::Error::BuildRequest)?;
        // The type for JSON patches in kube keeps a status as a tree, which takes ten times its memory.
        request.headers_mut().insert(CONTENT_TYPE, JSON_PATCH);
        request.headers_mut().insert(ACCEPT, METADATA);
        let written = within(API_CALL_TIMEOUT, self.client.request::<WrittenObject>(request)).await;
        let written = written.map_err(without_object)?;
        Ok(written.metadata.resource_version.parse().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_is_set_or_removed_except_those_of_hook_calls() {
        for (fields, hook_fields) in [
            (written_fields::<Pipeline>(), ["reports", "forgeCalled"]),
            (written_fields::<Promotion>(), ["callback", "keyApproval"]),
        ] {
            assert!(
                fields.len() > 5 && !fields.iter().any(|field| hook_fields.contains(&&**field)),
                "{fields:?}"
            );
        }
        let fields = ["commit", "phase"].map(String::from);
        let status = to_raw_value(&json!({"phase": "Promoting", "callback": 1})).unwrap();
        let sent = serde_json::to_value(field_operations(&fields, &status).unwrap()).unwrap();
        let expected = json!([
            {"op": "add", "path": "/status/commit", "value": null}, {"op": "remove", "path": "/status/commit"},
            {"op": "add", "path": "/status/phase", "value": "Promoting"},
        ]);
        assert_eq!(sent, expected);
    }
}
