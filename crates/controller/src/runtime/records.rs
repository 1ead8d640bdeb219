//! Removes the records of the past.

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use sluice_api::promotion::Promotion as ApiPromotion;

use crate::engine::Engine;
use crate::intake::PipelineKey;
use crate::silence::{PATIENCE, within};
use crate::watch::cause::words;

impl Engine {
    /// Removes records of the past that nobody needs.
    pub(crate) fn prune(&mut self, key: &PipelineKey, names: &[String]) {
        let Some(permit) = self.shards.permit(key) else { return };
        for name in names {
            let removed = self.promotions.get_mut(key).and_then(|records| records.remove(name));
            self.stored_times.forget(name);
            // That very one, and not one of its name that somebody has made since.
            let uid = removed.and_then(|record| record.object.uid());
            let preconditions = Some(Preconditions { uid, resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            let (pipeline, permit) = (key.clone(), permit.clone());
            let api: Api<ApiPromotion> = Api::namespaced(self.hub.clone(), &key.namespace);
            let name = name.clone();
            tokio::spawn(async move {
                if permit.check().is_ok()
                    && let Err(error) = within(PATIENCE, api.delete(&name, &params)).await
                {
                    let error = words(&error);
                    tracing::warn!(%pipeline, promotion = name, error, "cannot remove an old promotion");
                }
            });
        }
    }
}
