//! Sign-in by OpenID Connect: the authorization code flow with PKCE. The ID token becomes the token of the session, so
//! that the hub's API server says who the person is, as for every other token.

mod error;
mod flow;
mod id_token;
mod metadata;
mod provider;

pub(crate) use error::OidcError;
pub(crate) use flow::Flow;
pub use provider::OidcOptions as Options;
pub(crate) use provider::{Provider, error_code};
