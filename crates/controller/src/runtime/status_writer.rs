//! Sends status writes. Each write names the version of the object that its status was composed for: a status that
//! someone else has written since is never replaced unnoticed, however late the write arrives.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::{ACCEPT, HeaderValue};
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::core::object::HasStatus;
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sluice_api::FIELD_MANAGER;
use sluice_api::lenient;
use sluice_delivery::FairQueue;
use tokio::sync::mpsc;

use crate::resource_version::version_of;
use crate::state::Input;
use crate::state::cached::HasHookFields;
use crate::state::status_queue::{StatusOwner, StatusWrite, StoredObject, StoredVersion, WriteOutcome};
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// How many statuses are written at the same time: enough to keep an API server busy.
const MAX_CONCURRENT_WRITES: usize = 32;

/// Sends status writes.
pub struct StatusWriter {
    client: Client,
    tx: mpsc::UnboundedSender<Input>,
    queue: Arc<FairQueue>,
}

impl StatusWriter {
    /// Reports the end of each write to the loop.
    pub fn new(client: Client, tx: mpsc::UnboundedSender<Input>) -> Self {
        Self { client, tx, queue: FairQueue::new(MAX_CONCURRENT_WRITES) }
    }

    /// Sends a write in a task of its own.
    pub fn send(&self, write: StatusWrite) {
        let (client, tx, queue) = (self.client.clone(), self.tx.clone(), self.queue.clone());
        tokio::spawn(async move {
            tokio::time::sleep(write.pause).await;
            let (owner, number) = (write.owner.clone(), write.number);
            let _slot = queue.acquire(&owner.pipeline().to_string()).await;
            // Boxed: a task that waits for its slot reserves no memory for the rest.
            let outcome = match &owner {
                StatusOwner::Pipeline(key) => {
                    Box::pin(put(write, client, &key.namespace, &key.name, StoredObject::Pipeline)).await
                }
                StatusOwner::Promotion(key, name) => {
                    Box::pin(put(write, client, &key.namespace, name, StoredObject::Promotion)).await
                }
            };
            // The loop ends only with the process.
            let _ = tx.send(Input::StatusWritten(owner, number, outcome));
        });
    }
}

/// How often a write is sent again because someone has edited the object.
const MAX_TRIES: u32 = 5;

/// Sends a write until it is stored, or its outcome is known.
async fn put<K>(
    mut write: StatusWrite,
    client: Client,
    namespace: &str,
    name: &str,
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
    if write.version == 0 && write.uid.is_some() {
        match stored_version(&write, &client, namespace, name, stored_object).await {
            ControlFlow::Continue(version) => (write.version, is_over_edit) = (version, true),
            ControlFlow::Break(outcome) => return outcome,
        }
    }
    for _ in 0..MAX_TRIES {
        if write.fencing_token.check().is_err() {
            return WriteOutcome::Withheld;
        }
        match patch::<K>(client.clone(), namespace, name, write.version, &write.status).await {
            Ok(version) => return WriteOutcome::Stored(StoredVersion { version, is_over_edit }),
            Err(kube::Error::Api(e)) if e.code == 404 => return WriteOutcome::Gone,
            Err(kube::Error::Api(e)) if e.code == 409 => {}
            // The schema does not allow what is stored: another definition of the kind has let it in.
            Err(kube::Error::Api(e)) if e.message.contains(UNTYPED) && write.version > 0 => {
                match replace::<K>(&client, namespace, name, write.version, &write.status).await {
                    Ok(version) => return WriteOutcome::Stored(StoredVersion { version, is_over_edit }),
                    Err(kube::Error::Api(e)) if e.code == 409 => {}
                    Err(error) => return WriteOutcome::Failed(error),
                }
            }
            Err(error) => return WriteOutcome::Failed(error),
        }
        let stored = match within(API_CALL_TIMEOUT, get::<K>(&client, namespace, name)).await {
            Ok(None) => return WriteOutcome::Gone,
            Ok(Some(object)) => object,
            Err(error) => return WriteOutcome::Failed(error),
        };
        // The object was deleted and created again: this status is not about the new one.
        if write.uid.is_some() && write.uid != stored.meta().uid {
            return WriteOutcome::Gone;
        }
        let (is_expected, version) = (is_expected(&write, stored.status()), version_of(stored.meta()));
        let stored = stored_object(stored);
        if !is_expected || write.is_overruled(&stored) {
            return WriteOutcome::Conflict(Box::new(stored));
        }
        // Its status has not changed: another part of the object was edited.
        (write.version, is_over_edit) = (version, true);
    }
    WriteOutcome::Failed(kube::Error::Service("the object is edited all the time".into()))
}

/// Returns the version of the object that a write without a version is for, or the outcome of the write. Without a version the
/// API server accepts the write for any object of this name: it does not compare a uid in an applied status.
async fn stored_version<K>(
    write: &StatusWrite,
    client: &Client,
    namespace: &str,
    name: &str,
    stored_object: fn(K) -> StoredObject,
) -> ControlFlow<WriteOutcome, u64>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    match within(API_CALL_TIMEOUT, get::<K>(client, namespace, name)).await {
        Ok(Some(stored)) if write.uid == stored.meta().uid => {
            let version = version_of(stored.meta());
            let stored = stored_object(stored);
            match write.is_overruled(&stored) {
                true => ControlFlow::Break(WriteOutcome::Conflict(Box::new(stored))),
                false => ControlFlow::Continue(version),
            }
        }
        Ok(_) => ControlFlow::Break(WriteOutcome::Gone),
        Err(error) => ControlFlow::Break(WriteOutcome::Failed(error)),
    }
}

