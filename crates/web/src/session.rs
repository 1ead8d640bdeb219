//! Sessions of browsers. A session is a cookie that only the replicas with the same key can read and make: it holds the
//! user's token, so that every page is for what that token may see, and every action is made with it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use sluice_core::lock::lock;

use crate::cookie::CookieKind;
use crate::session_keys::SessionKeys;

/// The cookie of a session.
const COOKIE: CookieKind = CookieKind {
    name: "sluice-session",
    secure_name: "__Host-sluice-session",
    path: "/",
    same_site: "Strict",
};
/// What a session is sealed for.
const PURPOSE: &str = "sluice-session";
/// How long a session lasts at most. The token may end earlier.
const LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// How far the clock of the API server may be ahead.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(10);
/// The most bytes of a cookie that browsers keep ([RFC 6265](https://www.rfc-editor.org/rfc/rfc6265), section 6.1).
const MAX_COOKIE_BYTES: usize = 4096;
/// The most bytes of a token: sealing adds a third.
pub(crate) const MAX_TOKEN_BYTES: usize = 2800;

/// How many sessions that people have ended are remembered.
const MAX_ENDED: usize = 10_000;

/// A session.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The user's token.
    pub token: String,
    /// What forms of this session send back, so that no other site can send them.
    pub form_token: String,
    /// When it ends, in seconds since the Unix epoch.
    ends: u64,
    /// When the token ends, if that is known. The API server checks it in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_ends: Option<u64>,
    /// What the identity provider gives another token for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
}

/// The tokens of somebody who signs in.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    /// The token for the hub.
    pub token: String,
    /// When it ends, in seconds since the Unix epoch, if that is known.
    pub ends: Option<u64>,
    /// What the identity provider gives another token for.
    pub refresh_token: Option<String>,
}

impl Session {
    /// Returns whether the token has ended, also by a clock that is a little ahead. Then the person signs in again, or the
    /// identity provider gives another one.
    pub(crate) fn token_has_ended(&self, now: SystemTime) -> bool {
        self.token_ends.is_some_and(|ends| ends <= seconds(now + CLOCK_MARGIN))
    }
}

/// Makes and reads sessions.
pub(crate) struct Sessions {
    /// `None` if the system gave no random numbers; then there are no sessions.
    keys: Option<SessionKeys>,
    /// Whether browsers reach the pages over TLS only.
    is_secure: bool,
    /// The form tokens of the sessions that people have ended, and when each would have ended: somebody may have a copy of
    /// the cookie.
    ended: Mutex<HashMap<String, u64>>,
}

impl Default for Sessions {
    /// Sessions with a key of this process: they end with it.
    fn default() -> Self {
        Sessions::new(None, false)
    }
}

impl Sessions {
    /// Returns sessions with these keys; with a key of this process if there are none.
    pub(crate) fn new(keys: Option<SessionKeys>, is_secure: bool) -> Self {
        let keys = keys.or_else(|| SessionKeys::random().ok());
        Sessions { keys, is_secure, ended: Mutex::default() }
    }

    /// The keys.
    pub(crate) fn keys(&self) -> Option<&SessionKeys> {
        self.keys.as_ref()
    }

    /// Returns whether browsers reach the pages over TLS only.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the value of the header `Set-Cookie` that begins a session; `None` if no random numbers can be had.
    pub(crate) fn begin(&self, tokens: Tokens, now: SystemTime) -> Option<HeaderValue> {
        let form_token = self.keys.as_ref()?.random_text::<16>()?;
        let session = Session {
            token: tokens.token,
            form_token,
            ends: seconds(now + LIFETIME),
            token_ends: tokens.ends,
            refresh_token: tokens.refresh_token,
        };
        self.cookie(session, now)
    }

    /// Returns the value of the header `Set-Cookie` for a session that continues with other tokens. Its forms stay valid, and
    /// it does not end later.
    pub(crate) fn renew(&self, session: &Session, tokens: Tokens, now: SystemTime) -> Option<HeaderValue> {
        let Tokens { token, ends, refresh_token } = tokens;
        let renewed = Session { token, token_ends: ends, refresh_token, ..session.clone() };
        self.cookie(renewed, now)
    }

