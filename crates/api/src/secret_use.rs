//! What Sluice uses a Secret for. The owner of a Secret may restrict its use by an annotation.

/// The annotation that restricts the use of a Secret: the names of [`SecretUse`] that are allowed, separated by
/// commas. Without the annotation all are allowed, with an empty one none.
pub const USED_BY: &str = "pipelines.weave.works/used-by";

/// The types of Secrets that people make for git, forges and webhooks. A Secret without a type is `Opaque`.
const ALLOWED_TYPES: [&str; 4] = ["", "Opaque", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"];

/// Why a Secret must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretLock {
    /// Its annotation does not name the use.
    Annotation,
    /// Another program made it, by its type, and it has no annotation.
    Type,
}

/// What Sluice uses a Secret for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretUse {
    /// The credentials of the strategy `pull-request`, for git and the forge.
    PullRequest,
    /// The credentials of the strategy `commit`, for git.
    Commit,
    /// The credentials of the strategy `webhook`, for the receiver.
    Webhook,
    /// The keys that sign calls to the hook server.
    Hook,
}

impl SecretUse {
    /// Returns the name in the annotation.
    pub fn name(self) -> &'static str {
        match self {
            SecretUse::PullRequest => "pull-request",
            SecretUse::Commit => "commit",
            SecretUse::Webhook => "webhook",
            SecretUse::Hook => "hook",
        }
    }

    /// Returns why a Secret of this type, and with this value of [`USED_BY`], must not be used; `None` if it may.
    pub fn lock(self, type_: &str, used_by: Option<&str>) -> Option<SecretLock> {
        match used_by {
            Some(names) if names.split(',').any(|name| name.trim() == self.name()) => None,
            Some(_) => Some(SecretLock::Annotation),
            None => (!ALLOWED_TYPES.contains(&type_)).then_some(SecretLock::Type),
        }
    }
}
