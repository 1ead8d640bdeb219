//! Why somebody cannot sign in at the identity provider.

/// Why somebody cannot sign in at the identity provider. No text contains a token, a code or a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OidcError {
    /// It does not answer.
    #[error("the identity provider does not answer: {0}")]
    NoAnswer(String),
    /// Its discovery document cannot be used.
    #[error("the discovery document of the identity provider cannot be used: {0}")]
    Discovery(String),
    /// It refuses the person or the request, with a code of its specification.
    #[error("the identity provider refuses it: {0}; sign in again")]
    Refused(String),
    /// Its answer has no ID token for this sign-in.
    #[error("the identity provider sent no ID token for this sign-in: {0}; sign in again")]
    IdToken(&'static str),
    /// The ID token does not fit into a cookie.
    #[error(
        "the ID token has {0} characters, and only {max} fit into a cookie: let the identity provider put fewer groups \
         into it",
        max = crate::session::MAX_TOKEN_BYTES
    )]
    TooLong(usize),
    /// Too many people sign in.
    #[error("too many people sign in at the moment: try again")]
    Busy,
}
