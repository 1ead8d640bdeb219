//! Asks the API server for the caller's rights.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sluice_view::check::rights::{NeededRight, Rights, all};

use super::installation_question::InstallationQuestion;
use super::read::{each, fact};

/// The first minor version 1.x of Kubernetes that checks the verb create for a port-forward by WebSocket
/// ([authorize.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/core/pod/rest/authorize.go)).
const CREATE_SINCE: u32 = 35;

/// Returns the caller's rights in the namespace of the question, or in all, and in the namespace of the controller, if
/// commands reach it through the hub.
pub(super) async fn read(client: &Client, question: &InstallationQuestion<'_>) -> kube::Result<Rights> {
    let InstallationQuestion { namespace, is_through_hub, .. } = *question;
    let controller_namespace = question.controller_namespace.as_str();
    let version = client.apiserver_version().await.ok();
    let minor = version.and_then(|version| version.minor.trim_end_matches('+').parse::<u32>().ok());
    let checks_create = minor.is_none_or(|minor| minor >= CREATE_SINCE);
    let is_needed = |right: &NeededRight| match right.near_controller {
        true => is_through_hub && (right.verb != "create" || checks_create),
        false => true,
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let needed = all().into_iter().filter(is_needed);
    let answers = each(needed, async |right: NeededRight| {
        let place = if right.near_controller { Some(controller_namespace) } else { namespace };
        let (resource, subresource) = match right.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (right.resource, None),
        };
        let attributes = ResourceAttributes {
            namespace: place.map(String::from),
            verb: Some(right.verb.into()),
            group: Some(right.group.into()),
            resource: Some(resource.into()),
            subresource: subresource.map(String::from),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let needs = || "create on selfsubjectaccessreviews.authorization.k8s.io".into();
        let answer = fact(answer, needs)?;
        Ok((right, answer.map(|review| review.status.is_some_and(|status| status.allowed))))
    });
    Ok(Rights {
        user: question.user.clone(),
        namespace: namespace.map(String::from),
        controller_namespace: controller_namespace.into(),
        unidentified: question.unidentified.clone(),
        answers: answers.await?,
    })
}
