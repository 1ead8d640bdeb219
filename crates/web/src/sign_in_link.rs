//! A link that signs in the only user of a server, once.

use std::sync::Mutex;

use sha2::{Digest, Sha256};
use sluice_core::lock::lock;

/// A link that signs in the only user of a server, once. Its address may stay in the history of the browser, so it must be
/// worth nothing after that.
pub(crate) struct SignInLink {
    code: Mutex<Option<String>>,
    token: String,
}

impl SignInLink {
    /// Returns a link with this code. It begins a session with this token.
    pub(crate) fn new(code: String, token: String) -> Self {
        SignInLink { code: Mutex::new(Some(code)), token }
    }

    /// Returns the token for the code, the first time.
    pub(crate) fn redeem(&self, code: &str) -> Option<&str> {
        let mut stored = lock(&self.code);
        // The time of a comparison of digests says nothing about the code.
        let is_it = stored.as_ref().is_some_and(|stored| Sha256::digest(stored) == Sha256::digest(code));
        is_it.then(|| {
            stored.take();
            self.token.as_str()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_redeemed_once_and_a_wrong_one_does_not_use_it_up() {
        let link = SignInLink::new("code".into(), "token".into());
        assert_eq!(link.redeem("cod"), None);
        assert_eq!(link.redeem(""), None);
        assert_eq!(link.redeem("code"), Some("token"));
        assert_eq!(link.redeem("code"), None);
    }
}
