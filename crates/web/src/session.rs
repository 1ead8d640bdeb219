//! Sessions of browsers. A session is a cookie that only this process can read and make: it holds the user's token, so
//! that every page is for what that token may see, and every action is made with it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// The name of the cookie.
const NAME: &str = "sluice-session";
/// How long a session lasts at most. The token may end earlier.
const LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// The most bytes of a token: browsers keep cookies of 4096 bytes
/// ([RFC 6265](https://www.rfc-editor.org/rfc/rfc6265), section 6.1), and sealing adds a third.
pub(crate) const MAX_TOKEN_BYTES: usize = 2800;

/// A session.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The user's token.
    pub token: String,
    /// What forms of this session send back, so that no other site can send them.
    pub form_token: String,
    /// When it ends, in seconds since the Unix epoch.
    ends: u64,
}

/// Makes and reads sessions.
pub(crate) struct Sessions {
    /// `None` if the system gave no random numbers; then there are no sessions.
    key: Option<LessSafeKey>,
    random: SystemRandom,
}

impl Default for Sessions {
    /// Sessions with a key of this process: they end with it.
    fn default() -> Self {
        let random = SystemRandom::new();
        let mut bytes = [0; 32];
        let filled = random.fill(&mut bytes).is_ok();
        let key = UnboundKey::new(&AES_256_GCM, &bytes).ok().filter(|_| filled).map(LessSafeKey::new);
        Sessions { key, random }
    }
}

impl Sessions {
    /// Returns the value of the header `Set-Cookie` that begins a session; `None` if no random numbers can be had.
    pub(crate) fn begin(&self, token: &str, now: SystemTime) -> Option<HeaderValue> {
        let mut form_token = [0; 16];
        self.random.fill(&mut form_token).ok()?;
        let session = Session {
            token: token.into(),
            form_token: URL_SAFE_NO_PAD.encode(form_token),
            ends: seconds(now + LIFETIME),
        };
        let sealed = self.seal(&serde_json::to_vec(&session).ok()?)?;
        cookie(&sealed, LIFETIME.as_secs())
    }

    /// Returns the session that a request belongs to.
    pub(crate) fn of(&self, headers: &HeaderMap, now: SystemTime) -> Option<Session> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut sealed = cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='));
        // Another server of this machine can set a cookie of the same name. Only one that this process made is read.
        let session =
            sealed.find_map(|sealed| serde_json::from_slice::<Session>(&self.open(sealed)?).ok())?;
        (session.ends > seconds(now)).then_some(session)
    }

    fn seal(&self, plain: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.as_ref()?.seal_in_place_append_tag(unique, Aad::from(NAME), &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    fn open(&self, sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.key.as_ref()?.open_in_place(nonce, Aad::from(NAME), &mut sealed).ok().map(|plain| plain.to_vec())
    }
}

/// Returns the value of the header `Set-Cookie` that ends a session.
pub(crate) fn end() -> Option<HeaderValue> {
    cookie("", 0)
}

fn cookie(value: &str, max_age: u64) -> Option<HeaderValue> {
    let text = format!("{NAME}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict");
    HeaderValue::from_str(&text).ok()
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).unwrap())])
    }

    fn pair(cookie: &HeaderValue) -> String {
        cookie.to_str().unwrap().split(';').next().unwrap().into()
    }

    #[test]
    fn a_session_is_read_by_the_process_that_made_it_until_it_ends() {
        let (sessions, now) = (Sessions::default(), SystemTime::now());
        let cookie = sessions.begin("secret", now).unwrap();
        assert!(!cookie.to_str().unwrap().contains("secret"));
        let headers = request(&format!("a=b; {}", pair(&cookie)));
        assert_eq!(sessions.of(&headers, now).unwrap().token, "secret");
        assert!(sessions.of(&headers, now + LIFETIME).is_none(), "it has ended");
        assert!(Sessions::default().of(&headers, now).is_none(), "another process made it");
        let other = sessions.begin("secret", now).unwrap();
        assert_ne!(pair(&cookie), pair(&other));
        // A cookie of another server does not hide it.
        let planted = request(&format!("{NAME}=planted; {}", pair(&cookie)));
        assert_eq!(sessions.of(&planted, now).unwrap().token, "secret");
    }

    #[test]
    fn a_changed_cookie_is_no_session() {
        let (sessions, now) = (Sessions::default(), SystemTime::now());
        let cookie = pair(&sessions.begin("secret", now).unwrap());
        let value = cookie.split_once('=').unwrap().1;
        let bytes = URL_SAFE_NO_PAD.decode(value).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let headers = request(&format!("{NAME}={}", URL_SAFE_NO_PAD.encode(changed)));
            assert!(sessions.of(&headers, now).is_none(), "{place}");
        }
        for bad in ["", "=", "a", "AAAA"] {
            assert!(sessions.of(&request(&format!("{NAME}={bad}")), now).is_none());
        }
    }

    #[test]
    fn the_longest_token_fits_into_a_cookie() {
        let cookie = Sessions::default().begin(&"x".repeat(MAX_TOKEN_BYTES), SystemTime::now()).unwrap();
        assert!(cookie.len() <= 4096, "{}", cookie.len());
    }
}
