//! The header `Authorization` of each forge.

use crate::credentials::{Credentials, basic};

/// The form of the credentials that a forge accepts.
pub(super) enum AuthScheme {
    /// The token, or a password that is a token.
    Bearer,
    /// The token in the form of Gitea, or user and password.
    Token,
    /// The token, or user and password.
    BearerOrUser,
    /// The token as the password of a user with an empty name.
    EmptyUser,
}

impl AuthScheme {
    /// The value of the header, if there are credentials.
    pub(super) fn authorization(&self, credentials: &Credentials) -> Option<String> {
        let password = credentials.password.as_deref();
        Some(match (credentials.token.as_deref(), self) {
            (Some(token), AuthScheme::Bearer | AuthScheme::BearerOrUser) => format!("Bearer {token}"),
            (Some(token), AuthScheme::Token) => format!("token {token}"),
            (token, AuthScheme::EmptyUser) => basic("", token.or(password)?),
            // On GitHub and GitLab a password for git is a token; elsewhere it may be a real one.
            (None, AuthScheme::Bearer) => format!("Bearer {}", password?),
            (None, AuthScheme::Token | AuthScheme::BearerOrUser) => {
                let (user, password) = credentials.basic()?;
                basic(user, password)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_forge_gets_the_credentials_in_its_own_form() {
        let of = |token: Option<&str>, user: Option<&str>, password: Option<&str>| {
            let [token, username, password] = [token, user, password].map(|text| text.map(String::from));
            Credentials { token, username, password, ..Credentials::default() }
        };
        let (token, user) = (of(Some("t"), None, None), of(None, Some("me"), Some("p")));
        let bearer = || Some("Bearer t".to_string());
        let cases = [
            (AuthScheme::Bearer, bearer(), Some("Bearer p".into())),
            (AuthScheme::Token, Some("token t".into()), Some(basic("me", "p"))),
            (AuthScheme::BearerOrUser, bearer(), Some(basic("me", "p"))),
            (AuthScheme::EmptyUser, Some(basic("", "t")), Some(basic("", "p"))),
        ];
        for (scheme, by_token, by_user) in cases {
            assert_eq!(scheme.authorization(&token), by_token);
            assert_eq!(scheme.authorization(&user), by_user);
            assert_eq!(scheme.authorization(&Credentials::default()), None);
        }
    }
}
