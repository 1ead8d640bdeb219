//! Writes statuses, one at a time for each object and the newest one last: a status that was
//! overtaken while another was being written is never sent. What fails is tried again until it
//! stands or its object is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_api::{FIELD_MANAGER, Pipeline, Promotion};
use tokio::sync::{Semaphore, mpsc};

use crate::intake::{Input, PipelineKey};

/// The object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatusOf {
    /// A pipeline.
    Pipeline(PipelineKey),
    /// A promotion of a pipeline, by its name.
    Promotion(PipelineKey, String),
}

impl StatusOf {
    /// The kind, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        match self {
            StatusOf::Pipeline(_) => "Pipeline",
            StatusOf::Promotion(..) => "Promotion",
        }
    }
}

/// How a write ended.
#[derive(Debug)]
pub enum Written {
    /// It stands, under this resource version.
    Stands(String),
    /// The object is gone.
    Gone,
    /// It failed and is to be tried again.
    Failed(kube::Error),
}

/// The queue of statuses to be written.
pub struct Writer {
    client: Client,
    tell: mpsc::UnboundedSender<Input>,
    permits: Arc<Semaphore>,
    slots: HashMap<StatusOf, Slot>,
}

/// A status as it is sent. Thousands are kept, and as a tree each would take ten times the room.
pub type Spelled = Arc<RawValue>;

/// Spells a status.
///
/// # Errors
/// When it holds what JSON has no words for.
pub fn spell(status: &impl Serialize) -> serde_json::Result<Spelled> {
    serde_json::value::to_raw_value(status).map(Spelled::from)
}

struct Slot {
    next: Option<Spelled>,
    writing: Spelled,
    failures: u32,
}

/// How many statuses are written side by side: enough to keep an API server busy.
const CONCURRENT: usize = 32;
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

impl Writer {
    /// A writer that tells how each write ended.
    pub fn new(client: Client, tell: mpsc::UnboundedSender<Input>) -> Self {
        Self { client, tell, permits: Arc::new(Semaphore::new(CONCURRENT)), slots: HashMap::new() }
    }

    /// Has a status written, in place of any earlier one that has not been sent yet.
    pub fn write(&mut self, object: StatusOf, status: Spelled) {
        if let Some(slot) = self.slots.get_mut(&object) {
            slot.next = Some(status);
            return;
        }
        self.send(&object, status.clone(), Duration::ZERO);
        self.slots.insert(object, Slot { next: None, writing: status, failures: 0 });
    }

    /// Whether the status of an object is being written.
    pub fn is_writing(&self, object: &StatusOf) -> bool {
        self.slots.contains_key(object)
    }

    /// Takes note of how a write ended, and sends what has come up in the meantime.
    pub fn ended(&mut self, object: &StatusOf, how: &Written) {
        let Some(slot) = self.slots.get_mut(object) else { return };
        let (status, pause) = match how {
            Written::Gone => (None, Duration::ZERO),
            Written::Stands(_) => {
                slot.failures = 0;
                (slot.next.take(), Duration::ZERO)
            }
            Written::Failed(_) => {
                slot.failures += 1;
                let pause = Duration::from_millis(250 * 2u64.pow(slot.failures.min(8)));
                (Some(slot.next.take().unwrap_or_else(|| slot.writing.clone())), pause.min(LONGEST_PAUSE))
            }
        };
        match status {
            Some(status) => {
                slot.writing = status.clone();
                self.send(object, status, pause);
            }
            None => {
                self.slots.remove(object);
            }
        }
    }

    fn send(&self, object: &StatusOf, status: Spelled, pause: Duration) {
        let (client, tell, permits, object) =
            (self.client.clone(), self.tell.clone(), self.permits.clone(), object.clone());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _permit = permits.acquire().await;
            // Boxed: a task that waits for its permit takes no room for what comes after.
            let result = match &object {
                StatusOf::Pipeline(key) => {
                    Box::pin(patch::<Pipeline>(client, &key.namespace, &key.name, &status)).await
                }
                StatusOf::Promotion(key, name) => {
                    Box::pin(patch::<Promotion>(client, &key.namespace, name, &status)).await
                }
            };
            let how = match result {
                Ok(version) => Written::Stands(version),
                Err(kube::Error::Api(e)) if e.code == 404 => Written::Gone,
                Err(error) => Written::Failed(error),
            };
            // The receiver ends only with the process.
            let _ = tell.send(Input::Written(object, how));
        });
    }
}

/// How long a write may take before it counts as failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// What is sent: the object as far as it is ours.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Name<'a>,
    status: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct Name<'a> {
    name: &'a str,
    namespace: &'a str,
}

/// What is read of the answer.
#[derive(Debug, Deserialize)]
struct Stands {
    metadata: Version,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Of the object that stands, only what says which version it is.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);

async fn patch<K>(client: Client, namespace: &str, name: &str, status: &RawValue) -> kube::Result<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    let metadata = Name { name, namespace };
    let body = Body { api_version: &api_version, kind: &kind, metadata, status };
    // To look for fields that it does not know, the server would read the status a second time.
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::apply(FIELD_MANAGER).force()
    };
    let url = K::url_path(&(), Some(namespace));
    let mut request = Request::new(url)
        .patch_subresource("status", name, &params, &Patch::Apply(&body))
        .map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, METADATA);
    match tokio::time::timeout(DEADLINE, client.request::<Stands>(request)).await {
        Ok(result) => result.map(|object| object.metadata.resource_version),
        Err(_) => Err(kube::Error::Service("the API server did not answer in time".into())),
    }
}
