//! Credentials out of a Secret. They are never shown: neither by `Debug` nor in any message.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::fingerprint::fingerprint;
use crate::forge_kind::ForgeKind;
use crate::redaction::without_secrets;

/// The content of a Secret for a repository and its forge, or for a webhook.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// For git over HTTP.
    pub username: Option<String>,
    /// For git over HTTP. May be a token.
    pub password: Option<String>,
    /// For the forge's API. Also for git over HTTP if there is no password.
    pub token: Option<String>,
    /// Certificates to trust, PEM.
    pub ca_file: Option<Vec<u8>>,
    /// The private key for git over SSH.
    pub identity: Option<Vec<u8>>,
    /// The keys of SSH servers, in OpenSSH's format.
    pub known_hosts: Option<Vec<u8>>,
    /// The private key that signs commits, of OpenSSH or OpenPGP. Without it, commits are not signed.
    pub signing_key: Option<Vec<u8>>,
    /// The passphrase of the signing key.
    pub signing_passphrase: Option<String>,
    /// For webhooks: the bytes of the token, which sign the body.
    pub hmac_key: Option<Vec<u8>>,
    /// For webhooks: further headers, as a map in YAML.
    pub headers: Option<Vec<u8>>,
    /// For webhooks: the address, instead of the one in the pipeline.
    pub address: Option<String>,
    /// For webhooks: the address to which the receiver may report, and its token. Not from the Secret.
    pub callback: Option<(String, String)>,
    /// For webhooks: whether the Secret names a proxy, which this version does not support.
    pub proxy: bool,
    /// A GitHub App, which issues tokens.
    pub app: Option<GitHubApp>,
}

/// A GitHub App, by the keys of Flux in the Secret of a GitRepository with `provider: github`.
#[derive(Clone, PartialEq, Eq)]
pub struct GitHubApp {
    /// The id of the App, or its client id.
    pub(crate) id: String,
    /// The id of the installation; `None` for the installation of the repository.
    pub(crate) installation: Option<String>,
    /// The private key, in PEM.
    pub(crate) key: Vec<u8>,
    /// The address of the API, if it does not follow from the host of the repository.
    pub(crate) base: Option<String>,
}

impl GitHubApp {
    /// A fingerprint of the App and its key. One App has one rate budget, whatever its token: GitHub counts by
    /// installation. The key is part of it, because ids are not secret.
    pub(crate) fn fingerprint(&self) -> String {
        let base = self.base.as_deref().unwrap_or_default();
        let installation = self.installation.as_deref().unwrap_or_default();
        fingerprint([self.id.as_bytes(), installation.as_bytes(), base.as_bytes(), &self.key])
    }
}

/// Why a value of a Secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The value is not one line of text.
    #[error(
        "the key {key} of the Secret cannot be used: it {is}; write one line of text there (a line end at its very end \
         is ignored)"
    )]
    NoLine {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        is: &'static str,
    },
    /// The value is too long.
    #[error(
        "the key {key} of the Secret cannot be used: it has more than 256 KiB; write only what is needed there"
    )]
    TooLong {
        /// The key.
        key: String,
    },
}

impl CredentialsError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        "SecretInvalid"
    }
}

/// The keys whose values are one line of text, because they go into headers, addresses and arguments.
const LINE_KEYS: &str = "username password token bearerToken signingPassphrase address githubAppID \
    githubAppInstallationID githubAppBaseURL";

/// The longest value, in bytes: a bundle of all certificates that browsers trust has about 220 KiB. Each delivery in
/// flight holds its own copy.
const MAX_VALUE_BYTES: usize = 256 << 10;

/// A value as one line of text; empty if it is absent.
fn line(key: &'static str, value: &[u8]) -> Result<String, CredentialsError> {
    let error = |is| CredentialsError::NoLine { key, is };
    let text = std::str::from_utf8(value).map_err(|_| error("is not UTF-8"))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    match text.chars().find(|c| c.is_control()) {
        None => Ok(text.into()),
        Some('\r' | '\n') => Err(error("has more than one line")),
        Some(_) => Err(error("has a control character")),
    }
}

