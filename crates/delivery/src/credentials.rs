//! The rights that a delivery has, as they stand in a Secret. Never shown: neither by Debug nor in
//! any message.

use std::collections::BTreeMap;
use std::fmt;

/// What a Secret holds for a repository and its forge, or for a webhook.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// For git over HTTP.
    pub username: Option<String>,
    /// For git over HTTP; may be a token.
    pub password: Option<String>,
    /// For the forge's API; also for git over HTTP where there is no password.
    pub token: Option<String>,
    /// Certificates to trust, PEM.
    pub ca_file: Option<Vec<u8>>,
    /// The private key for git over SSH.
    pub identity: Option<Vec<u8>>,
    /// The keys of SSH servers, in OpenSSH's format.
    pub known_hosts: Option<Vec<u8>>,
    /// For webhooks: the token byte by byte, with which the body is signed.
    pub hmac_key: Option<Vec<u8>>,
    /// For webhooks: further headers, a map in YAML.
    pub headers: Option<Vec<u8>>,
    /// For webhooks: the address, in place of that in the pipeline.
    pub address: Option<String>,
    /// For webhooks: a proxy is named, which this version cannot use.
    pub proxy: bool,
}

impl Credentials {
    /// Reads the data of a Secret with the keys that Flux and the predecessor use. Text values lose
    /// the line end that `kubectl create secret --from-file` brings along.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let bytes = |key: &str| data.get(key).filter(|v| !v.is_empty()).cloned();
        let text = |key: &str| {
            let text = String::from_utf8(bytes(key)?).ok()?;
            let text = text.trim_end_matches(['\r', '\n']);
            (!text.is_empty()).then(|| text.to_string())
        };
        Credentials {
            username: text("username"),
            password: text("password"),
            token: text("token").or_else(|| text("bearerToken")),
            ca_file: bytes("caFile").or_else(|| bytes("ca.crt")),
            identity: bytes("identity"),
            known_hosts: bytes("known_hosts"),
            hmac_key: bytes("token"),
            headers: bytes("headers"),
            address: text("address"),
            proxy: bytes("proxy").is_some(),
        }
    }

    /// User and password for git over HTTP, if there are any.
    pub(crate) fn basic(&self) -> Option<(&str, &str)> {
        // GitHub's App tokens ask for this user; the others take any with a token.
        let user = self.username.as_deref().unwrap_or("x-access-token");
        self.password.as_deref().or(self.token.as_deref()).map(|password| (user, password))
    }

    /// Takes everything secret out of a text that came from elsewhere.
    pub(crate) fn redact(&self, text: &str) -> String {
        use base64::Engine;
        let encoded =
            self.basic().map(|(u, p)| base64::engine::general_purpose::STANDARD.encode(format!("{u}:{p}")));
        let secrets = [encoded.as_deref(), self.password.as_deref(), self.token.as_deref()];
        let mut secrets: Vec<&str> = secrets.into_iter().flatten().filter(|s| !s.is_empty()).collect();
        // One may be the beginning of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.into_iter().fold(text.to_string(), |text, secret| text.replace(secret, "***"))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |present: bool| if present { "***" } else { "none" };
        f.debug_struct("Credentials")
            .field("username", &has(self.username.is_some()))
            .field("password", &has(self.password.is_some()))
            .field("token", &has(self.token.is_some()))
            .field("ca_file", &has(self.ca_file.is_some()))
            .field("identity", &has(self.identity.is_some()))
            .field("known_hosts", &has(self.known_hosts.is_some()))
            .field("hmac_key", &has(self.hmac_key.is_some()))
            .field("headers", &has(self.headers.is_some()))
            .field("address", &has(self.address.is_some()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_and_never_shown() {
        let data = [("username", "flux\n"), ("password", "hunter2\n"), ("token", "t0ken"), ("caFile", "")];
        let data = data.map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())).into();
        let credentials = Credentials::from_secret(&data);
        assert_eq!(credentials.basic(), Some(("flux", "hunter2")));
        assert_eq!(credentials.ca_file, None);
        let shown = format!("{credentials:?} {credentials:#?}");
        assert!(!shown.contains("hunter2") && !shown.contains("t0ken") && !shown.contains("flux"), "{shown}");
        assert_eq!(credentials.redact("a hunter2 b t0ken Zmx1eDpodW50ZXIy"), "a *** b *** ***");
    }
}
