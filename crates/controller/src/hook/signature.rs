//! The signature of a call: HMAC of the body's bytes as they came, in `X-Signature: <alg>=<hex>`.

use ring::hmac;

/// Why a signature does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// There is none.
    Missing,
    /// It is not of the form.
    Form,
    /// It is of another body or key.
    Wrong,
}

/// Whether the body was signed with one of the keys. Each key counts as it is stored and without the
/// white space around it: Flux trimmed keys in some versions and not in others, and files end in a
/// line break. An empty key, or one of white space, signs nothing. The time it takes tells nothing of the
/// keys.
///
/// # Errors
/// Why it does not count.
pub fn verify<'a>(
    header: Option<&[u8]>,
    body: &[u8],
    keys: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Mismatch> {
    let (algorithm, tag) = parse(header.ok_or(Mismatch::Missing)?).ok_or(Mismatch::Form)?;
    let mut good = false;
    for stored in keys {
        let trimmed = stored.trim_ascii();
        for key in [stored, trimmed].into_iter().take(if trimmed == stored { 1 } else { 2 }) {
            let key_counts = !trimmed.is_empty();
            good |= key_counts && hmac::verify(&hmac::Key::new(algorithm, key), body, &tag).is_ok();
        }
    }
    if good { Ok(()) } else { Err(Mismatch::Wrong) }
}

/// The algorithm and the tag that a header names.
fn parse(header: &[u8]) -> Option<(hmac::Algorithm, Vec<u8>)> {
    let text = std::str::from_utf8(header).ok()?.trim();
    let (name, hex) = text.split_once('=')?;
    let (algorithm, length) = match name {
        "sha256" => (hmac::HMAC_SHA256, 32),
        "sha384" => (hmac::HMAC_SHA384, 48),
        "sha512" => (hmac::HMAC_SHA512, 64),
        _ => return None,
    };
    let digits = hex.as_bytes();
    if digits.len() != 2 * length {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let tag = digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    Some((algorithm, tag.collect::<Option<Vec<u8>>>()?))
}
