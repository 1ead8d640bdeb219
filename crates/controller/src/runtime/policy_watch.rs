//! Checks whether Sluice's admission policy, which decides who may approve, is in force on the hub.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_api::promotion::user_policy;
use tokio::sync::mpsc;

use crate::state::Input;
use crate::timeout::{API_CALL_TIMEOUT, within};

/// The pause between two checks. Only people change the policy.
const CHECK_PAUSE: Duration = Duration::from_secs(60);
/// The pause while the policy is not in force, so that the status soon shows that someone has installed it.
const SHORT_CHECK_PAUSE: Duration = Duration::from_secs(10);

/// Reports whether the policy is in force, again and again, until the loop ends.
pub(crate) async fn watch(hub: Client, tx: mpsc::UnboundedSender<Input>) {
    let mut pause = CHECK_PAUSE;
    loop {
        // An API server that cannot be reached says nothing about its policies.
        if let Ok(gap) = check(&hub).await {
            pause = if gap.is_some() { SHORT_CHECK_PAUSE } else { CHECK_PAUSE };
            if tx.send(Input::ApprovalPolicy(gap)).is_err() {
                return;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Returns why the policy is not in force, or `None` if it is.
///
/// # Errors
/// When the API server cannot be reached.
pub async fn check(hub: &Client) -> kube::Result<Option<String>> {
    let policy = match get::<ValidatingAdmissionPolicy>(hub).await? {
        Ok(policy) => policy,
        Err(why) => return Ok(Some(why)),
    };
    let binding = match get::<ValidatingAdmissionPolicyBinding>(hub).await? {
        Ok(binding) => binding,
        Err(why) => return Ok(Some(why)),
    };
    Ok(user_policy::gap(policy.as_ref(), binding.as_ref()))
}

/// Returns the object of Sluice's name, `None` if there is none, or a message why the controller may not read it.
async fn get<K>(hub: &Client) -> kube::Result<Result<Option<K>, String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(hub.clone());
    let plural = K::plural(&());
    match within(API_CALL_TIMEOUT, api.get_opt(user_policy::NAME)).await {
        Ok(found) => Ok(Ok(found)),
        // An API server that does not have the kind answers with text, which the client does not take for "not found".
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(Ok(None)),
        Err(kube::Error::Api(e)) if e.code == 403 => Ok(Err(format!(
            "{plural}.{} {} cannot be read: grant the controller the verb get on it, as deploy/rbac.yaml does",
            K::group(&()),
            user_policy::NAME
        ))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// An API server before Kubernetes 1.30 does not have the kinds, and answers their paths with text.
    #[tokio::test]
    async fn an_api_server_without_such_policies_is_reported_with_what_to_do() {
        let without = service_fn(async |request: http::Request<Body>| {
            let path = request.uri().path();
            assert!(path.starts_with("/apis/admissionregistration.k8s.io/v1/validatingadmission"), "{path}");
            let answer =
                http::Response::builder().status(404).header("Content-Type", "text/plain; charset=utf-8");
            Ok::<_, Infallible>(answer.body(Body::from(b"404 page not found\n".to_vec())).unwrap())
        });
        let gap = check(&Client::new(without, "default")).await.unwrap().unwrap_or_default();
        assert!(gap.contains("is not installed, or Kubernetes is older than 1.30: sluice crds |"), "{gap}");
        assert!(gap.ends_with("before 1.30, let only approvers patch promotions"), "{gap}");
    }
}
