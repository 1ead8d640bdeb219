//! Secrets that pipelines name. Who may write Pipelines may use the Secrets of their namespace; whoever owns
//! one may say for what alone. Secrets that other programs made for themselves (tokens of service accounts,
//! certificates, registries' passwords, Helm releases) are for Sluice only if their owner says so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sluice_delivery::DeliveryStrategy;

use crate::watch::connect;

/// The annotation that says what a Secret is for: a list of the names of [`SecretUse`], separated by commas. Without it
/// a Secret is for all of them; with an empty one for none.
pub const USED_BY: &str = "pipelines.weave.works/used-by";

/// What Sluice uses a Secret for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretUse {
    /// The strategy `pull-request`: git and the forge.
    PullRequest,
    /// The strategy `commit`: git.
    Commit,
    /// The strategy `webhook`: what is called.
    Webhook,
    /// The keys that calls to the hook server are signed with.
    Hook,
}

impl SecretUse {
    /// What the Secret that a strategy names itself is used for.
    pub fn of(strategy: &DeliveryStrategy) -> Option<Self> {
        match strategy {
            DeliveryStrategy::PullRequest { .. } => Some(SecretUse::PullRequest),
            DeliveryStrategy::Commit { .. } => Some(SecretUse::Commit),
            DeliveryStrategy::Webhook { .. } => Some(SecretUse::Webhook),
            DeliveryStrategy::Notification(_) => None,
        }
    }

    /// As the annotation has it.
    pub fn name(self) -> &'static str {
        match self {
            SecretUse::PullRequest => "pull-request",
            SecretUse::Commit => "commit",
            SecretUse::Webhook => "webhook",
            SecretUse::Hook => "hook",
        }
    }
}

/// The types of Secrets that people make for git, forges and webhooks. One without a type is `Opaque`.
const TYPES: [&str; 3] = ["Opaque", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"];

/// The Secret is not for this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNotAllowed {
    /// Its annotation names other uses.
    #[error(
        "Secret {name} in namespace {namespace} is not for {wanted}: its annotation {USED_BY} is {used_by:?}. Name \
         another Secret in the pipeline, or have whoever owns this one add {wanted} to the annotation; then sluice retry"
    )]
    Annotation {
        /// Which.
        name: String,
        /// Where.
        namespace: String,
        /// What the annotation says.
        used_by: String,
        /// What it should say.
        wanted: &'static str,
    },
    /// Its type says that it was made for something else, and no annotation says that it is for this.
    #[error(
        "Secret {name} in namespace {namespace} has the type {type_}, which is not made for Sluice: name a Secret of type \
         Opaque, kubernetes.io/basic-auth or kubernetes.io/ssh-auth in the pipeline, or have whoever owns this one set its \
         annotation {USED_BY} to {wanted}; then sluice retry"
    )]
    Type {
        /// Which.
        name: String,
        /// Where.
        namespace: String,
        /// Its type.
        type_: String,
        /// What the annotation should say.
        wanted: &'static str,
    },
}

/// What a Secret holds, for this use.
///
/// # Errors
/// When its annotation does not name the use, or there is none and its type is another than those of [`TYPES`].
pub fn data(secret: Secret, wanted: SecretUse) -> Result<BTreeMap<String, Vec<u8>>, SecretNotAllowed> {
    let (name, namespace, wanted) =
        (secret.name_any(), secret.namespace().unwrap_or_default(), wanted.name());
    match (secret.annotations().get(USED_BY), secret.type_.as_deref()) {
        (Some(used_by), _) if !used_by.split(',').any(|one| one.trim() == wanted) => {
            Err(SecretNotAllowed::Annotation { name, namespace, used_by: used_by.clone(), wanted })
        }
        (None, Some(type_)) if !type_.is_empty() && !TYPES.contains(&type_) => {
            Err(SecretNotAllowed::Type { name, namespace, type_: type_.into(), wanted })
        }
        _ => Ok(connect::data(secret)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_a_foreign_type_wants_the_annotation() {
        let of = |type_: Option<&str>, used_by: Option<&str>| {
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
            assert_eq!(of(type_, None), Ok(()), "{type_:?}");
        }
        for type_ in [
            "kubernetes.io/service-account-token",
            "kubernetes.io/dockerconfigjson",
            "kubernetes.io/tls",
            "bootstrap.kubernetes.io/token",
            "helm.sh/release.v1",
            "opaque",
        ] {
            let error = of(Some(type_), None).unwrap_err();
            assert!(
                error.contains(type_) && error.contains(&format!("annotation {USED_BY} to commit")),
                "{error}"
            );
            assert!(of(Some(type_), Some("webhook")).unwrap_err().contains("is not for commit"));
            assert_eq!(of(Some(type_), Some("commit")), Ok(()), "{type_}");
        }
    }

    #[test]
    fn a_secret_is_for_what_its_annotation_names() {
        let all = [SecretUse::PullRequest, SecretUse::Commit, SecretUse::Webhook, SecretUse::Hook];
        let cases: [(Option<&str>, &[SecretUse]); 6] = [
            (None, &all),
            (Some("commit"), &[SecretUse::Commit]),
            (Some(" pull-request ,hook"), &[SecretUse::PullRequest, SecretUse::Hook]),
            (Some(""), &[]),
            (Some("Commit"), &[]),
            (Some("git"), &[]),
        ];
        for (used_by, open) in cases {
            let mut secret = Secret::default();
            secret.metadata.name = Some("git".into());
            secret.metadata.namespace = Some("apps".into());
            secret.metadata.annotations =
                used_by.map(|text| [(USED_BY.to_string(), text.to_string())].into());
            for wanted in all {
                let found = data(secret.clone(), wanted);
                assert_eq!(found.is_ok(), open.contains(&wanted), "{used_by:?} {wanted:?}");
                if let Err(locked) = found {
                    let (text, name) = (locked.to_string(), wanted.name());
                    assert!(text.starts_with(&format!("Secret git in namespace apps is not for {name}:")));
                    assert!(text.contains(&format!("add {name} to the annotation")), "{text}");
                }
            }
        }
    }
}
