//! Where people sign in, and as which client.

use std::sync::Arc;

use super::discovery_document::is_https;
use crate::provider_http::ProviderHttp;

/// Where people sign in, and as which client.
pub struct OidcOptions {
    /// The issuer, as ID tokens name it.
    pub issuer: String,
    /// The id of Sluice at the provider, for which ID tokens are.
    pub client_id: String,
    /// The secret of the client; `None` for a public client, which PKCE alone protects.
    pub client_secret: Option<String>,
    /// The scopes to ask for; `None` for openid, and email, groups and offline_access if the provider lists them.
    pub scopes: Option<Vec<String>>,
    /// Sends requests to the provider.
    pub http: Arc<dyn ProviderHttp>,
}

/// The scopes that are asked for without a flag, if the provider lists them: who it is, the groups, and a refresh token.
const DEFAULT_SCOPES: [&str; 3] = ["email", "groups", "offline_access"];

impl OidcOptions {
    /// Returns whether an issuer can be used: an address with TLS.
    pub fn is_issuer(issuer: &str) -> bool {
        is_https(issuer) && !issuer.contains('?')
    }
}

/// Returns the scopes to ask for: those that are wanted, or else the default ones that the provider supports.
pub(super) fn scopes(wanted: Option<&[String]>, supported: &[String]) -> String {
    match wanted {
        Some(wanted) => wanted.join(" "),
        None => {
            let has = |scope: &&str| supported.iter().any(|supported| supported == scope);
            let scopes: Vec<&str> = DEFAULT_SCOPES.into_iter().filter(has).collect();
            ["openid"].into_iter().chain(scopes).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_without_a_flag_are_those_that_the_provider_supports() {
        let supported = ["openid", "email", "phone"].map(String::from);
        assert_eq!(scopes(None, &supported), "openid email");
        assert_eq!(scopes(Some(&["openid".into(), "x".into()]), &supported), "openid x");
    }
}
