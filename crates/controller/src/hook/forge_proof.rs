//! How a forge shows the pipeline's key in a call of the endpoint `/forge`. Each kind of forge does this in its own way.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac;

use super::signature;

/// How a forge shows that it has a key.
#[derive(Debug, PartialEq, Eq)]
pub enum ForgeProof {
    /// The HMAC of the body, as `sha256=<hex>`.
    Signature(Vec<u8>),
    /// The key itself.
    Key(Vec<u8>),
}

impl ForgeProof {
    /// Reads the proof from the headers; only the first proof that is present is used. GitHub sends
    /// `X-Hub-Signature-256`, both Bitbuckets send `X-Hub-Signature` (support.atlassian.com, "Manage webhooks"),
    /// Gitea and Forgejo send the HMAC as hexadecimal digits alone in `X-Gitea-Signature` and
    /// `X-Forgejo-Signature` (docs.gitea.com/usage/webhooks), GitLab sends `X-Gitlab-Token`, and Azure DevOps
    /// sends the key as the password of basic authentication.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let header = |name: &str| headers.get(name).map(|value| value.as_bytes().to_vec());
        let hex_header = |name: &str| header(name).map(|hex| [&b"sha256="[..], &hex].concat());
        let signature = header("x-hub-signature-256")
            .or_else(|| hex_header("x-forgejo-signature"))
            .or_else(|| hex_header("x-gitea-signature"))
            .or_else(|| header("x-hub-signature"));
        let password = || {
            let basic = header("authorization")?;
            let decoded = STANDARD.decode(basic.strip_prefix(b"Basic ")?).ok()?;
            let colon = decoded.iter().position(|b| *b == b':')?;
            Some(decoded[colon + 1..].to_vec())
        };
        signature.map(Self::Signature).or_else(|| header("x-gitlab-token").or_else(password).map(Self::Key))
    }

    /// Returns true if the proof was made with one of these keys. The time of the check does not depend on their
    /// values.
    pub fn verifies(&self, body: &[u8], keys: &[&[u8]]) -> bool {
        match self {
            ForgeProof::Signature(header) => signature::is_signed(header, body, keys.iter().copied()),
            ForgeProof::Key(shown) => {
                // The HMACs of the texts are compared, which takes constant time for texts of any length.
                let by = hmac::Key::new(hmac::HMAC_SHA256, b"comparison");
                let tag = hmac::sign(&by, shown);
                let mut good = false;
                for key in keys.iter().map(|key| key.trim_ascii()).filter(|key| !key.is_empty()) {
                    good |= hmac::verify(&by, key, tag.as_ref()).is_ok();
                }
                good
            }
        }
    }
}
