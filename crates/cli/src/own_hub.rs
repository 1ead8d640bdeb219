//! The hub as `sluice web` reads it: with the kubeconfig and the rights of the user.

use kube::api::ListParams;
use kube::{Api, Client};
use sluice_api::Pipeline;

use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::Outcome;
use crate::user_name::user_name;

/// The hub, and what the user may read of it.
pub struct OwnHub {
    /// A client that acts as the user.
    pub client: Client,
    /// The name of the user.
    pub user: String,
    /// The namespace whose Pipelines are read; `None` for all.
    pub namespace: Option<String>,
}

impl ClusterFlags {
    /// Returns the hub. Without `--namespace` these are the Pipelines of all namespaces or, if the user may not list them,
    /// those of the context's namespace.
    ///
    /// # Errors
    /// When the hub cannot be reached, has no Pipelines, or does not let the user list any.
    pub async fn own_hub(&self) -> Outcome<OwnHub> {
        let connection = self.open(Some(API_CALL_TIMEOUT))?;
        let user = user_name(&connection).await?;
        let mut namespace = self.namespace.clone();
        let mut listed = may_list(&connection, namespace.as_deref()).await;
        if namespace.is_none() && matches!(&listed, Err(kube::Error::Api(status)) if status.code == 403) {
            namespace = Some(connection.namespace.clone());
            listed = may_list(&connection, namespace.as_deref()).await;
        }
        listed.map_err(|error| connection.explain(error))?;
        Ok(OwnHub { client: connection.watching_client()?, user, namespace })
    }
}

/// Lists one Pipeline at most, to learn whether the user may.
async fn may_list(connection: &Connection, namespace: Option<&str>) -> kube::Result<()> {
    let client = connection.client.clone();
    let api: Api<Pipeline> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    api.list_metadata(&ListParams::default().limit(1)).await.map(drop)
}
