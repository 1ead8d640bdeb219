//! Tells secrets apart where they themselves must not lie: as keys of what is remembered, and in metrics.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use ring::hmac;

use crate::hex::hex;

/// Of this process alone: whoever sees a fingerprint cannot try passwords on it.
static SALT: LazyLock<hmac::Key> = LazyLock::new(|| {
    // The randomness that the standard library has for its maps, which cannot fail.
    let random = RandomState::new();
    let bytes: Vec<u8> = (0..4u8).flat_map(|n| random.hash_one(n).to_be_bytes()).collect();
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
});

/// The same for the same parts, in this process; another for all others.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = hmac::Context::with_key(&SALT);
    for part in parts {
        // Where one ends is part of it.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    hex(context.sign())[..32].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_by_where_they_end_also() {
        let of = |parts: &[&str]| fingerprint(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["user", "hunter2"]), of(&["user", "hunter2"]));
        let all = [of(&["user", "hunter2"]), of(&["userhunter2"]), of(&["", "userhunter2"]), of(&[])];
        assert!(all.iter().enumerate().all(|(i, one)| !all[..i].contains(one)), "{all:?}");
    }
}
