//! Creates, reads and deletes Promotions.

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::promotion::Promotion;
use sluice_delivery::{FencingToken, fault};
use tokio::sync::mpsc;

use crate::key::PipelineKey;
use crate::record;
use crate::state::Input;
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// Creates, reads and deletes Promotions, each in a task of its own.
pub(super) struct Records {
    client: Client,
    tx: mpsc::UnboundedSender<Input>,
}

impl Records {
    pub(super) fn new(client: Client, tx: mpsc::UnboundedSender<Input>) -> Self {
        Self { client, tx }
    }

    fn api(&self, key: &PipelineKey) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// Creates a Promotion, and reports the end.
    pub(super) fn create(&self, key: PipelineKey, object: Promotion, fencing_token: FencingToken) {
        let (api, tx) = (self.api(&key), self.tx.clone());
        tokio::spawn(async move {
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
        let (api, tx) = (self.api(&key), self.tx.clone());
        tokio::spawn(async move {
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
        let api = self.api(&key);
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        tokio::spawn(async move {
            if fencing_token.check().is_ok()
                && let Err(error) = within(API_CALL_TIMEOUT, api.delete(&name, &params)).await
            {
                let error = api_error_message(&error);
                tracing::warn!(pipeline = %key, promotion = name, error, "cannot delete an old promotion");
            }
        });
    }
}
