//! Secrets that pipelines name. A user who may write Pipelines may use the Secrets of their namespace. The owner
//! of a Secret can restrict its use by an annotation. A Secret that another program made (the token of a service
//! account, a certificate, the password of a registry, a Helm release) may be used only with that annotation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{PartialObjectMeta, Status};
use kube::{Api, Client, ResourceExt};
use sluice_api::secret_use::{SecretLock, SecretUse, USED_BY};
use sluice_core::dns_name;
use sluice_delivery::DeliveryStrategy;

use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::kubeconfig;

/// The use of the Secret that a strategy names; `None` if the strategy needs no Secret.
pub fn use_of(strategy: &DeliveryStrategy) -> Option<SecretUse> {
    match strategy {
        DeliveryStrategy::PullRequest { .. } => Some(SecretUse::PullRequest),
        DeliveryStrategy::Commit { .. } => Some(SecretUse::Commit),
        DeliveryStrategy::Webhook { .. } => Some(SecretUse::Webhook),
        DeliveryStrategy::Notification(_) => None,
    }
}

/// Reads a Secret that a Pipeline names.
///
/// # Errors
/// When the API server does not return it. A name that no object can have counts as that of a missing Secret: in the
/// address of the request, `?` and `/` would ask for something else.
pub(crate) async fn read(client: &Client, namespace: &str, name: &str) -> kube::Result<Secret> {
    within(API_CALL_TIMEOUT, secrets(client, namespace, name)?.get(name)).await
}

/// Reads the metadata of a Secret that a Pipeline names.
///
/// # Errors
/// As [`read`].
pub(crate) async fn read_metadata(
    client: &Client,
    namespace: &str,
    name: &str,
) -> kube::Result<PartialObjectMeta<Secret>> {
    within(API_CALL_TIMEOUT, secrets(client, namespace, name)?.get_metadata(name)).await
}

fn secrets(client: &Client, namespace: &str, name: &str) -> kube::Result<Api<Secret>> {
    if dns_name::is_subdomain(name) {
        return Ok(Api::namespaced(client.clone(), namespace));
    }
    let missing = Status::failure("a Secret cannot have this name", "NotFound").with_code(404);
    Err(kube::Error::Api(missing.boxed()))
}

/// The version of a Secret when it was read; `None` if it did not exist, or could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretVersion(pub Option<String>);

/// A Secret must not be used in this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNotAllowed {
    /// Its annotation does not name the use.
    #[error(
        "Secret {name} in namespace {namespace} is not for {wanted}: its annotation {USED_BY} is {used_by:?}. Name \
         another Secret in the pipeline, or have its owner add {wanted} to the annotation"
    )]
    Annotation {
        /// The Secret.
        name: String,
        /// The namespace of the Secret.
        namespace: String,
        /// The value of the annotation.
        used_by: String,
        /// The use that is not allowed.
        wanted: &'static str,
    },
    /// Another program made it, by its type, and it has no annotation.
    #[error(
        "Secret {name} in namespace {namespace} has the type {type_}, which is not for Sluice: name a Secret of type \
         Opaque, kubernetes.io/basic-auth or kubernetes.io/ssh-auth in the pipeline, or have its owner set its \
         annotation {USED_BY} to {wanted}"
    )]
    Type {
        /// The Secret.
        name: String,
        /// The namespace of the Secret.
        namespace: String,
        /// Its type.
        type_: String,
        /// The use that is not allowed.
        wanted: &'static str,
    },
}

