//! The headers of a call: those of the Secret, the signature in the form of Flux's generic-hmac, and Sluice's own.

use std::collections::BTreeMap;

use base64::Engine;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use ring::hmac;

use super::error::WebhookError;
use crate::credentials::{Credentials, basic};
use sluice_core::hex::hex;

/// Headers that a Secret must not set, because they say how the body is sent, and to which host.
const FRAMING: &str = "connection content-encoding content-length expect host keep-alive proxy-authorization te trailer \
    transfer-encoding upgrade";

/// The headers of a call with this body. Those of the Secret come first, so that they do not replace Sluice's own.
pub(super) fn headers(
    credentials: &Credentials,
    identity: &str,
    body: &[u8],
) -> Result<HeaderMap, WebhookError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let (Some(user), Some(password)) = (&credentials.username, &credentials.password) {
        headers.insert(AUTHORIZATION, secret_value(basic(user, password).as_bytes(), "password")?);
    }
    for (name, value) in from_secret(credentials)? {
        headers.insert(name, value);
    }
    let identity = HeaderValue::from_str(identity).map_err(|_| bad("the promotion has no identity"))?;
    headers.insert(HeaderName::from_static("idempotency-key"), identity);
    if let Some(key) = &credentials.hmac_key {
        let signature = format!("sha256={}", hex(hmac_sha256(key, body)));
        headers.insert(HeaderName::from_static("x-signature"), secret_value(signature.as_bytes(), "token")?);
    }
    Ok(headers)
}

/// The headers under the key `headers` of the Secret, a map in YAML.
fn from_secret(credentials: &Credentials) -> Result<Vec<(HeaderName, HeaderValue)>, WebhookError> {
    let Some(bytes) = &credentials.headers else { return Ok(Vec::new()) };
    // The message of the parser would quote the secret text.
    let no_map = || bad("its key headers is not a map in YAML of names to texts");
    let text = std::str::from_utf8(bytes).map_err(|_| no_map())?;
    let map: BTreeMap<String, String> = serde_saphyr::from_str(text).map_err(|_| no_map())?;
    let mut headers = Vec::new();
    for (i, (name, value)) in map.iter().enumerate() {
        let nth = i + 1;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| bad(&format!("name {nth} (in the order of names) under headers is no header's")))?;
        if FRAMING.split_whitespace().any(|framing| framing == name.as_str()) {
            return Err(bad(&format!("the header {name} is not its to set: take it out of headers")));
        }
        headers.push((name.clone(), secret_value(value.as_bytes(), name.as_str())?));
    }
    Ok(headers)
}

fn secret_value(bytes: &[u8], name: &str) -> Result<HeaderValue, WebhookError> {
    let mut value = HeaderValue::from_bytes(bytes).map_err(|_| {
        bad(&format!("the value of {name} cannot stand in a header: it has a line end or another control"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn bad(what: &str) -> WebhookError {
    WebhookError::BadSecret { what: what.into() }
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

/// All texts in a Secret that a reply could repeat and that must not be shown.
pub(super) fn secrets(credentials: &Credentials) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut add = |text: &str| {
        // Without a value such as 1 or json, most sentences would be unreadable.
        for part in [text].into_iter().chain(text.split_whitespace()).filter(|part| part.len() >= 6) {
            secrets.push(part.to_string());
        }
    };
    if let Some(key) = &credentials.hmac_key {
        add(&String::from_utf8_lossy(key));
        add(&base64::engine::general_purpose::STANDARD.encode(key));
    }
    if let Some((_, token)) = &credentials.callback {
        add(token);
    }
    if let Some((user, password)) = credentials.basic() {
        add(password);
        add(&base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")));
    }
    if let Some(address) = &credentials.address {
        add(address);
        address.split(['/', '?', '&', '=', ':']).for_each(&mut add);
    }
    for (_, value) in from_secret(credentials).unwrap_or_default() {
        add(&String::from_utf8_lossy(value.as_bytes()));
    }
    secrets
}

/// The text up to the first beginning of a secret. Short secrets are removed by [`Credentials::redact`].
pub(super) fn without_secrets(text: &str, credentials: &Credentials) -> String {
    const BEGINNING: usize = 12;
    let text = credentials.redact(text);
    let beginnings = secrets(credentials).into_iter().map(|s| s.chars().take(BEGINNING).collect::<String>());
    match beginnings.filter_map(|beginning| text.find(&beginning)).min() {
        Some(at) => format!("{}***", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: &[u8]) -> Credentials {
        Credentials::from_secret(&BTreeMap::from([(key.to_string(), value.to_vec())])).unwrap()
    }

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hex(hmac_sha256(key, message)), expected);
        }
    }

    #[test]
    fn the_bytes_of_the_key_are_used_unchanged() {
        let signature = |token: &[u8]| {
            let headers = headers(&with("token", token), "id", b"{}").unwrap();
            headers["x-signature"].to_str().unwrap().to_string()
        };
        assert_ne!(signature(b"key"), signature(b"key\n"));
        assert!(headers(&Credentials::default(), "id", b"{}").unwrap().get("x-signature").is_none());
    }

    #[test]
    fn headers_come_from_the_secret_and_add_nothing_else() {
        let made =
            headers(&with("headers", b"Authorization: Bearer abc\nX-Team: \"7\"\n"), "id", b"{}").unwrap();
        assert_eq!(made["authorization"], "Bearer abc");
        assert_eq!(made["x-team"], "7");
        assert_eq!(made["idempotency-key"], "id");
        let ours = headers(&with("headers", b"Idempotency-Key: theirs\n"), "ours", b"{}").unwrap();
        assert_eq!(ours["idempotency-key"], "ours");
        for wrong in [
            &b"X-A: \"b\\r\\nHost: hunter2.example.com\"\n"[..],
            b"\"X-A: b\\r\\nX-hunter2\": c\n",
            b"\"X hunter2\": c\n",
            b"\"\": c\n",
            b"Host: hunter2.example.com\n",
            b"content-length: \"1\"\n",
            b"Transfer-Encoding: chunked\n",
            b"Connection: close\n",
            b"X-A: {b: hunter2}\n",
            b"- hunter2\n",
            b"hunter2",
            b"\xff\xfe",
            b"X-A: \"\\0\"\n",
        ] {
            let error = headers(&with("headers", wrong), "id", b"{}").unwrap_err();
            assert_eq!(error.reason(), "SecretInvalid");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_reply_is_cut_where_it_begins_to_repeat_a_secret() {
        let credentials = Credentials {
            hmac_key: Some(b"s3cret-of-some-length\n".to_vec()),
            headers: Some(b"Authorization: Bearer long-api-token-1234567890\nX-A: a\n".to_vec()),
            address: Some("https://ci.example.com/hooks/XoLZfgK-1".into()),
            ..Credentials::default()
        };
        for (text, expected) in [
            ("no such token long-api-token-1234567890!", "no such token ***"),
            ("no such token long-api-token-12 (cut)", "no such token ***"),
            ("bad key s3cret-of-some-length", "bad key ***"),
            ("no route /hooks/XoLZfgK-1", "no route /hooks/***"),
            ("a job was not found", "a job was not found"),
        ] {
            assert_eq!(without_secrets(text, &credentials), expected);
        }
    }
}
