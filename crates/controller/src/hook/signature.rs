//! The signature of a call: `X-Signature: <algorithm>=<hex>`, with the HMAC of the body's bytes as they were
//! received.

use ring::hmac;

/// Returns true if the header is a signature of the body with one of the keys. Each key is tried as it is stored and without the white
/// space around it: some versions of Flux trim keys and some do not, and files end in a line break. Empty keys and
/// keys of white space are ignored. The time that the check takes does not depend on the values of the keys.
pub fn is_signed<'a>(header: &[u8], body: &[u8], keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let Some((algorithm, tag)) = parse(header) else { return false };
    let mut good = false;
    for stored in keys {
        let trimmed = stored.trim_ascii();
        for key in [stored, trimmed].into_iter().take(if trimmed == stored { 1 } else { 2 }) {
            let is_key = !trimmed.is_empty();
            good |= is_key && hmac::verify(&hmac::Key::new(algorithm, key), body, &tag).is_ok();
        }
    }
    good
}

/// Returns the algorithm and the HMAC in a header.
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
