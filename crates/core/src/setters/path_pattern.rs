//! Patterns of file paths in an `update` list.

use globset::{GlobBuilder, GlobSet};

/// The characters that make a path a pattern.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// A pattern of paths: `*` and `?` match no `/`, `**/` matches folders. Matching takes time in proportion to the
/// length of the path, whatever the pattern is.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    pub text: String,
    /// `None` for a plain path, as most are, because making a matcher takes time.
    matcher: Option<GlobSet>,
}

impl PathPattern {
    pub(super) fn new(text: String) -> Result<PathPattern, String> {
        if !text.contains(WILDCARDS) {
            return Ok(PathPattern { text, matcher: None });
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(false).build();
        let glob = glob.map_err(|wrong| wrong.kind().to_string())?;
        // A single pattern panics if its regular expression is too large.
        let matcher = GlobSet::builder().add(glob).build().map_err(|wrong| wrong.kind().to_string())?;
        Ok(PathPattern { text, matcher: Some(matcher) })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        self.matcher.as_ref().map_or(self.text == path, |matcher| matcher.is_match(path))
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &PathPattern) -> bool {
        self.text == other.text
    }
}

impl Eq for PathPattern {}
