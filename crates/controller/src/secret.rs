//! Secrets that pipelines name. Who may write Pipelines may use the Secrets of their namespace; whoever owns
//! one may say for what alone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sluice_delivery::Strategy;

use crate::watch::connect;

/// The annotation that says what a Secret is for: a list of the names of [`Use`], separated by commas. Without it
/// a Secret is for all of them; with an empty one for none.
pub const USED_BY: &str = "pipelines.weave.works/used-by";

/// What Sluice uses a Secret for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The strategy `pull-request`: git and the forge.
    PullRequest,
    /// The strategy `commit`: git.
    Commit,
    /// The strategy `webhook`: what is called.
    Webhook,
    /// The keys that calls to the hook server are signed with.
    Hook,
}

impl Use {
    /// What the Secret that a strategy names itself is used for.
    pub fn of(strategy: &Strategy) -> Option<Self> {
        match strategy {
            Strategy::PullRequest { .. } => Some(Use::PullRequest),
            Strategy::Commit { .. } => Some(Use::Commit),
            Strategy::Webhook { .. } => Some(Use::Webhook),
            Strategy::Notification(_) => None,
        }
    }

    /// As the annotation has it.
    pub fn name(self) -> &'static str {
        match self {
            Use::PullRequest => "pull-request",
            Use::Commit => "commit",
            Use::Webhook => "webhook",
            Use::Hook => "hook",
        }
    }
}

/// The Secret is not for this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Secret {name} in namespace {namespace} is not for {wanted}: its annotation {USED_BY} is {used_by:?}. Name \
     another Secret in the pipeline, or have whoever owns this one add {wanted} to the annotation; then sluice retry"
)]
pub struct Locked {
    name: String,
    namespace: String,
    used_by: String,
    wanted: &'static str,
}

/// What a Secret holds, for this use.
///
/// # Errors
/// When its annotation does not name the use.
pub fn data(secret: Secret, wanted: Use) -> Result<BTreeMap<String, Vec<u8>>, Locked> {
    let used_by = secret.annotations().get(USED_BY);
    if let Some(used_by) = used_by.filter(|all| !all.split(',').any(|one| one.trim() == wanted.name())) {
        let (name, namespace) = (secret.name_any(), secret.namespace().unwrap_or_default());
        return Err(Locked { name, namespace, used_by: used_by.clone(), wanted: wanted.name() });
    }
    Ok(connect::data(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_what_its_annotation_names() {
        let all = [Use::PullRequest, Use::Commit, Use::Webhook, Use::Hook];
        let cases: [(Option<&str>, &[Use]); 6] = [
            (None, &all),
            (Some("commit"), &[Use::Commit]),
            (Some(" pull-request ,hook"), &[Use::PullRequest, Use::Hook]),
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