    /// Without the refresh token if both do not fit.
    fn cookie(&self, mut session: Session, now: SystemTime) -> Option<HeaderValue> {
        loop {
            let token_ends = session.token_ends.filter(|_| session.refresh_token.is_none());
            let ends = token_ends.map_or(session.ends, |at| at.min(session.ends));
            let sealed = self.keys.as_ref()?.seal(PURPOSE, &serde_json::to_vec(&session).ok()?)?;
            let cookie = COOKIE.set(&sealed, ends.saturating_sub(seconds(now)), self.is_secure)?;
            if cookie.len() <= MAX_COOKIE_BYTES || session.refresh_token.take().is_none() {
                return Some(cookie);
            }
        }
    }

    /// Returns the session that a request belongs to.
    pub(crate) fn of(&self, headers: &HeaderMap, now: SystemTime) -> Option<Session> {
        let keys = self.keys.as_ref()?;
        // Another server of this machine can set a cookie of the same name. Only one that these keys made is read.
        let session = COOKIE
            .values(headers, self.is_secure)
            .find_map(|sealed| serde_json::from_slice::<Session>(&keys.open(PURPOSE, sealed)?).ok())?;
        let ended = lock(&self.ended);
        (session.ends > seconds(now) && !ended.contains_key(&session.form_token)).then_some(session)
    }

    /// Ends a session, also for those who have a copy of its cookie. Returns the value of the header `Set-Cookie` that removes
    /// the cookie.
    pub(crate) fn end(&self, session: Option<Session>, now: SystemTime) -> Option<HeaderValue> {
        if let Some(session) = session {
            let mut ended = lock(&self.ended);
            ended.retain(|_, ends| *ends > seconds(now));
            if ended.len() >= MAX_ENDED {
                let first = ended.iter().min_by_key(|(_, ends)| **ends).map(|(token, _)| token.clone());
                first.and_then(|first| ended.remove(&first));
            }
            ended.insert(session.form_token, session.ends);
        }
        COOKIE.set("", 0, self.is_secure)
    }
}

