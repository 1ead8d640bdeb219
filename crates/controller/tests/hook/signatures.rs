use proptest::prelude::*;
use sluice_controller::hook::signature::is_signed;

use crate::all_bodies;

const KEY: &[u8] = b"test-hmac-key";
const UPSTREAM: &[u8] = b"7152fed34dd6149a7c75a276c510da27cb6f82b0";

#[test]
fn a_signature_of_flux_is_accepted_for_its_body_and_key_only() {
    for (file, body, signature) in all_bodies() {
        let key = if file.starts_with("upstream") { UPSTREAM } else { KEY };
        let header = signature.as_bytes();
        assert!(is_signed(header, &body, [key]), "{file}");
        // During a rotation, either key is accepted.
        assert!(is_signed(header, &body, [&b"other"[..], key]), "{file}");
        let with_line_break = [key, b"\n"].concat();
        assert!(is_signed(header, &body, [with_line_break.as_slice()]), "{file}");
        assert!(!is_signed(header, &body, [&b"other"[..]]), "{file}");
        assert!(!is_signed(header, &body, [] as [&[u8]; 0]), "{file}");
        assert!(!is_signed(header, &body[1..], [key]), "{file}");
        assert!(!is_signed(b"", &body, [key]), "{file}");
    }
}

/// Made with `openssl dgst -sha… -hmac key`.
#[test]
fn signatures_of_three_algorithms_are_accepted() {
    let table = [
        ("sha256=5031fe3d989c6d1537a013fa6e739da23463fdaec3b70137d828e36ace221bd0", true),
        (
            "sha384=c5f97ad9fd1020c174d7dc02cf83c4c1bf15ee20ec555b690ad58e62da8a00ee44ccdb65cb8c80acfd127ebee568958a",
            true,
        ),
        (
            "sha512=3c5953a18f7303ec653ba170ae334fafa08e3846f2efe317b87efce82376253cb52a8c31ddcde5a3a2eee183c2b34cb91f85e64ddbc325f7692b199473579c58",
            true,
        ),
        ("sha256=5031FE3D989C6D1537A013FA6E739DA23463FDAEC3B70137D828E36ACE221BD0", true),
        ("sha1=9d5c73ef85594d34ec4438b7c97e51d8", false),
        ("sha224=d14e09f2c2ff1a0ae4a5b0c8", false),
        ("sha256=", false),
        ("sha256", false),
        ("", false),
        ("=5031fe3d", false),
        ("sha256=5031fe3d989c6d1537a013fa6e739da23463fdaec3b70137d828e36ace221bd", false),
        ("sha256=5031fe3d989c6d1537a013fa6e739da23463fdaec3b70137d828e36ace221bdg", false),
        ("sha256=6031fe3d989c6d1537a013fa6e739da23463fdaec3b70137d828e36ace221bd0", false),
    ];
    for (header, expected) in table {
        assert_eq!(is_signed(header.as_bytes(), b"data", [&b"key"[..]]), expected, "{header}");
    }
}

#[test]
fn an_empty_key_signs_nothing() {
    // HMAC-SHA256 of nothing with no key.
    let header = "sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad";
    for key in [&b""[..], b" \n"] {
        assert!(!is_signed(header.as_bytes(), b"", [key]));
    }
    // A key of white space is ignored even if it made the signature.
    let header = crate::server::sign(" \n", b"{}");
    assert!(!is_signed(header.as_bytes(), b"{}", [&b" \n"[..]]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn a_random_header_is_no_signature_of_a_random_body(header: Vec<u8>, body: Vec<u8>) {
        prop_assert!(!is_signed(&header, &body, [KEY]));
    }

    #[test]
    fn a_random_header_in_the_form_of_a_signature_is_rejected(name in "sha(256|384|512|1)?", hex in "[0-9a-fA-F]{0,140}", body: Vec<u8>) {
        let header = format!("{name}={hex}");
        prop_assert!(!is_signed(header.as_bytes(), &body, [KEY]));
    }
}
