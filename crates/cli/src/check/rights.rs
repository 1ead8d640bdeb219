//! Asks the API server for the caller's rights.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use sluice_view::check::rights::{NeededRight, Rights, all};

use super::read::{each, fact};
use crate::connection::Connection;
use crate::exit::Outcome;
use crate::user_name::user_name;

/// Returns the caller's rights in a namespace, or in all.
pub(super) async fn read(connection: &Connection, namespace: Option<&str>) -> Outcome<Rights> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(connection.client.clone());
    let answers = each(all(), async |right: NeededRight| {
        let attributes = ResourceAttributes {
            namespace: namespace.map(String::from),
            verb: Some(right.verb.into()),
            group: Some(right.group.into()),
            resource: Some(right.resource.into()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let needs = || "create on selfsubjectaccessreviews.authorization.k8s.io".into();
        let answer = fact(connection, answer, needs)?;
        Ok((right, answer.map(|review| review.status.is_some_and(|status| status.allowed))))
    });
    let answers = answers.await?;
    // Old API servers do not say who the caller is.
    let user = user_name(connection).await.ok();
    Ok(Rights { user, namespace: namespace.map(String::from), answers })
}
