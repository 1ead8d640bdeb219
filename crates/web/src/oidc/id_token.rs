//! What an ID token says, and whether it is the one that was asked for.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::error::OidcError;
use crate::session::seconds;

/// What an ID token says.
///
/// Its signature is not checked here, but by the hub's API server before the token counts. Section 3.1.3.7 of
/// [OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation) allows a client to rely
/// on TLS for a token that it gets directly from the token endpoint.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    iss: String,
    pub sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    /// When it ends, in seconds since the Unix epoch.
    pub exp: u64,
    #[serde(default)]
    pub nonce: Option<String>,
}

/// For whom a token is.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Reads the claims of a token.
    pub fn read(token: &str) -> Result<Claims, OidcError> {
        let unreadable = OidcError::IdToken("it is no ID token");
        let parts: Vec<&str> = token.split('.').collect();
        let [_, payload, _] = parts[..] else { return Err(unreadable) };
        let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|_| unreadable.clone())?;
        serde_json::from_slice(&bytes).map_err(|_| unreadable)
    }

    /// Checks that the token is of this issuer, for this client, and has not ended.
    pub fn check(&self, issuer: &str, client_id: &str, now: SystemTime) -> Result<(), OidcError> {
        let (is_for_us, others) = match &self.aud {
            Audience::One(one) => (one == client_id, false),
            Audience::Many(many) => (many.iter().any(|one| one == client_id), many.len() > 1),
        };
        let azp = self.azp.as_deref();
        if self.iss != issuer {
            return Err(OidcError::IdToken("it is of another issuer"));
        }
        if !is_for_us || azp.is_some_and(|azp| azp != client_id) || others && azp.is_none() {
            return Err(OidcError::IdToken("it is for another client"));
        }
        if self.exp <= seconds(now) {
            return Err(OidcError::IdToken("it has ended"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://id.example.com";

    fn checked(changed: &[(&str, Value)]) -> Result<(), OidcError> {
        let now = SystemTime::now();
        let mut payload = json!({"iss": ISSUER, "sub": "jane", "aud": "sluice", "exp": seconds(now) + 60});
        for (name, value) in changed {
            payload[*name] = value.clone();
        }
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload.to_string()));
        Claims::read(&token)?.check(ISSUER, "sluice", now)
    }

    #[test]
    fn only_a_token_for_this_client_of_this_issuer_counts() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[("aud", json!(["sluice"]))]), Ok(()));
        assert_eq!(checked(&[("aud", json!(["other", "sluice"])), ("azp", json!("sluice"))]), Ok(()));
        for changed in [
            vec![("iss", json!("https://evil.example"))],
            vec![("aud", json!("other"))],
            vec![("aud", json!([]))],
            vec![("aud", json!(["other", "sluice"]))],
            vec![("aud", json!(["other", "sluice"])), ("azp", json!("other"))],
            vec![("azp", json!("other"))],
            vec![("exp", json!(1))],
            vec![("exp", json!("soon"))],
            vec![("sub", Value::Null)],
        ] {
            assert!(checked(&changed).is_err(), "{changed:?}");
        }
        for token in ["", "a.b", "a.b.c", "a.e30.c", "a.b.c.d.e", "opaque"] {
            assert!(Claims::read(token).is_err(), "{token}");
        }
    }
}
