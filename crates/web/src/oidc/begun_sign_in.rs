//! What the browser keeps between the redirect to the identity provider and the way back.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cookie::CookieKind;
use crate::session::{Sessions, seconds};

/// The cookie. It is `Lax`, because the way back begins at another site.
const COOKIE: CookieKind = CookieKind {
    name: "sluice-sign-in",
    secure_name: "__Host-sluice-sign-in",
    path: "/sign-in",
    same_site: "Lax",
};
/// What the cookie is sealed for.
const PURPOSE: &str = "sluice-sign-in";
/// How long a person may take to sign in at the provider.
const LIFETIME: Duration = Duration::from_secs(600);
/// The most bytes of the address to go back to: the cookie must fit.
const MAX_RETURN_BYTES: usize = 1024;

/// A sign-in that has begun in a browser.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct BegunSignIn {
    /// Ties the answer to this browser, so that nobody can sign a person in as somebody else
    /// ([RFC 9700](https://www.rfc-editor.org/rfc/rfc9700), section 4.7).
    pub state: String,
    /// Ties the ID token to this sign-in
    /// ([OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#NonceNotes), section 15.5.2).
    pub nonce: String,
    /// Ties the code to this sign-in: only its digest goes through the browser's address
    /// ([RFC 7636](https://www.rfc-editor.org/rfc/rfc7636), section 4.1).
    pub verifier: String,
    /// The page to go back to.
    pub to: String,
    /// When it ends, in seconds since the Unix epoch.
    ends: u64,
}

impl BegunSignIn {
    /// Begins a sign-in that leads to a page; `None` if the system gives no random numbers.
    pub(crate) fn begin(sessions: &Sessions, to: &str, now: SystemTime) -> Option<BegunSignIn> {
        let keys = sessions.keys()?;
        Some(BegunSignIn {
            state: keys.random_text::<16>()?,
            nonce: keys.random_text::<16>()?,
            verifier: keys.random_text::<32>()?,
            to: if to.len() > MAX_RETURN_BYTES { "/".into() } else { to.into() },
            ends: seconds(now + LIFETIME),
        })
    }

    /// Returns the sign-in that has begun in the browser of a request.
    pub(crate) fn of(sessions: &Sessions, headers: &HeaderMap, now: SystemTime) -> Option<BegunSignIn> {
        let keys = sessions.keys()?;
        let open = |sealed| serde_json::from_slice::<BegunSignIn>(&keys.open(PURPOSE, sealed)?).ok();
        let flow = COOKIE.values(headers, sessions.is_secure()).find_map(open)?;
        (flow.ends > seconds(now)).then_some(flow)
    }

    /// Returns the header `Set-Cookie` that keeps it.
    pub(crate) fn cookie(&self, sessions: &Sessions) -> Option<HeaderValue> {
        let sealed = sessions.keys()?.seal(PURPOSE, &serde_json::to_vec(self).ok()?)?;
        COOKIE.set(&sealed, LIFETIME.as_secs(), sessions.is_secure())
    }

    /// Returns the header `Set-Cookie` that forgets it.
    pub(crate) fn forget(sessions: &Sessions) -> Option<HeaderValue> {
        COOKIE.set("", 0, sessions.is_secure())
    }

    /// Returns the digest of the verifier (RFC 7636, section 4.2, method S256).
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn a_sign_in_is_known_to_its_browser_for_ten_minutes() {
        let (sessions, now) = (Sessions::new(None, true), SystemTime::now());
        let flow = BegunSignIn::begin(&sessions, &format!("/{}", "a".repeat(1023)), now).unwrap();
        let cookie = flow.cookie(&sessions).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(text.len() < 4096 && !text.contains(&flow.verifier) && !text.contains(&flow.state));
        assert!(text.contains("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"), "{text}");
        let local = flow.cookie(&Sessions::default()).unwrap();
        let local = local.to_str().unwrap();
        assert!(local.ends_with("; Path=/sign-in; Max-Age=600; HttpOnly; SameSite=Lax"), "{local}");
        let pair = HeaderValue::from_str(text.split(';').next().unwrap()).unwrap();
        let headers = HeaderMap::from_iter([(header::COOKIE, pair)]);
        assert_eq!(BegunSignIn::of(&sessions, &headers, now).unwrap().state, flow.state);
        assert!(BegunSignIn::of(&sessions, &headers, now + LIFETIME).is_none());
        assert!(
            BegunSignIn::of(&Sessions::new(None, true), &headers, now).is_none(),
            "another process made it"
        );
        assert!(sessions.of(&headers, now).is_none(), "it is no session");
        assert_eq!(BegunSignIn::begin(&sessions, &"a".repeat(1025), now).unwrap().to, "/");
    }

    #[test]
    fn the_challenge_is_that_of_the_example_of_rfc_7636() {
        let sessions = Sessions::default();
        let mut flow = BegunSignIn::begin(&sessions, "/", SystemTime::now()).unwrap();
        assert_eq!(flow.verifier.len(), 43);
        // Appendix B.
        flow.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        assert_eq!(flow.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
