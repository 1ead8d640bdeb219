//! Errors of calls to forges, and what to do about them.

use std::time::Duration;

use jiff::Timestamp;

use crate::address::AddressError;
use crate::foreign_text::ForeignWords;
use crate::retry::Retry;

/// The result of a call to a forge.
pub(crate) type ForgeResult<T> = Result<T, ForgeError>;

/// Why a call to a forge failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ForgeError {
    #[error(transparent)]
    Address(#[from] AddressError),

    #[error("{forge}: the Secret has no token; add one that may write change requests")]
    NoToken { forge: String },

    #[error("{forge}: the token is not accepted ({says}); put a valid one into the Secret")]
    Authentication { forge: String, says: String },

    #[error(
        "{forge}: githubAppPrivateKey in the Secret cannot be used: {says}; put the key in that GitHub gave out for the App"
    )]
    AppKey { forge: String, says: String },

    #[error(
        "{forge}: the App {app} is not installed for {repository}; install it there, or correct githubAppID and githubAppInstallationID in the Secret"
    )]
    NoApp { forge: String, app: String, repository: String },

    #[error(
        "{forge}: the App {app} is not accepted ({says}); check that githubAppID and githubAppPrivateKey in the Secret belong to one App, and that this machine's clock is right"
    )]
    AppNotAccepted { forge: String, app: String, says: String },

    #[error(
        "{forge}: the App {app} gets no token ({says}); if it is suspended, an owner of its installation can allow it again"
    )]
    AppForbidden { forge: String, app: String, says: String },

    #[error("{forge}: the token may not do this ({says}); give it the right to write change requests")]
    Forbidden { forge: String, says: String },

    #[error(
        "{forge}: the token's role may not merge into {base} ({says}); use the token of one that may, which is \
         Maintainer unless the branch's protection says otherwise, or let its role merge there"
    )]
    MayNotMerge { forge: String, base: String, says: String },

    #[error(
        "{forge}: the token may not write commit statuses ({says}); give it {right}, or remove commitStatuses from \
         the pipeline"
    )]
    MayNotReport { forge: String, says: String, right: &'static str },

    #[error(
        "{forge}: there is no repository {repository}, or the token gives no access to it; check the address and the Secret"
    )]
    NoRepository { forge: String, repository: String },

    #[error("waiting for the budget at {forge} until {}", until.strftime("%H:%M:%S UTC"))]
    RateLimited { forge: String, until: Timestamp },

    #[error("stopped before the call: the fencing token was revoked")]
    Revoked,

    #[error(
        "{forge}: cannot be reached: {says}; check that the forge runs, its address in the pipeline, DNS and the network"
    )]
    Unreachable { forge: String, says: String },

    #[error("{forge}: did not answer within {} seconds; check the forge and the network", after.as_secs_f32())]
    Timeout { forge: String, after: Duration },

    #[error(
        "{forge}: the server's certificate is not trusted ({says}); put the certificate of its authority into the Secret as caFile"
    )]
    Certificate { forge: String, says: String },

    #[error("{forge}: caFile in the Secret holds no certificate: {says}")]
    BadCaFile { forge: String, says: String },

    #[error(
        "{forge}: redirects to another address; write the new address of the repository or of the API into the pipeline"
    )]
    Redirected { forge: String },

    #[error(
        "{forge}: the answer is too large ({what}); check that url and type in the pipeline are those of the forge"
    )]
    TooLarge { forge: String, what: String },

    #[error(
        "{forge}: the list of change requests in which the one from {head} is searched is too large ({what}); others \
         have opened too many or too large ones: delete those that nobody needs"
    )]
    ListTooLarge { forge: String, head: String, what: String },

    #[error(
        "{forge}: was asked about commit {asked}, and answered about {answered}; delete the branch or tag that is \
         named like the commit"
    )]
    OtherCommit { forge: String, asked: String, answered: String },

    #[error("{forge}: merges only what is on top of the base branch as it is now")]
    Behind { forge: String },

    #[error("{forge}: refused with status {status}: {says}")]
    Refused { forge: String, status: u16, says: ForeignWords },

    #[error(
        "{forge}: the answer cannot be read ({says}); check that the type in the pipeline is that of the forge"
    )]
    BadAnswer { forge: String, says: String },
}

impl ForgeError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            ForgeError::Address(error) => error.reason(),
            ForgeError::NoToken { .. } => "MissingCredential",
            ForgeError::Authentication { .. } | ForgeError::AppNotAccepted { .. } => "AuthenticationFailed",
            ForgeError::AppKey { .. } => "AppKeyInvalid",
            ForgeError::NoApp { .. } => "AppNotInstalled",
            ForgeError::Forbidden { .. }
            | ForgeError::AppForbidden { .. }
            | ForgeError::MayNotMerge { .. }
            | ForgeError::MayNotReport { .. } => "PermissionDenied",
            ForgeError::NoRepository { .. } => "RepositoryNotFound",
            ForgeError::RateLimited { .. } => "RateLimited",
            ForgeError::Revoked => "Stopped",
            ForgeError::Unreachable { .. } => "Unreachable",
            ForgeError::Timeout { .. } => "Timeout",
            ForgeError::Certificate { .. } | ForgeError::BadCaFile { .. } => "CertificateInvalid",
            ForgeError::Redirected { .. } => "Redirected",
            ForgeError::TooLarge { .. } | ForgeError::ListTooLarge { .. } => "AnswerTooLarge",
            ForgeError::Behind { .. }
            | ForgeError::OtherCommit { .. }
            | ForgeError::Refused { .. }
            | ForgeError::BadAnswer { .. } => "ForgeRefused",
        }
    }

    /// Returns when to try again.
    pub fn retry(&self) -> Retry {
        match self {
            ForgeError::RateLimited { until, .. } => Retry::At(*until),
            ForgeError::Address(_) | ForgeError::Redirected { .. } => Retry::OnChange,
            _ => Retry::Soon,
        }
    }

    /// Whether the error may mean that the change request exists: 409 at most forges, 422 at GitHub, 400 at Bitbucket,
    /// with different messages. The caller must search for the change request.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            ForgeError::Refused { status, says, .. } => {
                matches!(status, 400 | 409) || (*status == 422 && says.has("already exists"))
            }
            _ => false,
        }
    }

    /// Whether the forge rejected the call with a reason.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            ForgeError::Refused { .. } | ForgeError::Forbidden { .. } | ForgeError::NoRepository { .. }
        )
    }

    /// The reason of the forge if it rejected the call, otherwise the whole message.
    pub(crate) fn cause(&self) -> String {
        match self {
            ForgeError::Refused { says, .. } => says.to_string(),
            ForgeError::Forbidden { says, .. } => format!("the token may not do this ({says})"),
            ForgeError::NoRepository { .. } => "the forge has no such thing".into(),
            other => other.to_string(),
        }
    }

    /// Whether the call may have taken effect without an answer.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            ForgeError::Unreachable { .. }
            | ForgeError::Timeout { .. }
            | ForgeError::BadAnswer { .. }
            | ForgeError::TooLarge { .. } => true,
            ForgeError::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The password is `already`.
    #[test]
    fn a_secret_that_is_a_common_word_hides_no_conflict() {
        let says =
            ForeignWords::new("A pull request already exists".into(), "A pull request *** exists".into());
        let error = ForgeError::Refused { forge: "github.com".into(), status: 422, says };
        assert!(error.is_conflict());
        assert!(!format!("{error} {error:?}").contains("already"), "{error:?}");
    }
}