/// Whether a stored status, apart from the fields that hook calls write, is one that this replica has written, or may
/// have written.
fn is_expected<S: DeserializeOwned + HasHookFields>(write: &StatusWrite, stored: Option<&S>) -> bool {
    let Some(mut stored) = stored.cloned() else { return true };
    stored.take_hook_fields();
    let mut expected = write.may_be_stored.iter().chain([&write.status]);
    expected.any(|text| serde_json::from_str::<S>(text.get()).is_ok_and(|status| status == stored))
}

/// The body of a write: the part of the object that Sluice applies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedObject<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: AppliedMetadata<'a>,
    status: &'a RawValue,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    /// The API server rejects the write if the object has another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
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

/// Escapes the characters in JSON that YAML rejects (yaml.org/spec/1.2.2, "c-printable"). The API server parses an
/// applied object as YAML, and messages of workloads and receivers may have any character. JSON has these only in
/// strings.
fn escape_for_yaml(json: Vec<u8>) -> Vec<u8> {
    let is_rejected = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let Some(text) = std::str::from_utf8(&json).ok().filter(|text| text.contains(is_rejected)) else {
        return json;
    };
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        match is_rejected(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped.into_bytes()
}

/// What the API server says of an apply to an object that its schema does not allow (`Apply` in
/// managedfields/internal/structuredmerge.go of apimachinery).
const UNTYPED: &str = "failed to create typed live object";

/// What the API server says of an apply with a field that the definition of the kind does not have (`Reconcile` in
/// typed/validate.go of structured-merge-diff).
const UNDECLARED: &str = "field not declared in schema";

/// Returns why a status cannot be written, and what to do if the definitions are older than Sluice.
pub fn write_error_message(error: &kube::Error) -> String {
    let message = api_error_message(error);
    match error {
        kube::Error::Api(e) if e.message.contains(UNDECLARED) => format!(
            "{message}: the CRDs are of an older version of Sluice; apply those of this version: \
             sluice crds | kubectl apply --server-side -f -"
        ),
        _ => message,
    }
}

/// Replaces the whole status of an object of this version, without an apply. Returns the new version.
async fn replace<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    version: u64,
    status: &RawValue,
) -> kube::Result<u64>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let operations = json!([
        {"op": "add", "path": "/metadata/resourceVersion", "value": version.to_string()},
        {"op": "add", "path": "/status", "value": status},
    ]);
    let operations = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    send::<K, ()>(client, (namespace, name), &PatchParams::default(), &Patch::Json(operations)).await
}

/// Sends a patch of a status, and returns the new version of the object.
async fn send<K, P>(
    client: &Client,
    (namespace, name): (&str, &str),
    params: &PatchParams,
    patch: &Patch<P>,
) -> kube::Result<u64>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    P: Serialize + Debug,
{
    let mut request = Request::new(K::url_path(&(), Some(namespace)))
        .patch_subresource("status", name, params, patch)
        .map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, METADATA);
    let request = request.map(escape_for_yaml);
    let written = within(API_CALL_TIMEOUT, client.request::<WrittenObject>(request)).await?;
    Ok(written.metadata.resource_version.parse().unwrap_or(0))
}

/// Asks for the metadata of the written object alone, which has its version.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);

/// Reads an object, and its status leniently; `None` if it does not exist.
async fn get<K>(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    Ok(lenient::get(client, namespace, name).await?.map(|read| read.object))
}

async fn patch<K>(
    client: Client,
    namespace: &str,
    name: &str,
    version: u64,
    status: &RawValue,
) -> kube::Result<u64>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    let resource_version = (version > 0).then(|| version.to_string());
    let metadata = AppliedMetadata { name, namespace, resource_version };
    let body = AppliedObject { api_version: &api_version, kind: &kind, metadata, status };
    // To check for unknown fields, the API server would parse the status a second time.
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::apply(FIELD_MANAGER).force()
    };
    send::<K, _>(&client, (namespace, name), &params, &Patch::Apply(&body)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_yaml_rejects_are_escaped_and_read_the_same() {
        let message = "boom \u{7f} end â\u{80}\u{99} \u{85} \u{feff}\u{fffe} \u{1b} \u{2028} 🦀 \\u007f \" ä";
        let value = serde_json::json!({"message": message, "\u{9b}": 1});
        let escaped = escape_for_yaml(serde_json::to_vec(&value).unwrap());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&escaped).unwrap(), value);
        // c-printable, without the byte order mark.
        let is_accepted = |c: char| {
            matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
                && c != '\u{feff}'
        };
        let text = String::from_utf8(escaped).unwrap();
        assert!(text.chars().all(is_accepted), "{text:?}");
        let plain = serde_json::to_vec("unchanged").unwrap();
        assert_eq!(escape_for_yaml(plain.clone()), plain);
    }
}
