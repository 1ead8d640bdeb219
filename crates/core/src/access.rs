//! Who calls, and what somebody may do, in the terms of Kubernetes. RBAC is the only place that says who may see what.

use std::collections::BTreeMap;

use crate::dns_name::{is_label, is_subdomain};

/// Somebody whose identity the API server has confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    /// The name of the user.
    pub name: String,
    /// The UID of the user; empty if there is none.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// What else the authenticator says about the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The beginning of the name of a service account; its namespace follows
/// ([documentation](https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/)).
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl Caller {
    /// Whether it is a service account and no person.
    pub fn is_service_account(&self) -> bool {
        self.name.starts_with(SERVICE_ACCOUNT)
    }

    /// Returns who shares the limits of a caller: one person, or the service accounts of a namespace, of which its users
    /// can make any number.
    pub fn limit_group(&self) -> &str {
        match self.name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
            Some((namespace, _)) => &self.name[..SERVICE_ACCOUNT.len() + namespace.len()],
            None => &self.name,
        }
    }

    /// Returns the name of this group in a queue that is fair by what is before the first `/`.
    pub fn queue_name(&self) -> String {
        self.limit_group().replace('/', ":")
    }
}

/// The right to do something with objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Right {
    /// What may be done, such as `get`.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural name of the kind.
    pub resource: String,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The name; `None` for all.
    pub name: Option<String>,
}

impl Right {
    /// Returns the right to get every object of a kind.
    pub fn all(group: &str, resource: &str) -> Self {
        Self {
            verb: "get".into(),
            group: group.into(),
            resource: resource.into(),
            namespace: None,
            name: None,
        }
    }

    /// Returns the right to do something else with the same objects.
    pub fn to(self, verb: &str) -> Self {
        Self { verb: verb.into(), ..self }
    }

    /// Returns the same right for one namespace.
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Returns the same right for one object.
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Whether there can be an object and a namespace with these names. Callers write any name into an address.
    pub fn can_apply(&self) -> bool {
        self.namespace.as_deref().is_none_or(is_label) && self.name.as_deref().is_none_or(is_subdomain)
    }
}

/// Why it is not known who calls, or what the caller may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The API server does not accept the token.
    #[error("the API server does not accept the token: sign in again, or use another token")]
    NotAccepted,
    /// The API server did not answer, or may not be asked.
    #[error("cannot ask the API server who may do what: {0}")]
    Unavailable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_accounts_of_a_namespace_share_their_limits() {
        for (name, group) in [
            ("system:serviceaccount:team:robot-1", "system:serviceaccount:team"),
            ("system:serviceaccount:team:robot-2", "system:serviceaccount:team"),
            ("system:serviceaccount:team-b:robot", "system:serviceaccount:team-b"),
            ("jane", "jane"),
            ("https://sso.example.com#jane", "https://sso.example.com#jane"),
        ] {
            assert_eq!(Caller { name: name.into(), ..Caller::default() }.limit_group(), group);
        }
    }
}
