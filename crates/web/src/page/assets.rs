//! The files that pages need. Their names contain their checksums, so that browsers keep them for ever.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// The style.
pub(crate) static CSS: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("page", "css", "text/css", &[include_str!("../../assets/page.css")]));
/// What happens in the browser. Idiomorph changes only what differs between two versions of a part, so that the focus and
/// the selection stay (version 0.8.0, <https://github.com/bigskysoftware/idiomorph>, 0BSD).
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("page", "js", "text/javascript", &[IDIOMORPH, "\n", include_str!("../../assets/page.js")])
});
/// `dist/idiomorph.min.js` of the npm package idiomorph 0.8.0, byte for byte.
const IDIOMORPH: &str = include_str!("../../assets/idiomorph-0.8.0.min.js");
/// The icon.
pub(crate) const ICON: &str = include_str!("../../assets/icon.svg");

/// A file.
#[derive(Debug)]
pub(crate) struct Asset {
    name: String,
    /// The type of the content.
    pub kind: &'static str,
    /// The content.
    pub text: String,
}

impl Asset {
    fn new(name: &str, extension: &str, kind: &'static str, parts: &[&str]) -> Asset {
        let text = parts.concat();
        let sum: String = Sha256::digest(&text).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Asset { name: format!("{name}-{sum}.{extension}"), kind, text }
    }

    /// Returns the name with the checksum.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the asset of this name.
pub(crate) fn named(name: &str) -> Option<&'static Asset> {
    [&*CSS, &*SCRIPT].into_iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_library_is_the_published_one() {
        let sum: String = Sha256::digest(IDIOMORPH).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96");
    }
}