impl Credentials {
    /// Reads the data of a Secret, by the keys of Flux and of the predecessor. Text values lose the one line end that
    /// `kubectl create secret --from-file` adds.
    ///
    /// # Errors
    /// When a value is too long, or has more than one line where one is allowed: a second line would be a header of its
    /// own.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, CredentialsError> {
        if let Some((key, _)) = data.iter().find(|(_, value)| value.len() > MAX_VALUE_BYTES) {
            return Err(CredentialsError::TooLong { key: key.clone() });
        }
        let mut lines = BTreeMap::new();
        for key in LINE_KEYS.split_whitespace() {
            let value = data.get(key).map(Vec::as_slice).unwrap_or_default();
            lines.insert(key, line(key, value)?);
        }
        let bytes = |key: &str| data.get(key).filter(|v| !v.is_empty()).cloned();
        let text = |key: &str| lines.get(key).filter(|text| !text.is_empty()).cloned();
        let app = text("githubAppID").zip(bytes("githubAppPrivateKey")).map(|(id, key)| GitHubApp {
            id,
            installation: text("githubAppInstallationID"),
            key,
            base: text("githubAppBaseURL"),
        });
        Ok(Credentials {
            username: text("username"),
            password: text("password"),
            token: text("token").or_else(|| text("bearerToken")),
            ca_file: bytes("caFile").or_else(|| bytes("ca.crt")),
            identity: bytes("identity"),
            known_hosts: bytes("known_hosts"),
            signing_key: bytes("signingKey"),
            signing_passphrase: text("signingPassphrase"),
            hmac_key: bytes("token"),
            headers: bytes("headers"),
            address: text("address"),
            callback: None,
            proxy: bytes("proxy").is_some(),
            app,
        })
    }

    /// Returns how many bytes the credentials take.
    pub fn size(&self) -> usize {
        let texts = [&self.username, &self.password, &self.token, &self.signing_passphrase, &self.address];
        let files = [
            &self.ca_file,
            &self.identity,
            &self.known_hosts,
            &self.signing_key,
            &self.hmac_key,
            &self.headers,
        ];
        let app = self.app.as_ref().map_or(0, |app| app.key.len());
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        texts + files.into_iter().flatten().map(Vec::len).sum::<usize>() + app
    }

    /// A fingerprint of what a server sees: answers to one set of credentials are valid for every set with the same
    /// fingerprint. An App has the same fingerprint with all its tokens.
    pub(crate) fn fingerprint(&self) -> String {
        let app = self.app.as_ref().map(GitHubApp::fingerprint).unwrap_or_default();
        let token = self.token.as_deref().filter(|_| app.is_empty());
        let texts = [Some(app.as_str()), token, self.username.as_deref(), self.password.as_deref()];
        let files = [&self.identity, &self.known_hosts, &self.ca_file].map(Option::as_deref);
        let texts = texts.map(|text| text.map(str::as_bytes));
        fingerprint(texts.into_iter().chain(files).map(Option::unwrap_or_default))
    }

    /// User and password, or the token as password.
    pub(crate) fn basic(&self) -> Option<(&str, &str)> {
        let user = self.username.as_deref().unwrap_or(ANY_USER);
        self.password.as_deref().or(self.token.as_deref()).map(|password| (user, password))
    }

    /// The header `Authorization` for git over HTTP, if there are credentials. `forge` is the forge, if it is known.
    ///
    /// GitLab takes a token as the password of `oauth2`, Bitbucket an access token as that of
    /// `x-token-auth`; its API tokens go with an e-mail address at the API and with
    /// `x-bitbucket-api-token-auth` in git (support.atlassian.com, "Using API tokens"). Bitbucket Data
    /// Center takes tokens of projects and repositories in git only as `Bearer`
    /// (confluence.atlassian.com/bitbucketserver, "HTTP access tokens").
    pub(crate) fn for_git(&self, forge: Option<ForgeKind>) -> Option<String> {
        let given = self.username.as_deref();
        let user = match forge {
            Some(ForgeKind::Bitbucket) if given.is_some_and(|user| user.contains('@')) => BITBUCKET_USER,
            _ => given.or(forge.and_then(token_user)).unwrap_or(ANY_USER),
        };
        match (self.password.as_deref(), self.token.as_deref()) {
            (Some(password), _) => Some(basic(user, password)),
            (None, Some(token)) if forge == Some(ForgeKind::BitbucketServer) => {
                Some(format!("Bearer {token}"))
            }
            (None, Some(token)) if forge == Some(ForgeKind::Bitbucket) => Some(basic("x-token-auth", token)),
            (None, token) => Some(basic(user, token?)),
        }
    }

    /// Removes all secrets from a foreign text.
    pub(crate) fn redact(&self, text: &str) -> String {
        let plain = [self.password.clone(), self.token.clone(), self.signing_passphrase.clone()];
        let mut secrets: Vec<String> = plain.into_iter().flatten().filter(|s| !s.is_empty()).collect();
        let users =
            [self.username.as_deref().unwrap_or(ANY_USER), "", "oauth2", "x-token-auth", BITBUCKET_USER];
        let encoded: Vec<String> = secrets
            .iter()
            .flat_map(|secret| users.map(|user| STANDARD.encode(format!("{user}:{secret}"))))
            .collect();
        secrets.extend(encoded);
        without_secrets(text, secrets.iter().map(String::as_str))
    }
}

