//! People with rights on the hub.

use anyhow::Result;
use serde_json::{Value, json};

use crate::place::TestNamespace;

/// Creates a service account that may do in the namespace what these rules of RBAC say, and returns its token.
pub async fn token(place: &TestNamespace, name: &str, rules: Value) -> Result<String> {
    let n = &place.namespace;
    let token = place.shared.hub.service_account_token(n, name).await?;
    allow(place, name, rules).await?;
    Ok(token)
}

/// Lets a service account do in the namespace what these rules of RBAC say.
pub async fn allow(place: &TestNamespace, name: &str, rules: Value) -> Result<()> {
    let account = json!({"kind": "ServiceAccount", "name": name, "namespace": place.namespace});
    allow_subject(place, name, account, rules).await
}

/// Lets a user do in the namespace what these rules of RBAC say, and returns a kubeconfig with a certificate of the user.
pub async fn kubeconfig(place: &TestNamespace, name: &str, rules: Value) -> Result<String> {
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    allow_subject(place, name, user, rules).await?;
    place.shared.hub.user(name, None)
}

/// Lets a subject of a RoleBinding do in the namespace what these rules of RBAC say.
async fn allow_subject(place: &TestNamespace, name: &str, subject: Value, rules: Value) -> Result<()> {
    let n = &place.namespace;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "namespace": n}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": n},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [subject]});
    place.apply(&format!("{role}\n---\n{binding}\n")).await
}
