//! Short questions to a cluster: whether it answers, and whether its objects may be listed as a whole.

use std::time::Duration;

use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use serde::de::IgnoredAny;
use tokio::time::{sleep, timeout};

use super::cluster_client::ClusterClient;
use super::read_error::ReadError;

/// The pause between two probes of a cluster.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// The pause between a failed probe and the second one, which decides whether the cluster is lost.
const SECOND_PROBE_AFTER: Duration = Duration::from_secs(1);
/// The limit for the answer to a question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the user may list the objects of the whole cluster.
pub(super) async fn may_list_all(client: &ClusterClient, resource: &ApiResource) -> bool {
    let path = format!("{}?limit=1", DynamicObject::url_path(resource, None));
    let answer = timeout(PROBE_TIMEOUT, client.read::<IgnoredAny>(&path)).await;
    matches!(answer, Ok(Ok(_)))
}

/// Checks that a cluster answers.
///
/// # Errors
/// When it does not, or not as a Kubernetes API server.
pub(super) async fn probe(client: &ClusterClient) -> Result<(), ReadError> {
    match timeout(PROBE_TIMEOUT, client.read::<IgnoredAny>("/version")).await {
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

/// Probes a cluster again and again until two probes in a row fail, and returns the error of the second one.
pub(super) async fn until_lost(client: &ClusterClient) -> ReadError {
    loop {
        sleep(PROBE_INTERVAL).await;
        if probe(client).await.is_ok() {
            continue;
        }
        sleep(SECOND_PROBE_AFTER).await;
        if let Err(error) = probe(client).await {
            return error;
        }
    }
}
