//! What a call leaves on the API server. Any replica takes any call: it reads the object as it stands
//! now, changes a part of the status that nobody else writes, and only if nobody was faster. The replica
//! that looks after the pipeline learns of it by its watch, and a restart by its list.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::Pipeline;

use super::event::Event;
use super::keys::Unavailable;
use super::report;
use crate::intake::PipelineKey;

/// Whom the parts belong to that calls write: not to the loop, which writes all others.
const MANAGER: &str = "sluice-hook";
/// How often a write is tried that somebody was faster than.
const TRIES: usize = 8;
/// How long reading and writing may take. Flux gives a call 15 seconds by default, tries and pauses
/// included.
const DEADLINE: Duration = Duration::from_secs(3);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// It stands now.
    Written,
    /// There was nothing to change.
    AsBefore,
    /// The object is not there.
    Gone,
}

/// The way to the API server.
#[derive(Clone)]
pub struct Store {
    pub(super) client: Client,
}

impl Store {
    /// One that writes with this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Keeps what an event reports of targets that cannot be read, if it is newer than what stands.
    ///
    /// # Errors
    /// When it cannot be kept now.
    pub async fn report(
        &self,
        pipeline: &PipelineKey,
        environment: &str,
        event: &Event,
    ) -> Result<Stands, Unavailable> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &pipeline.namespace);
        self.amend(&api, &pipeline.name, |object: &Pipeline| {
            let stand = object.status.as_ref().map(|s| &s.reports);
            let mut reports = serde_json::Map::new();
            for key in report::keys(object, environment, event) {
                if let Some(after) = report::after(stand.and_then(|s| s.get(&key)), event) {
                    reports.insert(key, json!(after));
                }
            }
            if reports.is_empty() {
                return None;
            }
            let stale = stand.map(|s| report::stale(object, s)).unwrap_or_default();
            reports.extend(stale.into_iter().map(|key| (key, Value::Null)));
            Some(json!({"reports": reports}))
        })
        .await
    }

    /// Merges into the status of an object what `change` makes of the object as it stands.
    async fn amend<K>(
        &self,
        api: &Api<K>,
        name: &str,
        change: impl Fn(&K) -> Option<Value>,
    ) -> Result<Stands, Unavailable>
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    {
        let trying = async {
            for _ in 0..TRIES {
                let Some(object) = api.get_opt(name).await? else { return Ok(Some(Stands::Gone)) };
                let Some(status) = change(&object) else { return Ok(Some(Stands::AsBefore)) };
                let metadata =
                    json!({"uid": object.meta().uid, "resourceVersion": object.meta().resource_version});
                let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
                let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
                match api.patch_status(name, &params, &patch).await {
                    Ok(_) => return Ok(Some(Stands::Written)),
                    // Somebody was faster: what they wrote counts for what follows.
                    Err(kube::Error::Api(e)) if e.code == 409 => {}
                    Err(kube::Error::Api(e)) if e.code == 404 => return Ok(Some(Stands::Gone)),
                    Err(error) => return Err(error),
                }
            }
            Ok(None)
        };
        match tokio::time::timeout(DEADLINE, trying).await {
            Ok(Ok(Some(stands))) => Ok(stands),
            Ok(Err(error)) => {
                tracing::warn!(kind = %std::any::type_name::<K>(), name, %error, "cannot keep what a call says");
                Err(Unavailable)
            }
            Ok(Ok(None)) | Err(_) => Err(Unavailable),
        }
    }
}
