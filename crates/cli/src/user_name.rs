//! The name of the user, in which approvals, rejections and retries are recorded.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};

/// Returns the name of the user, as the API server reports it.
pub(crate) async fn user_name(connection: &Connection) -> Outcome<String> {
    let api: Api<SelfSubjectReview> = Api::all(connection.client.clone());
    let unknown = |why: &str| {
        Failure::new(Exit::Cluster, format!("the cluster does not say who you are: {why}")).hinted(
            "it takes Kubernetes 1.28, and create on selfsubjectreviews.authentication.k8s.io, which Kubernetes \
             grants by default (system:basic-user)",
        )
    };
    match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => {
            let user = review.status.and_then(|s| s.user_info?.username).filter(|user| !user.is_empty());
            user.ok_or_else(|| unknown("the answer has no name"))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Err(unknown(&status.message)),
        Err(error) => Err(connection.explain(error)),
    }
}
