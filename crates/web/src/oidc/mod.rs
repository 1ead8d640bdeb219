//! Sign-in by OpenID Connect: the authorization code flow with PKCE. The ID token becomes the token of the session, so
//! that the hub's API server says who the person is, as for every other token.

mod authorization_request;
mod begun_sign_in;
mod discovery_document;
mod error;
mod id_token;
mod options;
mod provider;

pub(crate) use begun_sign_in::BegunSignIn;
pub(crate) use error::OidcError;
pub use options::OidcOptions as Options;
pub(crate) use provider::{Provider, error_code};
