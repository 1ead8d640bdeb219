//! Short questions to a cluster: whether it answers, and whether its objects may be listed as a whole.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde::de::IgnoredAny;

use super::read_error::ReadError;
use super::served;

/// The limit for the answer to a question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the user may list the objects of the whole cluster.
pub(super) async fn may_list_all(client: &Client, resource: &ApiResource) -> bool {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let path = format!("{}?limit=1", api.resource_url());
    let answer = tokio::time::timeout(PROBE_TIMEOUT, served::read::<IgnoredAny>(client, &path)).await;
    matches!(answer, Ok(Ok(_)))
}

/// Checks that a cluster answers.
///
/// # Errors
/// When it does not, or not as a Kubernetes API server.
pub(super) async fn probe(client: &Client) -> Result<(), ReadError> {
    match tokio::time::timeout(PROBE_TIMEOUT, served::read::<IgnoredAny>(client, "/version")).await {
        Ok(Ok(_)) => Ok(()),
        // A user who may not read the version may still read the objects.
        Ok(Err(error)) => match ReadError::from(&error) {
            ReadError::Forbidden(_) => Ok(()),
            error => Err(error),
        },
        Err(_) => {
            Err(ReadError::Unreachable(format!("no answer within {} seconds", PROBE_TIMEOUT.as_secs())))
        }
    }
}
