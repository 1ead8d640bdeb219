//! Lower-case hexadecimal text.

use sha2::{Digest, Sha256};

/// Returns bytes as lower-case hexadecimal text.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the SHA-256 hash of bytes as lower-case hexadecimal text.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}
