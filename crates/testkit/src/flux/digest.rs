//! Digests in Flux's format.

use sha2::{Digest, Sha256};

/// Returns a digest in Flux's format.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
