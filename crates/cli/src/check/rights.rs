//! Asks the API server for the caller's rights.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use sluice_view::check::rights::{NeededRight, Rights, all};

use super::read::{each, fact};
use crate::connection::Connection;
use crate::controller_api::{ServerFlags, unidentified};
use crate::exit::Outcome;
use crate::user_name::user_name;

/// The first minor version 1.x of Kubernetes that checks the verb create for a port-forward by WebSocket
/// ([authorize.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/core/pod/rest/authorize.go)).
const CREATE_SINCE: u32 = 35;

/// Returns the caller's rights in a namespace, or in all, and in the namespace of the controller, if commands reach it
/// through the hub.
pub(super) async fn read(
    connection: &Connection,
    namespace: Option<&str>,
    server: &ServerFlags,
) -> Outcome<Rights> {
    let controller_namespace = &server.controller.system_namespace;
    let version = connection.client.apiserver_version().await.ok();
    let minor = version.and_then(|version| version.minor.trim_end_matches('+').parse::<u32>().ok());
    let checks_create = minor.is_none_or(|minor| minor >= CREATE_SINCE);
    let is_needed = |right: &NeededRight| match right.near_controller {
        true => server.is_through_hub() && (right.verb != "create" || checks_create),
        false => true,
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(connection.client.clone());
    let needed = all().into_iter().filter(is_needed);
    let answers = each(needed, async |right: NeededRight| {
        let place = if right.near_controller { Some(controller_namespace.as_str()) } else { namespace };
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
        let answer = fact(connection, answer, needs)?;
        Ok((right, answer.map(|review| review.status.is_some_and(|status| status.allowed))))
    });
    let answers = answers.await?;
    // Old API servers do not say who the caller is.
    let user = user_name(connection).await.ok();
    Ok(Rights {
        user,
        namespace: namespace.map(String::from),
        controller_namespace: controller_namespace.clone(),
        unidentified: unidentified(connection).map(|(why, fix)| (why.into(), fix.into())),
        answers,
    })
}