/// Returns the seconds since the Unix epoch.
pub(crate) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn request(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookie).unwrap())])
    }

    fn pair(cookie: &HeaderValue) -> String {
        cookie.to_str().unwrap().split(';').next().unwrap().into()
    }

    fn tokens(token: &str) -> Tokens {
        Tokens { token: token.into(), ..Tokens::default() }
    }

    #[test]
    fn a_session_is_read_by_the_process_that_made_it_until_it_ends() {
        let (sessions, now) = (Sessions::default(), SystemTime::now());
        let cookie = sessions.begin(tokens("secret"), now).unwrap();
        assert!(!cookie.to_str().unwrap().contains("secret"));
        let headers = request(&format!("a=b; {}", pair(&cookie)));
        assert_eq!(sessions.of(&headers, now).unwrap().token, "secret");
        assert!(sessions.of(&headers, now + LIFETIME).is_none(), "it has ended");
        assert!(Sessions::default().of(&headers, now).is_none(), "another process made it");
        let other = sessions.begin(tokens("secret"), now).unwrap();
        assert_ne!(pair(&cookie), pair(&other));
        // A cookie of another server does not hide it.
        let planted = request(&format!("sluice-session=planted; {}", pair(&cookie)));
        assert_eq!(sessions.of(&planted, now).unwrap().token, "secret");
    }

    #[test]
    fn a_copy_of_the_cookie_of_a_session_that_was_ended_is_no_session() {
        let (sessions, now) = (Sessions::default(), SystemTime::now());
        let begin = || request(&pair(&sessions.begin(tokens("secret"), now).unwrap()));
        let (copy, other) = (begin(), begin());
        let session = sessions.of(&copy, now).unwrap();
        let renewed = request(&pair(&sessions.renew(&session, tokens("newer"), now).unwrap()));
        assert!(sessions.end(Some(session), now).unwrap().to_str().unwrap().contains("Max-Age=0;"));
        assert!(sessions.of(&copy, now).is_none() && sessions.of(&renewed, now).is_none());
        assert!(sessions.of(&other, now).is_some(), "another session of the same person continues");
        for _ in 0..MAX_ENDED {
            sessions.end(sessions.of(&begin(), now), now);
        }
        assert_eq!(sessions.ended.lock().unwrap().len(), MAX_ENDED);
        sessions.end(sessions.of(&other, now), now + LIFETIME);
        assert_eq!(sessions.ended.lock().unwrap().len(), 1, "those that would have ended are forgotten");
    }

    #[test]
    fn over_tls_no_other_server_of_the_site_can_set_the_cookie() {
        let (key, now) = (|| SessionKeys::parse(&[7; 32]).ok(), SystemTime::now());
        let (plain, secure) = (Sessions::new(key(), false), Sessions::new(key(), true));
        let cookie = secure.begin(tokens("secret"), now).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(text.starts_with("__Host-sluice-session=") && text.ends_with("; Secure"), "{text}");
        assert!(text.contains("; Path=/;") && !text.contains("Domain"), "{text}");
        assert!(secure.of(&request(&pair(&cookie)), now).is_some());
        let without_prefix = pair(&cookie).replace("__Host-", "");
        assert!(secure.of(&request(&without_prefix), now).is_none(), "it may be planted");
        // Another replica with the same key reads it.
        assert!(Sessions::new(key(), true).of(&request(&pair(&cookie)), now).is_some());
        assert!(plain.of(&request(&without_prefix), now).is_some());
    }

    #[test]
    fn a_changed_cookie_is_no_session() {
        let (sessions, now) = (Sessions::default(), SystemTime::now());
        let cookie = pair(&sessions.begin(tokens("secret"), now).unwrap());
        let value = cookie.split_once('=').unwrap().1;
        let bytes = URL_SAFE_NO_PAD.decode(value).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let headers = request(&format!("sluice-session={}", URL_SAFE_NO_PAD.encode(changed)));
            assert!(sessions.of(&headers, now).is_none(), "{place}");
        }
        for bad in ["", "=", "a", "AAAA"] {
            assert!(sessions.of(&request(&format!("sluice-session={bad}")), now).is_none());
        }
    }

    #[test]
    fn the_longest_token_fits_into_a_cookie_and_a_refresh_token_if_there_is_room() {
        let (sessions, now) = (Sessions::new(None, true), SystemTime::now());
        let with = |token: usize, refresh: usize| {
            let refresh_token = (refresh > 0).then(|| "r".repeat(refresh));
            let tokens = Tokens { token: "x".repeat(token), ends: Some(seconds(now) + 600), refresh_token };
            let cookie = sessions.begin(tokens, now).unwrap();
            assert!(cookie.len() <= MAX_COOKIE_BYTES, "{}", cookie.len());
            (sessions.of(&request(&pair(&cookie)), now).unwrap(), cookie)
        };
        let (session, cookie) = with(MAX_TOKEN_BYTES, 0);
        assert!(cookie.to_str().unwrap().contains("Max-Age=600;"), "it ends with its token");
        assert!(!session.token_has_ended(now) && session.token_has_ended(now + Duration::from_secs(600)));
        let (session, cookie) = with(1500, 1000);
        assert!(session.refresh_token.is_some() && cookie.to_str().unwrap().contains("Max-Age=28800;"));
        assert!(with(MAX_TOKEN_BYTES, 1000).0.refresh_token.is_none(), "then the person signs in again");
        // Other tokens do not make a session longer, and its forms stay valid.
        let later = now + Duration::from_secs(3600);
        let renewed = sessions.renew(&session, tokens("y"), later).unwrap();
        assert!(renewed.to_str().unwrap().contains("Max-Age=25200;"), "{renewed:?}");
        let renewed = sessions.of(&request(&pair(&renewed)), later).unwrap();
        assert_eq!((renewed.token.as_str(), renewed.form_token), ("y", session.form_token));
    }
}
