//! The discovery document of the identity provider
//! ([OpenID Connect Discovery](https://openid.net/specs/openid-connect-discovery-1_0.html), sections 3 and 4).

use axum::http::Uri;
use serde::Deserialize;

use super::error::OidcError;

/// What the identity provider says about itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    issuer: String,
    /// Where people sign in.
    pub authorization_endpoint: String,
    /// Where a code is exchanged for tokens.
    pub token_endpoint: String,
    /// Where people sign out.
    #[serde(default)]
    pub end_session_endpoint: Option<String>,
    /// The scopes that can be asked for.
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    /// How clients prove who they are; `client_secret_basic` if absent.
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether answers name the issuer ([RFC 9207](https://www.rfc-editor.org/rfc/rfc9207), section 3).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// Returns the address of the document of an issuer (section 4.1).
    pub(super) fn address(issuer: &str) -> String {
        format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
    }

    /// Reads the document. It must be about this very issuer (section 4.3), and name addresses with TLS.
    pub(super) fn parse(body: &[u8], issuer: &str) -> Result<Metadata, OidcError> {
        let wrong = |why: String| OidcError::Discovery(why);
        let found: Metadata = serde_json::from_slice(body)
            .map_err(|_| wrong("it is not the JSON of such a document".into()))?;
        if found.issuer != issuer {
            return Err(wrong(format!("it is not about the issuer {issuer}")));
        }
        let ends = found.end_session_endpoint.as_ref().map(|address| ("end_session_endpoint", address));
        for (name, address) in [
            ("authorization_endpoint", &found.authorization_endpoint),
            ("token_endpoint", &found.token_endpoint),
        ]
        .into_iter()
        .chain(ends)
        {
            if !is_https(address) {
                return Err(wrong(format!("its {name} is no https address")));
            }
        }
        Ok(found)
    }

    /// Returns whether the client's secret goes into the header `Authorization`, and not into the form
    /// ([OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#ClientAuthentication), section 9).
    pub(super) fn takes_basic(&self) -> bool {
        let has = |methods: &Vec<String>, name: &str| methods.iter().any(|method| method == name);
        self.token_endpoint_auth_methods_supported
            .as_ref()
            .is_none_or(|methods| has(methods, "client_secret_basic") || !has(methods, "client_secret_post"))
    }
}

/// Returns whether this is an address with TLS, without a user and a fragment.
pub(super) fn is_https(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    uri.scheme_str() == Some("https")
        && !authority.is_empty()
        && !authority.contains('@')
        && !address.contains('#')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://id.example.com/realm";

    fn document(changed: &[(&str, Value)]) -> Result<Metadata, OidcError> {
        let mut document = json!({
            "issuer": ISSUER, "authorization_endpoint": "https://id.example.com/auth?a=b",
            "token_endpoint": "https://tokens.example.com/token", "scopes_supported": ["openid", "email", "phone"]
        });
        for (name, value) in changed {
            document[*name] = value.clone();
        }
        Metadata::parse(document.to_string().as_bytes(), ISSUER)
    }

    #[test]
    fn only_the_document_of_this_issuer_with_tls_is_used() {
        assert!(document(&[]).is_ok());
        for (name, value) in [
            ("issuer", json!("https://id.example.com/realm/")),
            ("issuer", json!("https://evil.example")),
            ("issuer", Value::Null),
            ("token_endpoint", json!("http://id.example.com/token")),
            ("token_endpoint", json!("https://a@id.example.com/token")),
            ("token_endpoint", json!("/token")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            ("authorization_endpoint", json!("https://id.example.com/#a")),
            ("end_session_endpoint", json!("http://id.example.com")),
        ] {
            assert!(document(&[(name, value.clone())]).is_err(), "{name} {value}");
        }
        assert!(Metadata::parse(b"<html>", ISSUER).is_err());
        assert_eq!(Metadata::address("https://a/"), "https://a/.well-known/openid-configuration");
    }

    #[test]
    fn scopes_and_the_way_of_the_secret_are_those_of_the_provider() {
        assert_eq!(document(&[]).unwrap().scopes_supported, ["openid", "email", "phone"]);
        let takes_basic = |methods: Value| {
            document(&[("token_endpoint_auth_methods_supported", methods)]).unwrap().takes_basic()
        };
        assert!(document(&[]).unwrap().takes_basic());
        assert!(takes_basic(json!(["client_secret_post", "client_secret_basic"])));
        assert!(!takes_basic(json!(["client_secret_post", "none"])));
    }
}
