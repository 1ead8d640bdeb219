//! The keys of sessions. What is sealed or signed with them can be made only by the replicas that have the same keys.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// The bytes of a key.
const KEY_BYTES: usize = 32;
/// The most keys: one that is used, and one that is about to be used or was used before.
const MAX_KEYS: usize = 2;

/// The keys of sessions: one that makes them, and perhaps another whose sessions are read too, while keys are rotated.
pub struct SessionKeys {
    /// The first one seals and signs.
    keys: Vec<SessionKey>,
    random: SystemRandom,
}

struct SessionKey {
    seal: LessSafeKey,
    sign: hmac::Key,
}

/// Why a file with keys of sessions cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionKeyError {
    /// It has no key, or too many.
    #[error("it has {0} keys: write one, or two while keys are rotated")]
    Count(usize),
    /// A word is no key.
    #[error("key {0} is not 32 bytes in base64: make one with openssl rand -base64 32")]
    Length(usize),
    /// The system gave no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

impl SessionKeys {
    /// Returns a key that only this process has.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn random() -> Result<SessionKeys, SessionKeyError> {
        let random = SystemRandom::new();
        let mut bytes = [0; KEY_BYTES];
        random.fill(&mut bytes).map_err(|_| SessionKeyError::Random)?;
        Ok(SessionKeys { keys: vec![SessionKey::new(&bytes, 1)?], random })
    }

    /// Reads the keys of a file: 32 bytes, or one or two keys in base64. Sessions are made with the first one.
    ///
    /// # Errors
    /// When the file has something else.
    pub fn parse(file: &[u8]) -> Result<SessionKeys, SessionKeyError> {
        let random = SystemRandom::new();
        if file.len() == KEY_BYTES {
            return Ok(SessionKeys { keys: vec![SessionKey::new(file, 1)?], random });
        }
        let text = std::str::from_utf8(file).map_err(|_| SessionKeyError::Length(1))?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.is_empty() || words.len() > MAX_KEYS {
            return Err(SessionKeyError::Count(words.len()));
        }
        let key = |(word, number): (&&str, usize)| SessionKey::new(&decoded(word), number);
        Ok(SessionKeys { keys: words.iter().zip(1..).map(key).collect::<Result<_, _>>()?, random })
    }

    /// Returns so many random bytes in base64; `None` if the system gives none.
    pub(crate) fn random_text<const BYTES: usize>(&self) -> Option<String> {
        let mut bytes = [0; BYTES];
        self.random.fill(&mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Encrypts a text so that it can be opened for the same purpose only. `None` if the system gives no random numbers.
    pub(crate) fn seal(&self, purpose: &str, plain: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.keys.first()?.seal.seal_in_place_append_tag(unique, Aad::from(purpose), &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Returns what was sealed for a purpose with one of the keys.
    pub(crate) fn open(&self, purpose: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.keys.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            key.seal.open_in_place(nonce, Aad::from(purpose), &mut sealed).ok().map(|plain| plain.to_vec())
        })
    }

    /// Returns the signatures of a text by each key, the one that is used first.
    pub(crate) fn signatures(&self, text: &str) -> Vec<String> {
        let sign = |key: &SessionKey| URL_SAFE_NO_PAD.encode(hmac::sign(&key.sign, text.as_bytes()));
        self.keys.iter().map(sign).collect()
    }
}

impl SessionKey {
    fn new(bytes: &[u8], number: usize) -> Result<SessionKey, SessionKeyError> {
        let wrong = |_| SessionKeyError::Length(number);
        let seal = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).map_err(wrong)?);
        // One key for each use.
        let sign = hmac::sign(&hmac::Key::new(HMAC_SHA256, bytes), b"the signing key");
        Ok(SessionKey { seal, sign: hmac::Key::new(HMAC_SHA256, sign.as_ref()) })
    }
}

/// Returns the bytes of a text in either alphabet of base64; none if it is something else.
fn decoded(word: &str) -> Vec<u8> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decode = |alphabet| GeneralPurpose::new(alphabet, config).decode(word);
    decode(&STANDARD).or_else(|_| decode(&URL_SAFE)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const B: &str = "-_-_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn keys(file: &str) -> SessionKeys {
        SessionKeys::parse(file.as_bytes()).unwrap()
    }

    #[test]
    fn replicas_with_the_same_key_open_what_each_other_sealed() {
        let sealed = keys(A).seal("session", b"secret").unwrap();
        for same in [format!("{A}\n"), format!("{B}\n{A}\n"), format!("{A} {B}")] {
            assert_eq!(keys(&same).open("session", &sealed).as_deref(), Some(&b"secret"[..]), "{same}");
            assert!(keys(&same).open("sign-in", &sealed).is_none(), "it was sealed for something else");
        }
        assert!(keys(B).open("session", &sealed).is_none());
        assert!(SessionKeys::random().unwrap().open("session", &sealed).is_none());
        let raw = SessionKeys::parse(&[0; 32]).unwrap();
        assert!(raw.open("session", &sealed).is_some(), "the same key as bytes");
        assert_eq!(keys(&format!("{B} {A}")).signatures("x")[1..], keys(A).signatures("x"));
        assert_ne!(keys(A).signatures("x"), keys(A).signatures("y"));
    }

    #[test]
    fn a_file_with_something_else_is_refused() {
        for (file, why) in [
            (String::new(), SessionKeyError::Count(0)),
            (format!("{A} {A} {A}"), SessionKeyError::Count(3)),
            ("password".into(), SessionKeyError::Length(1)),
            (format!("{A} AAAA"), SessionKeyError::Length(2)),
        ] {
            assert_eq!(SessionKeys::parse(file.as_bytes()).err(), Some(why), "{file}");
        }
        assert_eq!(SessionKeys::parse(&[0xff; 31]).err(), Some(SessionKeyError::Length(1)));
    }
}
