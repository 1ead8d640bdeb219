//! Patterns of file paths in an `update` list.

use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobSet};

/// The characters that make a path a pattern.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// A pattern of paths: `*` and `?` match no `/`, `**/` matches folders. Matching takes time in proportion to the
/// length of the path, whatever the pattern is.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    pub text: String,
    /// `None` for a plain path, as most are.
    glob: Option<Glob>,
    /// Made when a path is matched for the first time, because that takes time. Copies share it. `None` if it cannot be made.
    matcher: Arc<OnceLock<Option<GlobSet>>>,
}

/// The most bytes of a pattern, with its placeholders replaced.
const MAX_BYTES: usize = 1024;

impl PathPattern {
    pub(super) fn new(text: String) -> Result<PathPattern, String> {
        if text.len() > MAX_BYTES {
            let bytes = text.len();
            return Err(format!(
                "it has {bytes} bytes after its placeholders are replaced: at most {MAX_BYTES} are allowed"
            ));
        }
        if !text.contains(WILDCARDS) {
            return Ok(PathPattern { text, glob: None, matcher: Arc::default() });
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(false).build();
        let glob = Some(glob.map_err(|wrong| wrong.kind().to_string())?);
        Ok(PathPattern { text, glob, matcher: Arc::default() })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let Some(glob) = &self.glob else { return self.text == path };
        // A set of one: a single matcher panics if its regular expression is too large.
        let make = || GlobSet::builder().add(glob.clone()).build().ok();
        self.matcher.get_or_init(make).as_ref().is_some_and(|matcher| matcher.is_match(path))
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &PathPattern) -> bool {
        self.text == other.text
    }
}

impl Eq for PathPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_a_limited_length() {
        let longest = format!("{}*.yaml", "a".repeat(MAX_BYTES - 6));
        assert!(PathPattern::new(longest.clone()).unwrap().matches(&longest.replace('*', "x")));
        let error = PathPattern::new(format!("a{longest}")).unwrap_err();
        assert_eq!(error, "it has 1025 bytes after its placeholders are replaced: at most 1024 are allowed");
    }
}
