//! From a record and its pipeline to an order for delivery.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use sluice_api::pipeline::{Pipeline, PromotionPolicy, Strategy as ApiStrategy};
use sluice_api::promotion::{ChangeRequest as ApiChangeRequest, Promotion};
use sluice_core::Revision;
use sluice_delivery::{ChangeRequest, Credentials, ForgeKind, Order, Permit, Strategy};

use super::ActError;
use crate::watch::connect;

/// How an environment of a pipeline is promoted into.
pub fn policy<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a PromotionPolicy> {
    let of = pipeline.spec.environments.iter().find(|e| e.name == environment);
    let own = of.and_then(|e| e.promotion.as_ref());
    own.or(pipeline.spec.promotion.as_ref())
}

/// The strategy as delivery knows it, and the Secret it needs. `None` for one that this version
/// cannot carry out; `core` refuses those before.
pub fn strategy(asked: &ApiStrategy) -> Option<(Strategy, Option<String>)> {
    if let Some(s) = &asked.pull_request {
        let forge = match s.forge.as_str() {
            "github" => ForgeKind::GitHub,
            "gitea" => ForgeKind::Gitea,
            _ => return None,
        };
        let strategy = Strategy::PullRequest { forge, url: s.url.clone(), base: s.base_branch.clone() };
        return Some((strategy, Some(s.secret_ref.name.clone())));
    }
    let commit = asked.commit.as_ref()?;
    let strategy = Strategy::Commit { url: commit.url.clone(), branch: commit.branch.clone() };
    Some((strategy, commit.secret_ref.as_ref().map(|s| s.name.clone())))
}

/// The order for a promotion, without its credentials; and the name of the Secret that has them.
pub fn order(pipeline: &Pipeline, promotion: &Promotion, first: bool) -> Option<(Order, Option<String>)> {
    let spec = &promotion.spec;
    let (strategy, secret) = strategy(policy(pipeline, &spec.environment)?.strategy.as_ref()?)?;
    let namespace = pipeline.namespace().unwrap_or_default();
    let status = promotion.status.clone().unwrap_or_default();
    let evidence =
        spec.evidence.iter().map(|e| format!("{}/{} healthy since {}", e.environment, e.target, e.at));
    let order = Order {
        promotion: format!("{namespace}/{}", promotion.name_any()),
        pipeline: pipeline.name_any(),
        environment: spec.environment.clone(),
        target: None,
        revision: Revision::from_strings(&spec.facets)?,
        replaces: spec.replaces.clone(),
        evidence: evidence.collect(),
        created: promotion.creation_timestamp().map(|t| t.0).unwrap_or_default(),
        retried: !first,
        reopen: status.retried.is_some() && status.retried == spec.retry,
        permit: Permit::default(),
        strategy,
        credentials: Credentials::default(),
        namespace,
    };
    Some((order, secret))
}

/// Reads the credentials of an order.
pub async fn credentials(
    client: &Client,
    namespace: &str,
    secret: Option<String>,
) -> Result<Credentials, ActError> {
    let Some(name) = secret else { return Ok(Credentials::default()) };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match secrets.get(&name).await {
        Ok(secret) => Ok(Credentials::from_secret(&connect::data(secret))),
        Err(kube::Error::Api(e)) if e.code == 404 => Err(ActError::Secret(format!(
            "there is no Secret {name} in namespace {namespace}: create it with the keys username, password and token"
        ))),
        Err(kube::Error::Api(e)) if e.code == 403 => Err(ActError::Secret(format!(
            "Secret {name} in namespace {namespace} may not be read: grant the controller the verb get on it"
        ))),
        Err(error) => {
            Err(ActError::Secret(format!("Secret {name} in namespace {namespace} cannot be read: {error}")))
        }
    }
}

/// A change request as delivery knows it.
pub fn change_request(request: &ApiChangeRequest) -> ChangeRequest {
    ChangeRequest {
        number: request.number,
        url: request.url.clone(),
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
    }
}

/// A change request as the API keeps it.
pub fn api_change_request(request: &ChangeRequest, state: &str) -> ApiChangeRequest {
    ApiChangeRequest {
        number: request.number,
        url: request.url.clone(),
        state: state.into(),
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
    }
}
