//! The account of Sluice on a target cluster: the objects of `deploy/target`, and its token.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::wait::await_condition;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::promotion_change::FIELD_MANAGER;

/// The objects that `kubectl apply -k deploy/target` applies.
pub(super) const MANIFESTS: [&str; 2] = [
    include_str!("../../../../deploy/reader/every-cluster.yaml"),
    include_str!("../../../../deploy/target/account.yaml"),
];

/// The namespace of the account.
const NAMESPACE: &str = "sluice-system";
/// The Secret that the cluster fills with the token of the account.
const TOKEN_SECRET: &str = "sluice-token";

/// How long the cluster may take to make the token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The token of the account, and the certificate authority of its cluster. It has no `Debug`, so that it is not printed by
/// mistake.
pub(super) struct Token {
    token: String,
    authority: String,
}

/// Returns the objects of the account, a Namespace first.
pub(super) fn objects() -> Outcome<Vec<DynamicObject>> {
    let broken = |error: &dyn std::fmt::Display| Failure::new(Exit::Error, format!("deploy/target: {error}"));
    let mut objects = Vec::new();
    for manifest in MANIFESTS {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).map_err(|e| broken(&e))?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            objects.push(serde_json::from_value::<DynamicObject>(document).map_err(|e| broken(&e))?);
        }
    }
    objects.sort_by_key(|object| kind(object) != "Namespace");
    Ok(objects)
}

pub(super) fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// Returns the API of an object; `None` if the manifests have a kind that is not known here.
fn api(connection: &Connection, object: &DynamicObject) -> Option<Api<DynamicObject>> {
    fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    let resource = match kind(object) {
        "Namespace" => resource::<Namespace>(),
        "ServiceAccount" => resource::<ServiceAccount>(),
        "Secret" => resource::<Secret>(),
        "ClusterRole" => resource::<ClusterRole>(),
        "ClusterRoleBinding" => resource::<ClusterRoleBinding>(),
        _ => return None,
    };
    let client = connection.client.clone();
    Some(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
        None => Api::all_with(client, &resource),
    })
}

/// Applies the objects of the account.
pub(super) async fn apply(connection: &Connection) -> Outcome {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for object in objects()? {
        let Some(api) = api(connection, &object) else {
            return Err(Failure::new(Exit::Error, format!("deploy/target has a {}", kind(&object))));
        };
        let applied = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
        applied.map_err(|error| connection.explain(error))?;
    }
    Ok(())
}

/// Returns the token of the account, when the cluster has made it. With `wait`, waits for it.
///
/// # Errors
/// When there is no token, or the caller may not read it.
pub(super) async fn token(connection: &Connection, wait: bool) -> Outcome<Token> {
    let api: Api<Secret> = Api::namespaced(connection.client.clone(), NAMESPACE);
    if wait {
        let is_filled = |secret: Option<&Secret>| secret.and_then(read).is_some();
        let filled = await_condition(api.clone(), TOKEN_SECRET, is_filled);
        // The Secret is read below, whose error is shown.
        let _ = tokio::time::timeout(TOKEN_TIMEOUT, filled).await;
    }
    let secret = api.get_opt(TOKEN_SECRET).await.map_err(|error| connection.explain(error))?;
    secret.as_ref().and_then(read).ok_or_else(|| {
        let message = format!("Secret {NAMESPACE}/{TOKEN_SECRET} on the new cluster has no token");
        let hint = match wait {
            true => "does its controller-manager run? It fills Secrets of the type kubernetes.io/service-account-token",
            false => "create the account first: --export target, or --apply",
        };
        Failure::new(Exit::Error, message).hinted(hint)
    })
}

fn read(secret: &Secret) -> Option<Token> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok().filter(|text| !text.is_empty());
    Some(Token { token: text("token")?, authority: text("ca.crt")? })
}

impl Token {
    /// Returns a kubeconfig with the token, which names no files or programs.
    pub(super) fn kubeconfig(&self, name: &str, server: &str) -> Value {
        let authority = k8s_openapi::ByteString(self.authority.as_bytes().to_vec());
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "sluice", "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "sluice"}}],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_that_of_the_manifests_and_may_only_read() {
        let objects = objects().unwrap();
        let names: Vec<String> = objects.iter().map(|o| format!("{} {}", kind(o), o.name_any())).collect();
        assert_eq!(
            names,
            [
                "Namespace sluice-system",
                "ClusterRole sluice-reader",
                "ServiceAccount sluice",
                "Secret sluice-token",
                "ClusterRoleBinding sluice-reader"
            ]
        );
        let rules = objects[1].data["rules"].as_array().unwrap();
        assert!(rules.iter().all(|rule| rule["verbs"] == json!(["get", "list", "watch"])), "{rules:?}");
    }
}