/// Returns the data of a Secret for this use.
///
/// # Errors
/// When the annotation of the Secret does not name the use, or it has no annotation and a type that other programs
/// use.
pub fn data(secret: Secret, wanted: SecretUse) -> Result<BTreeMap<String, Vec<u8>>, SecretNotAllowed> {
    let (type_, used_by) =
        (secret.type_.clone().unwrap_or_default(), secret.annotations().get(USED_BY).cloned());
    let lock = wanted.lock(&type_, used_by.as_deref());
    let (name, namespace, wanted) =
        (secret.name_any(), secret.namespace().unwrap_or_default(), wanted.name());
    match lock {
        Some(SecretLock::Annotation) => {
            let used_by = used_by.unwrap_or_default();
            Err(SecretNotAllowed::Annotation { name, namespace, used_by, wanted })
        }
        Some(SecretLock::Type) => Err(SecretNotAllowed::Type { name, namespace, type_, wanted }),
        None => Ok(kubeconfig::data(secret)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_no_secret_can_have_is_not_sent_to_the_api_server() {
        // Nothing listens there: a request would fail otherwise.
        let hub = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(hub).unwrap();
        for name in ["?x=1", "forge?x=1", "forge#", "forge/", "../../team-b/secrets/theirs", "a%2fb", "", "A"]
        {
            let missing =
                |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
            assert!(missing(read(&client, "apps", name).await.unwrap_err()), "{name}");
            assert!(missing(read_metadata(&client, "apps", name).await.unwrap_err()), "{name}");
        }
        assert!(!matches!(read(&client, "apps", "forge").await, Err(kube::Error::Api(_))));
    }

    #[test]
    fn a_secret_of_a_foreign_type_needs_the_annotation() {
        let error_of = |type_: Option<&str>, used_by: Option<&str>| {
            let mut secret = Secret { type_: type_.map(String::from), ..Secret::default() };
            secret.metadata.name = Some("git".into());
            secret.metadata.namespace = Some("apps".into());
            secret.metadata.annotations =
                used_by.map(|text| [(USED_BY.to_string(), text.to_string())].into());
            data(secret, SecretUse::Commit).map(drop).map_err(|error| error.to_string())
        };
        for type_ in
            [None, Some(""), Some("Opaque"), Some("kubernetes.io/basic-auth"), Some("kubernetes.io/ssh-auth")]
        {
            assert_eq!(error_of(type_, None), Ok(()), "{type_:?}");
        }
        for type_ in [
            "kubernetes.io/service-account-token",
            "kubernetes.io/dockerconfigjson",
            "kubernetes.io/tls",
            "bootstrap.kubernetes.io/token",
            "helm.sh/release.v1",
            "opaque",
        ] {
            let error = error_of(Some(type_), None).unwrap_err();
            assert!(
                error.contains(type_) && error.contains(&format!("annotation {USED_BY} to commit")),
                "{error}"
            );
            assert!(error_of(Some(type_), Some("webhook")).unwrap_err().contains("is not for commit"));
            assert_eq!(error_of(Some(type_), Some("commit")), Ok(()), "{type_}");
        }
    }

    #[test]
    fn a_secret_may_be_used_as_its_annotation_names() {
        let all = [SecretUse::PullRequest, SecretUse::Commit, SecretUse::Webhook, SecretUse::Hook];
        let cases: [(Option<&str>, &[SecretUse]); 6] = [
            (None, &all),
            (Some("commit"), &[SecretUse::Commit]),
            (Some(" pull-request ,hook"), &[SecretUse::PullRequest, SecretUse::Hook]),
            (Some(""), &[]),
            (Some("Commit"), &[]),
            (Some("git"), &[]),
        ];
        for (used_by, allowed) in cases {
            let mut secret = Secret::default();
            secret.metadata.name = Some("git".into());
            secret.metadata.namespace = Some("apps".into());
            secret.metadata.annotations =
                used_by.map(|text| [(USED_BY.to_string(), text.to_string())].into());
            for wanted in all {
                let found = data(secret.clone(), wanted);
                assert_eq!(found.is_ok(), allowed.contains(&wanted), "{used_by:?} {wanted:?}");
                if let Err(error) = found {
                    let (text, name) = (error.to_string(), wanted.name());
                    assert!(text.starts_with(&format!("Secret git in namespace apps is not for {name}:")));
                    assert!(text.contains(&format!("add {name} to the annotation")), "{text}");
                }
            }
        }
    }
}
