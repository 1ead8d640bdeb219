//! Credentials over plain http: everybody on the network path can read them, and on the loopback interface other
//! processes may listen. One check for git and for the forges.

use crate::credentials::Credentials;
use crate::git::error::GitError;

/// Rejects credentials for an address of this scheme, unless that is allowed.
pub(crate) fn check(
    allowed: bool,
    scheme: &str,
    address: &str,
    credentials: &Credentials,
) -> Result<(), GitError> {
    let sends = credentials.password.is_some() || credentials.token.is_some() || credentials.app.is_some();
    match scheme == "http" && sends && !allowed {
        true => Err(GitError::PlainHttp { repository: address.into() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_over_plain_http_are_refused() {
        let token = Credentials { token: Some("t".into()), ..Credentials::default() };
        let password = Credentials { password: Some("p".into()), ..Credentials::default() };
        let none = Credentials::default();
        for (allowed, scheme, credentials, is) in [
            (false, "http", &token, false),
            (false, "http", &password, false),
            (true, "http", &token, true),
            (false, "http", &none, true),
            (false, "https", &token, true),
            (false, "ssh", &password, true),
        ] {
            assert_eq!(check(allowed, scheme, "http://127.0.0.1/a/b", credentials).is_ok(), is, "{scheme}");
        }
        let refused = check(false, "http", "http://h/a", &token).unwrap_err();
        assert_eq!(refused.reason(), "PlainHttpRefused");
        assert!(refused.to_string().contains("--insecure-git-http"), "{refused}");
    }
}
