//! Asks a cluster for single answers. A cluster may be hostile, so each answer is limited in size and in time, and
//! only a few large ones are received at the same time.

use std::sync::Arc;

use futures::{AsyncBufReadExt, pin_mut};
use http::Request;
use kube::Client;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::kubeconfig_secrets::KubeconfigSecrets;
use super::large_objects::piece;
use super::limit;
use super::object_text::ObjectBuffer;
use super::observed_memory::ObservedMemory;
use super::too_large::{MAX_ANSWER_BYTES, TooLarge};
use crate::timeout::{API_CALL_TIMEOUT, timed_out, within};
use sluice_core::fleet::ClusterKey;

/// A client of a cluster, with the slots for its large answers.
#[derive(Clone)]
pub struct ClusterClient {
    client: Client,
    cluster: ClusterKey,
    memory: Arc<ObservedMemory>,
    secrets: KubeconfigSecrets,
}

impl ClusterClient {
    /// Returns a client of this cluster. `memory` has the slots of all clusters. No error shows the secrets.
    pub fn new(
        client: Client,
        cluster: ClusterKey,
        memory: Arc<ObservedMemory>,
        secrets: KubeconfigSecrets,
    ) -> Self {
        Self { client, cluster, memory, secrets }
    }

    /// Reads the answer to a GET request as JSON.
    ///
    /// # Errors
    /// When the answer does not arrive within [`API_CALL_TIMEOUT`], or, if it is large, within this time after it has
    /// a slot. When the answer is too large, or is not the expected JSON.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> kube::Result<T> {
        let deadline = Instant::now() + API_CALL_TIMEOUT;
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let body = within(API_CALL_TIMEOUT, self.client.request_stream(request)).await;
        let body = body.map_err(|error| self.secrets.hide_in(error))?;
        pin_mut!(body);
        let mut text = ObjectBuffer::default();
        loop {
            let chunk = timeout_at(text.deadline().unwrap_or(deadline), body.fill_buf()).await;
            let chunk = chunk.map_err(|_| timed_out(API_CALL_TIMEOUT))?.map_err(kube::Error::ReadEvents)?;
            let chunk = piece(chunk);
            if chunk.is_empty() {
                break;
            }
            let read = chunk.len();
            if text.len() + read > MAX_ANSWER_BYTES {
                return Err(TooLarge::Answer.into());
            }
            text.add(chunk)?;
            body.consume_unpin(read);
            text.wait_until_permitted(async { Some(self.memory.begin_large_object(&self.cluster).await) })
                .await;
            // A small compressed answer may have become a very long one.
            tokio::task::yield_now().await;
        }
        let text = text.text().whole()?;
        if limit::count_values(text) > limit::MAX_ANSWER_VALUES {
            return Err(TooLarge::Answer.into());
        }
        serde_json::from_slice(text).map_err(kube::Error::SerdeError)
    }
}