/// The user for tokens of GitHub Apps. Most forges accept any user with a token.
const ANY_USER: &str = "x-access-token";
/// The user of Bitbucket's API tokens.
const BITBUCKET_USER: &str = "x-bitbucket-api-token-auth";

/// The user that a forge requires with a token in git.
fn token_user(forge: ForgeKind) -> Option<&'static str> {
    match forge {
        ForgeKind::GitLab => Some("oauth2"),
        ForgeKind::Bitbucket => Some("x-token-auth"),
        _ => None,
    }
}

/// User and password as a header `Authorization`.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_and_never_shown() {
        let data = [("username", "flux\n"), ("password", "hunter2\n"), ("token", "t0ken"), ("caFile", "")];
        let data = data.map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())).into();
        let credentials = Credentials::from_secret(&data).unwrap();
        assert_eq!(credentials.basic(), Some(("flux", "hunter2")));
        assert_eq!(credentials.ca_file, None);
        let shown = format!("{credentials:?} {credentials:#?}");
        assert!(!shown.contains("hunter2") && !shown.contains("t0ken") && !shown.contains("flux"), "{shown}");
        assert_eq!(credentials.redact("a hunter2 b t0ken Zmx1eDpodW50ZXIy"), "a *** b *** ***");
    }

    #[test]
    fn a_short_password_is_not_shown_in_a_header_either() {
        let credentials = Credentials { password: Some("p".into()), ..Credentials::default() };
        let encoded = STANDARD.encode("x-access-token:p");
        assert!(!credentials.redact(&format!("Basic {encoded}")).contains(&encoded));
    }

    #[test]
    fn a_value_that_is_too_long_is_refused() {
        let of =
            |length: usize| Credentials::from_secret(&[("caFile".to_string(), vec![b'a'; length])].into());
        assert!(of(MAX_VALUE_BYTES).is_ok());
        let error = of(MAX_VALUE_BYTES + 1).unwrap_err();
        assert!(error.to_string().starts_with("the key caFile of the Secret"), "{error}");
    }

    #[test]
    fn a_value_of_more_than_one_line_is_refused_and_not_shown() {
        let of =
            |key: &str, value: &[u8]| Credentials::from_secret(&[(key.to_string(), value.to_vec())].into());
        for key in LINE_KEYS.split_whitespace() {
            for value in [
                &b"hunter2\nX-Injected: 1"[..],
                b"hunter2\r\nX-Injected: 1",
                b"hunter2\n\n",
                b"hunter2\r",
                b"\nhunter2",
                b"hunter2\0",
                b"hunter2\x1b[31m",
                b"\xff\xfehunter2",
            ] {
                let error = of(key, value).unwrap_err();
                let text = error.to_string();
                assert!(text.starts_with(&format!("the key {key} of the Secret")), "{text}");
                assert!(!text.contains("hunter2"), "{text}");
            }
            for value in [&b"hunter2"[..], b"hunter2\n", b"hunter2\r\n", b""] {
                of(key, value).unwrap();
            }
        }
        let key = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
        for name in ["identity", "caFile", "known_hosts", "signingKey", "githubAppPrivateKey", "headers"] {
            of(name, key).unwrap();
        }
    }

    #[test]
    fn git_gets_the_authorization_that_each_forge_requires() {
        use ForgeKind::{AzureDevOps, Bitbucket, BitbucketServer, GitHub, GitLab};
        let token = || Credentials { token: Some("t0ken".into()), ..Credentials::default() };
        let user = |name: &str| Credentials {
            username: Some(name.into()),
            password: Some("hunter2".into()),
            ..token()
        };
        let cases = [
            (None, token(), basic("x-access-token", "t0ken")),
            (Some(GitHub), token(), basic("x-access-token", "t0ken")),
            (Some(GitLab), token(), basic("oauth2", "t0ken")),
            (Some(Bitbucket), token(), basic("x-token-auth", "t0ken")),
            (Some(Bitbucket), user("me"), basic("me", "hunter2")),
            (Some(Bitbucket), user("me@example.com"), basic("x-bitbucket-api-token-auth", "hunter2")),
            (Some(BitbucketServer), token(), "Bearer t0ken".into()),
            (Some(BitbucketServer), user("me"), basic("me", "hunter2")),
            (Some(AzureDevOps), token(), basic("x-access-token", "t0ken")),
        ];
        for (forge, credentials, expected) in cases {
            assert_eq!(credentials.for_git(forge), Some(expected.clone()), "{forge:?}");
            assert!(!credentials.redact(&expected).contains(expected.rsplit(' ').next().unwrap()));
        }
        assert_eq!(Credentials::default().for_git(Some(GitLab)), None);
    }
}
