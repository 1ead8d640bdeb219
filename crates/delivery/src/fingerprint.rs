//! Identifies secrets without storing them: in the keys of caches, and in metrics.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use ring::hmac;

use sluice_core::hex::hex;

/// Random in each process, so that nobody can guess passwords by their fingerprint.
static SALT: LazyLock<hmac::Key> = LazyLock::new(|| {
    // The random numbers of the standard library for its maps, which cannot fail.
    let random = RandomState::new();
    let bytes: Vec<u8> = (0..4u8).flat_map(|n| random.hash_one(n).to_be_bytes()).collect();
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
});

/// A fingerprint of a list of parts. In this process, equal lists have equal fingerprints.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = hmac::Context::with_key(&SALT);
    for part in parts {
        // The end of each part counts.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    hex(context.sign())[..32].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_depends_on_the_end_of_each_part() {
        let of = |parts: &[&str]| fingerprint(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["user", "hunter2"]), of(&["user", "hunter2"]));
        let all = [of(&["user", "hunter2"]), of(&["userhunter2"]), of(&["", "userhunter2"]), of(&[])];
        assert!(all.iter().enumerate().all(|(i, one)| !all[..i].contains(one)), "{all:?}");
    }
}
