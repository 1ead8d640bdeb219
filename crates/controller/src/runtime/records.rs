//! Creates, reads and deletes Promotions.

use std::sync::Arc;

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::promotion::Promotion;
use sluice_delivery::{FairQueue, FencingToken, fault};
use tokio::sync::mpsc;

use crate::pipeline_key::PipelineKey;
use crate::record;
use crate::state::Input;
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// How many Promotions are created, read and deleted at the same time. A pipeline with thousands of targets must not take
/// all requests that an API server answers at a time.
const MAX_REQUESTS: usize = 32;

/// Creates, reads and deletes Promotions, each in a task of its own.
pub(super) struct Records {
    client: Client,
    /// Requests wait here, fair by namespace.
    queue: Arc<FairQueue>,
    tx: mpsc::UnboundedSender<Input>,
}

impl Records {
    pub(super) fn new(client: Client, tx: mpsc::UnboundedSender<Input>) -> Self {
        Self { client, queue: FairQueue::new(MAX_REQUESTS), tx }
    }

    fn api(&self, key: &PipelineKey) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// Creates a Promotion, and reports the end.
    pub(super) fn create(&self, key: PipelineKey, object: Promotion, fencing_token: FencingToken) {
        let (api, tx, queue) = (self.api(&key), self.tx.clone(), self.queue.clone());
        tokio::spawn(async move {
            let _slot = queue.acquire(&key.to_string()).await;
            fault::point("before-intent");
            // Another replica holds the shard, and the state has forgotten this creation.
            if fencing_token.check().is_err() {
                return;
            }
            let created = record::create(&api, FIELD_MANAGER, &object).await;
            fault::point("after-intent");
            let created = created.map(|created| created.map(Box::new));
            let _ = tx.send(Input::PromotionCreated(key, object.name_any(), created));
        });
    }

    /// Reads a Promotion that an earlier try has created, and reports it.
    pub(super) fn read(&self, key: PipelineKey, name: String) {
        let (api, tx, queue) = (self.api(&key), self.tx.clone(), self.queue.clone());
        tokio::spawn(async move {
            let _slot = queue.acquire(&key.to_string()).await;
            let found = within(API_CALL_TIMEOUT, api.get(&name)).await.map(|found| Some(Box::new(found)));
            let _ = tx.send(Input::PromotionCreated(key, name, found));
        });
    }

    /// Deletes the Promotion with this uid. Another one of the same name is kept.
    pub(super) fn delete(
        &self,
        key: PipelineKey,
        name: String,
        uid: Option<String>,
        fencing_token: FencingToken,
    ) {
        let (api, queue) = (self.api(&key), self.queue.clone());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        tokio::spawn(async move {
            let _slot = queue.acquire(&key.to_string()).await;
            if fencing_token.check().is_ok()
                && let Err(error) = within(API_CALL_TIMEOUT, api.delete(&name, &params)).await
            {
                let error = api_error_message(&error);
                tracing::warn!(pipeline = %key, promotion = name, error, "cannot delete an old promotion");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::promotion::PromotionSpec;

    use super::*;

    #[tokio::test]
    async fn creations_of_a_namespace_leave_slots_for_another() {
        // A hub that accepts connections and never answers.
        let hub = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = kube::Config::new(format!("http://{}", hub.local_addr().unwrap()).parse().unwrap());
        let records = Records::new(Client::try_from(config).unwrap(), mpsc::unbounded_channel().0);
        let create = |namespace: &str, n: usize| {
            let key = PipelineKey { namespace: namespace.into(), name: "podinfo".into() };
            let object = Promotion::new(&format!("podinfo-{n}"), PromotionSpec::default());
            records.create(key, object, FencingToken::default());
        };
        (0..500).for_each(|n| create("busy", n));
        create("quiet", 1);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let held = |namespace: &str| records.queue.held_by_namespace(namespace);
        assert_eq!((held("busy"), held("quiet")), (MAX_REQUESTS * 3 / 4, 1));
    }
}
