//! Private keys for SSH in Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const LOCKED: &str = "is locked by a passphrase, which nobody can type here: put a key without one \
                      into the Secret (ssh-keygen -p removes it)";
const NO_KEY: &str = "is no private key: put the file into the Secret that ssh-keygen wrote, not the one \
                      that ends in .pub";

/// The key in the form that ssh reads, or what is wrong with it. ssh itself would only report that the server rejected
/// the login.
pub(super) fn readable(key: &[u8]) -> Result<Vec<u8>, &'static str> {
    let text = String::from_utf8_lossy(key);
    if !text.contains("PRIVATE KEY-----") {
        return Err(NO_KEY);
    }
    if text.contains("ENCRYPTED") || names_a_cipher(&text) {
        return Err(LOCKED);
    }
    // ssh rejects a key without a final line end, or with those of Windows. Secrets often have both.
    let mut key: Vec<u8> = key.iter().copied().filter(|b| *b != b'\r').collect();
    if !key.ends_with(b"\n") {
        key.push(b'\n');
    }
    Ok(key)
}

/// The decoded lines between the first and the last line of a key; `None` if they are not base64.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let body: String = text.lines().map(str::trim).filter(|line| !line.starts_with("--")).collect();
    STANDARD.decode(body).ok()
}

/// OpenSSH's own format: a magic word, then the length and the name of the cipher.
pub(super) fn names_a_cipher(text: &str) -> bool {
    let bytes = decoded(text).unwrap_or_default();
    bytes.strip_prefix(b"openssh-key-v1\0").is_some_and(|rest| !rest.starts_with(b"\0\0\0\x04none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_ssh_could_not_use_are_rejected() {
        let pem = |title: &str, body: &str| format!("-----BEGIN {title}-----\n{body}\n-----END {title}-----");
        let openssh = |cipher: &[u8]| {
            let body = STANDARD.encode([b"openssh-key-v1\0\0\0\0", cipher, b"rest"].concat());
            pem("OPENSSH PRIVATE KEY", &body)
        };
        for locked in [
            openssh(b"\x0aaes256-ctr"),
            pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n\nAAAA"),
            pem("ENCRYPTED PRIVATE KEY", "AAAA"),
        ] {
            assert_eq!(readable(locked.as_bytes()), Err(LOCKED), "{locked}");
        }
        assert_eq!(readable(b"ssh-ed25519 AAAA me@here"), Err(NO_KEY));
        for open in [openssh(b"\x04none"), pem("EC PRIVATE KEY", "AAAA")] {
            let wanted = format!("{open}\n").into_bytes();
            assert_eq!(readable(open.as_bytes()).as_ref(), Ok(&wanted));
            assert_eq!(readable(open.replace('\n', "\r\n").as_bytes()), Ok(wanted));
        }
    }
}
