//! The address at the provider to which a browser is sent to sign in.

use super::begun_sign_in::BegunSignIn;
use super::error::OidcError;
use super::options::scopes;
use super::provider::{Provider, with_query};

impl Provider {
    /// Returns the address at which a person signs in
    /// ([OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#AuthRequest), section 3.1.2.1).
    ///
    /// # Errors
    /// When the provider has never answered.
    pub(crate) async fn sign_in_url(&self, flow: &BegunSignIn) -> Result<String, OidcError> {
        let metadata = self.metadata().await?;
        let fields = [
            ("response_type", "code"),
            ("client_id", &self.options.client_id),
            ("redirect_uri", &self.redirect_uri),
            ("scope", &scopes(self.options.scopes.as_deref(), &metadata.scopes_supported)),
            ("state", &flow.state),
            ("nonce", &flow.nonce),
            ("code_challenge", &flow.challenge()),
            ("code_challenge_method", "S256"),
        ];
        Ok(with_query(&metadata.authorization_endpoint, &fields))
    }
}
